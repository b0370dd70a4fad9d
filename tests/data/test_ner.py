"""Windows of words and tags read back from them, against transformers' word ids and invariants."""

import random
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer

from hfbert.data.columns import Sentence
from hfbert.data.ner import collect_tags, convert_tags, learn_names, make_features

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"abcdefg",
    *(f"##{c}" for c in "abcdefg"),
    *"深度学习",
]
NAMES = ("O", "B-PER", "I-PER")


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def sentence(*words: str, tags: tuple[str, ...] = ()) -> Sentence:
    return Sentence(words, tags, words, "a.conll", 1)


def draw_sentence(draw: random.Random) -> Sentence:
    kinds = ["a", "abc", "深", "度", "defgabc", "\u200b", "💩", "[SEP]", "abcdefgabcdefg"]
    words = tuple(draw.choice(kinds) for _ in range(draw.randint(0, 40)))
    return Sentence(words, tuple(draw.choice(NAMES) for _ in words), words, "a.conll", 1)


def test_short_sentences_have_the_pieces_and_the_labels_of_transformers_word_ids(
    tokenizer: BertTokenizer,
) -> None:
    one = sentence("abc", "深", "da", "e", tags=("B-PER", "O", "I-PER", "O"))
    (feature,) = make_features([one], NAMES, tokenizer, 32, 8)
    stock = tokenizer(list(one.words), is_split_into_words=True)
    assert feature["input_ids"] == stock["input_ids"]
    labels, seen = [], set()
    for word in stock.word_ids():
        is_first = word is not None and word not in seen
        labels.append(NAMES.index(one.tags[word]) if is_first else -100)
        seen.add(word)
    assert feature["labels"] == labels


def test_later_pieces_of_a_word_have_no_label_or_the_inside_one(tokenizer: BertTokenizer) -> None:
    one = sentence("abc", "ab", "deb", tags=("B-PER", "O", "I-PER"))
    (first,) = make_features([one], NAMES, tokenizer, 32, 8)
    assert first["labels"] == [-100, 1, -100, -100, 0, -100, 2, -100, -100, -100]
    (every,) = make_features([one], NAMES, tokenizer, 32, 8, label_all_pieces=True)
    assert every["labels"] == [-100, 1, 2, 2, 0, 0, 2, 2, 2, -100]


def test_a_word_without_pieces_is_unknown_and_typed_special_tokens_are_text(tokenizer: BertTokenizer) -> None:
    (feature,) = make_features([sentence("\u200b", "a", "[SEP]", "")], NAMES, tokenizer, 32, 8)
    assert [word for _, word in feature["words"]] == [0, 1, 2, 3]
    assert feature["input_ids"][1] == tokenizer.unk_token_id
    assert feature["input_ids"].count(tokenizer.sep_token_id) == 1


@pytest.mark.parametrize("max_length", [5, 9, 16])
@pytest.mark.parametrize("stride", [0, 1, 2])
def test_every_word_is_spoken_for_by_exactly_one_window_at_its_first_piece(
    tokenizer: BertTokenizer, max_length: int, stride: int
) -> None:
    draw = random.Random(max_length + stride)
    sentences = [draw_sentence(draw) for _ in range(60)]
    features = make_features(sentences, NAMES, tokenizer, max_length, stride)
    spoken = [(feature["sentence"], word) for feature in features for _, word in feature["words"]]
    assert sorted(spoken) == [(i, word) for i, one in enumerate(sentences) for word in range(len(one.words))]
    for feature in features:
        assert len(feature["input_ids"]) <= max_length
        for place, word in feature["words"]:
            text = sentences[feature["sentence"]].words[word]
            first = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"][:1]
            assert [feature["input_ids"][place]] == (first or [tokenizer.unk_token_id])


def test_reading_back_the_labels_gives_the_tags(tokenizer: BertTokenizer) -> None:
    draw = random.Random(7)
    sentences, _ = convert_tags([draw_sentence(draw) for _ in range(60)])
    features = make_features(sentences, NAMES, tokenizer, 9, 3)
    read = collect_tags(features, [np.array(row["labels"]) for row in features], sentences, NAMES)
    assert read == [list(one.tags) for one in sentences]


def test_a_word_is_read_where_it_has_most_context(tokenizer: BertTokenizer) -> None:
    """Words of one piece, windows 0-4 and 2-6 and 4-8: the middle of an overlap goes to the earlier one."""
    features = make_features([sentence(*"abcdefgab")], NAMES, tokenizer, 7, 3)
    assert [len(feature["input_ids"]) - 2 for feature in features] == [5, 5, 5]
    assert [[word for _, word in feature["words"]] for feature in features] == [
        [0, 1, 2, 3],
        [4, 5],
        [6, 7, 8],
    ]


@pytest.mark.parametrize("stride", range(0, 14))
def test_no_stride_loops_for_ever_or_leaves_windows_without_progress(
    tokenizer: BertTokenizer, stride: int
) -> None:
    words = ["abcdefgabcdefgabcdefg", "a", "bc"] * 20
    features = make_features([sentence(*words)], NAMES, tokenizer, 17, stride)
    assert len(features) <= len(words)


@pytest.mark.parametrize("stride", [-1, 15, 99])
def test_a_stride_not_below_the_window_is_refused(tokenizer: BertTokenizer, stride: int) -> None:
    with pytest.raises(ValueError, match=rf"--stride {stride} is not from 0 up to 13, --max_length less 3"):
        make_features([sentence("a")], NAMES, tokenizer, 16, stride)


def test_a_tag_that_training_never_saw_is_refused_with_its_line(tokenizer: BertTokenizer) -> None:
    with pytest.raises(ValueError, match=r"a\.conll, line 2: tag 'B-LOC' never occurs in the training set"):
        make_features([sentence("a", "b", tags=("O", "B-LOC"))], NAMES, tokenizer, 16, 2)


def test_sentences_without_tags_have_features_without_labels(tokenizer: BertTokenizer) -> None:
    features = make_features([sentence("a"), sentence()], NAMES, tokenizer, 16, 2)
    assert len(features) == 1 and "labels" not in features[0]


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([sentence("a", tags=("O",)), sentence("b")], r"a\.conll, line 1: no tags, and training needs one"),
        ([sentence("a", tags=("O",))], "every tag is O; there is nothing to learn"),
    ],
)
def test_a_training_set_needs_tags_and_an_entity(sentences: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn_names(sentences)


def test_tags_of_any_scheme_come_out_as_iob2() -> None:
    found, scheme = convert_tags(
        [sentence("高", "勇", tags=("B-NAME", "E-NAME")), sentence("男", tags=("O",))]
    )
    assert scheme == "IOBES" and found[0].tags == ("B-NAME", "I-NAME")
