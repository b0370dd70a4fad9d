import itertools
import json
import random
import subprocess
import sys

import numpy as np
import pytest
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast

from hfbert.data.tokenized import CorpusReport, TokenizedCorpus, tokenize_corpus
from hfbert.data.tokenizer import (
    SPECIAL_TOKENS,
    TokenizerOptions,
    check_tokenizer,
    encode_plain,
    encode_with_offsets,
    load_tokenizer,
    save_tokenizer,
    train_tokenizer,
)
from hfbert.data.wordpiece import learn_pieces

SENTENCES = [
    "The naïve Café is open, the café was closed.",
    "的人有很多。中国的人有苹果。",
    "Apples and apple trees; ＡＢＣ ＡＢＣ.",
] * 3


def train(sentences=SENTENCES, **options):
    return train_tokenizer(sentences, TokenizerOptions(**options), model_max_length=128)


@pytest.fixture(scope="module")
def tokenizer():
    return train(vocab_size=300)


def test_special_tokens_come_first_and_the_length_is_kept(tokenizer):
    assert tokenizer.convert_tokens_to_ids(SPECIAL_TOKENS) == [0, 1, 2, 3, 4]
    assert tokenizer.model_max_length == 128
    assert tokenizer("Apple")["token_type_ids"] == [0] * 3


def test_the_vocabulary_of_a_word_pair_is_what_one_works_out_by_hand():
    # l-o-w is in both: its pairs score first, then "low" is whole, then "er", then "lower".
    pieces = learn_pieces({"low": 5, "lower": 3}, 100, min_frequency=2)  # type: ignore[arg-type]
    assert set(pieces) == {"l", "##e", "##o", "##r", "##w", "##ow", "low", "##er", "lower"}


def test_training_in_another_process_gives_the_same_file(tmp_path, monkeypatch):
    script = (
        "import random, sys\n"
        "from hfbert.data.tokenizer import TokenizerOptions, train_tokenizer\n"
        "g = random.Random(0)\n"
        "words = [''.join(g.choices('abcdefgh你好', k=g.randrange(1, 7))) for _ in range(3000)]\n"
        "sentences = [' '.join(g.choices(words, k=9)) for _ in range(2000)]\n"
        "train_tokenizer(sentences, TokenizerOptions(vocab_size=900), 64).save_pretrained(sys.argv[1])\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "a")], check=True)
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "b")])
    exec(script, {})
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_vocabulary_is_never_larger_than_asked_and_rare_characters_are_unknown():
    generator = random.Random(0)
    characters = [chr(0x4E00 + number) for number in range(500)]
    text = [character * (500 - number) for number, character in enumerate(characters)]
    generator.shuffle(text)
    tokenizer = train(text, vocab_size=100)
    assert len(tokenizer) == 100 == max(tokenizer.get_vocab().values()) + 1
    assert tokenizer.tokenize("".join(characters[:95])) == characters[:95]
    assert set(tokenizer.tokenize("".join(characters[95:]))) == {"[UNK]"}


def test_every_frequent_chinese_character_is_kept():
    characters = [chr(0x4E00 + number) for number in range(3000)]
    tokenizer = train(["".join(characters)] * 2, vocab_size=4000)
    assert tokenizer.unk_token not in tokenizer.tokenize("".join(characters))


@pytest.mark.parametrize("vocab_size", [-1, 0, 5, 31])
def test_a_vocabulary_without_room_for_an_alphabet_is_refused(vocab_size):
    with pytest.raises(ValueError, match=rf"vocab_size={vocab_size} .* at least 32"):
        TokenizerOptions(vocab_size=vocab_size)


def test_sentences_without_words_cannot_be_trained_on():
    for sentences in ([], ["", " \u200b\0"]):
        with pytest.raises(ValueError, match="no words"):
            train(sentences)


def test_all_eight_kinds_of_tokenizers_load_as_they_were_trained_in_a_new_process(tmp_path):
    texts = ["的人有", "naïve Café", "ＡＢＣ", "Apples是苹果"]
    kept = {}
    for flags in itertools.product([True, False], [True, False, None], [True, False]):
        names = dict(zip(("do_lower_case", "strip_accents", "tokenize_chinese_chars"), flags, strict=True))
        tokenizer = train(vocab_size=200, **names)
        folder = tmp_path / "-".join(map(str, flags))
        save_tokenizer(tokenizer, folder)
        kept[str(folder)] = [tokenizer(text)["input_ids"] for text in texts]
    script = (
        "import json, sys\n"
        "from transformers import AutoTokenizer\n"
        "folders, texts = json.loads(sys.stdin.read())\n"
        "load = AutoTokenizer.from_pretrained\n"
        "print(json.dumps({f: [load(f)(text)['input_ids'] for text in texts] for f in folders}))\n"
    )
    command = [sys.executable, "-c", script]
    given = json.dumps([list(kept), texts])
    answer = subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
    assert json.loads(answer) == kept
    assert len({json.dumps(ids) for ids in kept.values()}) > 4  # the flags do something


def test_a_folder_a_bare_vocabulary_and_a_bare_pipeline_load_alike(tmp_path):
    tokenizer = train(vocab_size=300, do_lower_case=False)
    save_tokenizer(tokenizer, tmp_path / "all")
    for name, files in {
        "vocabulary": ["vocab.txt"],
        "settings": ["vocab.txt", "tokenizer_config.json"],
        "pipeline": ["tokenizer.json"],
    }.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_bytes((tmp_path / "all" / file).read_bytes())
    for place in ("all", "vocabulary", "settings", "pipeline", "all/vocab.txt"):
        loaded = load_tokenizer(str(tmp_path / place))
        assert len(loaded) == len(tokenizer)
        assert loaded("The Café 的人", "x")["input_ids"] == tokenizer("The Café 的人", "x")["input_ids"]
        assert loaded.mask_token_id == 4
    assert load_tokenizer(str(tmp_path / "settings")).model_max_length == 128


def test_a_bare_vocabulary_without_capitals_is_lower_cased(tmp_path):
    save_tokenizer(train(vocab_size=300), tmp_path)
    assert "[UNK]" not in load_tokenizer(str(tmp_path / "vocab.txt")).tokenize("THE Apples")


def test_what_cannot_be_loaded_is_one_line_that_names_the_flag(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.txt").write_text("a\nb\n")
    (tmp_path / "latin.txt").write_bytes(b"\xff\xfe")

    def fail(name):
        raise OSError(f"{name} is not a local folder\nand a long story " + "x" * 500)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fail)
    for name in (
        "no/such-name",
        str(tmp_path / "empty"),
        str(tmp_path / "words.txt"),
        str(tmp_path / "latin.txt"),
    ):
        with pytest.raises(ValueError, match=r"--tokenizer .* cannot be loaded") as caught:
            load_tokenizer(name)
        assert "\n" not in str(caught.value) and len(str(caught.value)) <= 300


def test_a_tokenizer_without_a_mask_token_is_refused(tmp_path, tokenizer):
    bare = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    )
    bare.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no cls, sep, mask token"):
        load_tokenizer(str(tmp_path))


def test_typed_special_tokens_stay_text_and_surrogates_do_not_raise(tokenizer):
    plain, broken = encode_plain(["[SEP] the [MASK]", "the \ud800 café"], tokenizer)
    assert not {0, 2, 3, 4} & {*plain, *broken}
    assert broken == encode_plain(["the \ufffd cafe"], tokenizer)[0]
    assert tokenizer("[SEP]", add_special_tokens=False)["input_ids"] == [
        3
    ]  # the tokenizer itself is as before


def test_plain_encoding_is_what_the_tokenizer_gives_without_special_tokens(tokenizer):
    tokenizer(
        ["the", "apple trees"], padding=True, truncation=True, max_length=2
    )  # leaves its settings behind
    expected = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in SENTENCES]
    assert encode_plain(SENTENCES, tokenizer) == expected


@pytest.mark.parametrize(
    "text", ["The café trees!", "的人 有apple。", "💩💩💩 the 👨‍👩‍👧", "\ud800 [SEP] the", ""]
)
def test_offsets_cut_the_very_text_and_belong_to_the_plain_ids(tokenizer, text):
    ((ids, offsets),) = encode_with_offsets([text], tokenizer)
    assert ids == encode_plain([text], tokenizer)[0]
    covered = "".join(text[start:end] for start, end in offsets)
    assert covered.replace("\ud800", "") == "".join(text.split()).replace("\ud800", "")


def test_a_corpus_is_its_documents_sentences_end_to_end(tokenizer):
    documents = ["The café. The trees!\n\n的人有。", "Apples.", *["The apple. 苹果很多。"] * 1200]
    corpus, report = tokenize_corpus(iter(documents), tokenizer)
    assert len(corpus) == report.documents == 1202
    assert corpus.num_sentences == report.sentences == 3 + 1 + 2400
    assert corpus.num_tokens == report.tokens == corpus.sentence_offsets[-1]
    assert report.documents_with_two_sentences == 1201
    assert corpus.document_offsets[:4].tolist() == [0, 3, 4, 6]
    first = [corpus.tokens[a:b].tolist() for a, b in itertools.pairwise(corpus.sentence_offsets[:4])]
    assert first == encode_plain(["The café.", "The trees!", "的人有。"], tokenizer)
    assert corpus.tokens.dtype == np.uint16
    assert report.unknown_tokens == int((corpus.tokens == 1).sum())


def test_a_corpus_saved_is_the_corpus_loaded(tmp_path, tokenizer):
    corpus, _ = tokenize_corpus(SENTENCES, tokenizer)
    corpus.save(tmp_path / "corpus")
    loaded = TokenizedCorpus.load(tmp_path / "corpus")
    for name in ("tokens", "sentence_offsets", "document_offsets"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(corpus, name))
        assert getattr(loaded, name).dtype == getattr(corpus, name).dtype
    with pytest.raises(ValueError, match="no tokenized corpus"):
        TokenizedCorpus.load(tmp_path)


def test_a_large_vocabulary_needs_four_bytes_a_token():
    pieces = [*SPECIAL_TOKENS, *(f"a{number}" for number in range(70000))]
    tokenizer = BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)})
    corpus, _ = tokenize_corpus(["a0 a69999"], tokenizer)
    assert corpus.tokens.dtype == np.uint32 and corpus.tokens.tolist() == [5, 70004]


def test_empty_documents_are_dropped_and_counted(tokenizer):
    corpus, report = tokenize_corpus(
        ["", "  ", "\u200b", "The café. \0.", "\x01\x02", "的人。Apples."], tokenizer
    )
    assert len(corpus) == 2 and corpus.document_offsets.tolist()[-1] == corpus.num_sentences
    assert (np.diff(corpus.sentence_offsets) > 0).all() and (np.diff(corpus.document_offsets) > 0).all()
    assert report.dropped["empty documents"] == 3 and report.dropped["documents without tokens"] == 1
    assert "3 empty documents" in str(report)


def test_documents_of_one_sentence_are_kept_and_reported(tokenizer):
    corpus, report = tokenize_corpus(["The café."] * 10, tokenizer)
    assert len(corpus) == 10
    assert "documents: 10, with >= 2 sentences: 0" in str(report)
    assert "warning" in str(report) and "next-sentence" in str(report)
    assert "warning" not in str(tokenize_corpus(["The café. Apples."], tokenizer)[1])


def test_a_corpus_of_nothing_is_an_empty_corpus(tokenizer):
    corpus, report = tokenize_corpus([], tokenizer)
    assert len(corpus) == corpus.num_sentences == corpus.num_tokens == 0
    assert report == CorpusReport()


def test_offsets_cover_emoji_that_are_one_unknown_token(tokenizer):
    for text in ("💩💩💩", "👨‍👩‍👧", "📷🤏好"):
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        assert "".join(text[start:end] for start, end in offsets) == text


def test_capitals_that_a_chinese_vocabulary_lacks_are_reported():
    pieces = {
        piece: number for number, piece in enumerate([*SPECIAL_TOKENS, "apple", "##s", "是", "苹", "果"])
    }
    fits = check_tokenizer(BertTokenizer(vocab=pieces, do_lower_case=True), ["Apples是苹果"])
    assert fits["unknown_share"] == 0 and fits["case_matches"] and fits["do_lower_case"]
    assert fits["tokens"] == 5 and fits["pieces_per_word"] == 5 / 4
    unfit = check_tokenizer(
        BertTokenizer(vocab=pieces, do_lower_case=False), ["Apples是苹果", "", "\ud800💩"]
    )
    assert not unfit["case_matches"]
    assert unfit["unknown_share_by_script"] == {"Han": 0.0, "Latin": 1.0, "Other": 1.0}
    assert unfit["unknown_share"] == 2 / 5
