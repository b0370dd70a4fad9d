"""Words laid over tokens, against rjieba's own cuts, the tokenizer's words and hand-worked sentences."""

import random

import numpy as np
import pytest
import rjieba
from transformers import BertTokenizer

from hfbert.data.masking import MaskingOptions
from hfbert.data.pair_plan import PairOptions
from hfbert.data.pairs import SentencePairs
from hfbert.data.segmentation import ChineseWords, GivenWords, cut_chinese, find_word_starts
from hfbert.data.tokenized import tokenize_corpus
from hfbert.data.tokenizer import encode

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789"]
PIECES += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"] + [
    *"用拍照深度学习模型训练我来到北京清华大学很热的茶。，"
]


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def words_of(text: str, tokenizer: BertTokenizer, cuts: set[int]) -> list[str]:
    """The characters of each word that the starts make of the tokens."""
    (encoding,) = encode([text], tokenizer)
    starts = find_word_starts(text, encoding.offsets, encoding.word_ids, cuts)
    words: list[str] = []
    for (begin, end), is_start in zip(encoding.offsets, starts, strict=True):
        words = [*words, text[begin:end]] if is_start else [*words[:-1], words[-1] + text[begin:end]]
    return words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("用iPhone15拍照", ["用", "iPhone15", "拍照"]),
        ("深度学习模型训练", ["深度", "学习", "模型", "训练"]),
        ("我来到北京清华大学。", ["我", "来到", "北京", "清华大学", "。"]),
        ("the cat, sat", ["the", "cat", ",", "sat"]),
        ("茶很热，abc。", ["茶", "很", "热", "，", "abc", "。"]),
        ("北京龘清华大学", ["北京", "龘", "清华大学"]),  # 龘 is [UNK] here, and a word of its own
        ("💩💩 北京", ["💩💩", "北京"]),
        ("", []),
    ],
)
def test_words_by_hand(tokenizer: BertTokenizer, text: str, words: list[str]) -> None:
    assert words_of(text, tokenizer, cut_chinese(text)) == words


def test_chinese_words_are_those_of_rjieba_and_others_those_of_the_tokenizer(
    tokenizer: BertTokenizer,
) -> None:
    draw = random.Random(0)
    alphabet = [*"用拍照深度学习模型训练我来到北京清华大学很热的茶", "。", " ", "abc", "iphone15", "龘"]
    for _ in range(300):
        text = "".join(draw.choice(alphabet) for _ in range(20))
        expected = [
            word
            for whole, _, _ in rjieba.tokenize(text)
            for word in ([whole] if any("\u4e00" <= c <= "\u9fff" for c in whole) else [])
        ]
        found = words_of(text, tokenizer, cut_chinese(text))
        assert [word for word in found if any("\u4e00" <= c <= "\u9fff" for c in word)] == expected
        assert "".join(found) == text.replace(" ", "")


def test_ids_are_never_changed_by_words(tokenizer: BertTokenizer) -> None:
    documents = ["用iPhone15拍照。北京很热。", "the cat sat. 茶。", "龘龘 abc。"]
    plain, _ = tokenize_corpus(documents, tokenizer)
    segmented, report = tokenize_corpus(documents, tokenizer, ChineseWords())
    assert np.array_equal(plain.tokens, segmented.tokens)
    assert segmented.word_starts is not None and len(segmented.word_starts) == segmented.num_tokens
    assert segmented.word_starts[segmented.sentence_offsets[:-1]].all()
    assert report.unsegmented == 0


def test_given_words_win_and_may_span_what_rjieba_cuts(tokenizer: BertTokenizer) -> None:
    documents = ["深度学习很热。我来到北京。", "茶很热"]
    words = GivenWords(documents, ["深度学习 很 热 。 我 来到北京 。", "茶很 热"])
    corpus, report = tokenize_corpus(documents, tokenizer, words)
    assert corpus.word_starts is not None
    assert "".join("|." if start else "." for start in corpus.word_starts) == "|....|.|.|.|.|....|.|..|."
    assert report.unsegmented == 0


def test_a_document_that_does_not_fit_falls_back_to_tokens_and_is_counted(tokenizer: BertTokenizer) -> None:
    documents = ["深度学习。", "北京很热。"]
    corpus, report = tokenize_corpus(
        documents, tokenizer, GivenWords(documents, ["深度 学习 。", "北京 凉 。"])
    )
    assert corpus.word_starts is not None
    assert corpus.word_starts.tolist() == [True, False, True, False, True, *[True] * 5]
    assert report.unsegmented == 1 and "does not fit 1 documents" in str(report)


def test_a_segmentation_of_another_length_is_refused_with_both_counts_and_the_first_difference() -> None:
    with pytest.raises(
        ValueError, match=r"has 2 documents and --corpus 3; .* from document 2 on: '热 茶' and '北京'"
    ):
        GivenWords(["深度。", "北京", "热茶"], ["深度 。", "热 茶"])


def test_rows_of_pairs_carry_their_words_and_special_tokens_have_none(tokenizer: BertTokenizer) -> None:
    corpus, _ = tokenize_corpus(
        ["北京很热。我来到清华大学。", "茶很热。深度学习。"], tokenizer, ChineseWords()
    )
    rows = SentencePairs(corpus, PairOptions(max_length=32, short_seq_prob=0.0), 2, 3, seed=0)
    for row in (rows[number] for number in range(len(rows))):
        ids, words = np.array(row["input_ids"]), np.array(row["word_ids"])
        assert ((words == -1) == np.isin(ids, [2, 3])).all()
        text = [PIECES[number] for number in ids]
        runs = [
            "".join(text[i] for i in np.flatnonzero(words == word)) for word in np.unique(words[words >= 0])
        ]
        assert set(runs) <= {"北京", "很", "热", "。", "我", "来到", "清华大学", "茶", "深度", "学习"}


def test_spans_need_whole_words() -> None:
    with pytest.raises(ValueError, match="masked_span=ngram masks whole words"):
        MaskingOptions(masked_span="ngram")
    with pytest.raises(ValueError, match="masked_span='line' is not one of word, ngram, geometric"):
        MaskingOptions(masked_span="line", whole_word_mask=True)  # type: ignore[arg-type]
