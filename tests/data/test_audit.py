"""The audit of a corpus, against hand-made corpora whose numbers are known."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from transformers import BertTokenizer

from hfbert.cli import main
from hfbert.data.audit import Audit, Facts, audit_corpus, count_duplicates
from hfbert.data.collator import DataCollatorForPreTraining
from hfbert.data.pair_plan import PairOptions
from hfbert.data.pairs import SentencePairs
from hfbert.data.sentences import split_sentences
from hfbert.data.tokenized import tokenize_corpus

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg", *"深度学习很热茶。."]


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def documents() -> list[str]:
    draw = np.random.default_rng(0)
    letters = [" ".join("abcdefg"[number] for number in draw.integers(0, 7, 9)) for _ in range(300)]
    return [f"{words}. 茶很热。{'深度学习' * (1 + number % 3)}。" for number, words in enumerate(letters)]


def look(tokenizer: BertTokenizer, texts: list[str]) -> Audit:
    corpus, _ = tokenize_corpus(texts, tokenizer)
    pairs = SentencePairs(corpus, PairOptions(max_length=32), 2, 3, seed=0)
    return audit_corpus(corpus, tokenizer, pairs, DataCollatorForPreTraining(tokenizer))


def test_counts_and_shares_are_those_of_the_corpus(tokenizer: BertTokenizer) -> None:
    texts = [*documents(), documents()[0], "龘 a. b."]
    audit = look(tokenizer, texts)
    facts = audit.facts
    assert facts["documents"] == 302 and facts["documents that stand twice"] == 1
    assert facts["sentences"] == sum(len(split_sentences(text)) for text in texts)
    assert facts["unknown tokens"] == pytest.approx(1 / int(facts["tokens"]))
    assert audit.problems == [] and facts["random pairs of one document"] == 0
    assert facts["random pairs"] == pytest.approx(0.5, abs=0.07)
    assert facts["tokens that are predicted"] == pytest.approx(0.15, abs=0.02)
    assert facts["of those, masked"] == pytest.approx(0.8, abs=0.05)
    shares = [float(facts[f"of those, {name}"]) for name in ("masked", "random", "kept")]
    assert sum(shares) == pytest.approx(1)
    assert str(facts["commonest pieces"]).split()[0] in "。深度学习"
    assert len(audit.lengths["tokens of a sentence"]) == facts["sentences"]


def test_samples_show_what_was_masked_and_what_stood_there(tokenizer: BertTokenizer) -> None:
    samples = look(tokenizer, documents()).samples
    assert len(samples) == 3 and all("[SEP]" in sample and "(" in sample for sample in samples)


def test_equal_documents_are_counted_once_each(tokenizer: BertTokenizer) -> None:
    corpus, _ = tokenize_corpus(["a b.", "a b.", "茶。", "a b. c.", "茶。", "a b."], tokenizer)
    assert count_duplicates(corpus.tokens, corpus) == 3


def test_the_command_prints_one_page_and_draws_it(
    tmp_path: Path, tokenizer: BertTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "text.txt").write_text("\n\n".join(documents()), encoding="utf-8")
    arguments = [str(tmp_path / "text.txt"), "--tokenizer", str(tmp_path / "tokenizer")]
    main(["data", "audit", *arguments, "--max_length", "32", "--output", str(tmp_path / "page.md")])
    shown = capsys.readouterr().out
    assert "| documents | 300 |" in shown and "| unknown tokens in Han | 0 |" in shown
    assert shown == (tmp_path / "page.md").read_text(encoding="utf-8")
    assert Image.open(tmp_path / "page.png").width == 1200
    main(["data", "build", str(tmp_path / "text.txt"), str(tmp_path / "shards"), *arguments[1:]])
    capsys.readouterr()
    main(["data", "audit", str(tmp_path / "shards"), "--max_length", "32"])
    again = capsys.readouterr().out
    assert [line for line in shown.splitlines() if "tokens in" not in line] == again.splitlines()
    with pytest.raises(SystemExit):
        main(["data", "audit", str(tmp_path / "text.txt")])
    assert "--tokenizer is required" in capsys.readouterr().err


def test_pairs_that_are_not_sound_are_told_and_end_with_2() -> None:
    facts: Facts = {
        "random pairs of one document": 2,
        "random pairs that are the true next": 0,
    }
    assert Audit(facts, {}, []).problems == ["random pairs of one document: 2"]
