"""Shards, against the same corpus made in one piece; killed, cut, mixed and changed ones."""

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import BertTokenizer

from hfbert.cli import main
from hfbert.data.pair_plan import PairOptions
from hfbert.data.pairs import SentencePairs
from hfbert.data.segmentation import ChineseWords
from hfbert.data.shards import Part, build_shards, is_sharded, load_shards, verify_shards
from hfbert.data.tokenized import tokenize_corpus

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg", *"深度学习很热茶。."]
DOCUMENTS = [f"{'abcdefg'[n % 7]} {'bcd'[n % 3]}. 茶很热。深度学习。" * (1 + n % 4) for n in range(50)] + [
    "",
    "\u200b",
]


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def build(
    out: Path, tokenizer: BertTokenizer, documents: Any = DOCUMENTS, part: Part | None = None, **more: Any
) -> Any:
    settings = {"corpus_key": "the corpus", "shard_characters": 200} | more
    return build_shards(iter(documents), tokenizer, out, part=part or Part(), **settings)


def same(one: Any, other: Any) -> bool:
    names = ("sentence_offsets", "document_offsets")
    arrays = [(getattr(one, name), getattr(other, name)) for name in names]
    arrays += [(one.tokens[0 : len(one.tokens)], other.tokens[0 : len(other.tokens)])]
    return all(np.array_equal(*pair) for pair in arrays)


@pytest.mark.parametrize("words", [None, ChineseWords()])
def test_shards_together_are_the_corpus_in_one_piece(
    tmp_path: Path, tokenizer: BertTokenizer, words: Any
) -> None:
    counts = build(tmp_path, tokenizer, words=words)
    whole, report = tokenize_corpus(DOCUMENTS, tokenizer, words)
    assert len(list(tmp_path.glob("part-0-of-1/shard-*"))) > 5
    joined = load_shards(tmp_path, tokenizer)
    assert same(joined, whole) and joined.tokens.dtype == whole.tokens.dtype
    assert counts["tokens"] == report.tokens and counts["documents"] == report.documents == 50
    if words is not None:
        assert np.array_equal(joined.word_starts[0 : report.tokens], whole.word_starts)
    assert is_sharded(tmp_path) and not is_sharded(tmp_path / "part-0-of-1") and verify_shards(tmp_path) == []


def test_pairs_from_shards_are_those_from_memory_also_after_pickling(
    tmp_path: Path, tokenizer: BertTokenizer
) -> None:
    build(tmp_path, tokenizer)
    whole, _ = tokenize_corpus(DOCUMENTS, tokenizer)
    options = PairOptions(max_length=24)
    expected = SentencePairs(whole, options, 2, 3, seed=1)
    found = SentencePairs(load_shards(tmp_path, tokenizer), options, 2, 3, seed=1)
    copied = pickle.loads(pickle.dumps(found))
    assert len(pickle.dumps(found._tokens)) < 5000  # paths, not tokens
    for rows in (found, copied):
        assert len(rows) == len(expected)
        for number in range(len(rows)):
            assert all(
                np.array_equal(rows[number][name], expected[number][name]) for name in expected[number]
            )


def test_several_processes_build_the_documents_between_them(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    for shard in range(3):
        build(tmp_path, tokenizer, part=Part(shard, 3))
    dealt = [document for shard in range(3) for document in DOCUMENTS[shard::3]]
    assert same(load_shards(tmp_path, tokenizer), tokenize_corpus(dealt, tokenizer)[0])
    shutil.rmtree(tmp_path / "part-1-of-3")
    with pytest.raises(ValueError, match="parts of one build are missing or mixed"):
        load_shards(tmp_path, tokenizer)


def breaking_after(count: int) -> Iterator[str]:
    for number, document in enumerate(DOCUMENTS):
        if number == count:
            raise KeyboardInterrupt
        yield document


def test_a_killed_build_goes_on_and_does_no_shard_again(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, tokenizer, breaking_after(30))
    part = tmp_path / "part-0-of-1"
    times = {shard.name: (shard / "index.json").stat().st_mtime_ns for shard in part.glob("shard-*")}
    assert len(times) >= 3
    with pytest.raises(ValueError, match="is not complete: run the same"):
        load_shards(tmp_path, tokenizer)
    (part / ".shard-00099.partial").mkdir()
    build(tmp_path, tokenizer)
    assert all((part / name / "index.json").stat().st_mtime_ns == time for name, time in times.items())
    assert same(load_shards(tmp_path, tokenizer), tokenize_corpus(DOCUMENTS, tokenizer)[0])
    assert not list(part.glob(".*"))


@pytest.mark.parametrize("damage", ["cut", "deleted", "no index", "broken index", "file gone"])
def test_a_damaged_shard_is_named_and_made_again_alone(
    tmp_path: Path, tokenizer: BertTokenizer, damage: str
) -> None:
    build(tmp_path, tokenizer)
    shard = tmp_path / "part-0-of-1" / "shard-00002"
    others = {path: path.stat().st_mtime_ns for path in tmp_path.glob("part-*/shard-*/index.json")}
    if damage == "cut":
        (shard / "tokens.npy").write_bytes((shard / "tokens.npy").read_bytes()[:-2])
    elif damage == "deleted":
        shutil.rmtree(shard)
    elif damage == "file gone":
        (shard / "document_offsets.npy").unlink()
    else:
        (shard / "index.json").unlink() if damage == "no index" else (shard / "index.json").write_text("{")
    with pytest.raises(ValueError, match="shard-00002"):
        load_shards(tmp_path, tokenizer)
    if damage != "deleted":
        assert len(verify_shards(tmp_path)) == 1
    if "index" in damage:
        shutil.rmtree(shard)  # whose it was cannot be told
    build(tmp_path, tokenizer)
    assert same(load_shards(tmp_path, tokenizer), tokenize_corpus(DOCUMENTS, tokenizer)[0])
    assert all(path.stat().st_mtime_ns == time for path, time in others.items() if path.parent != shard)


def test_a_changed_byte_is_found_by_reading_all(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    build(tmp_path, tokenizer)
    path = tmp_path / "part-0-of-1" / "shard-00001" / "tokens.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    (problem,) = verify_shards(tmp_path)
    assert problem == f"{path} was changed after it was written"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"corpus_key": "another"}, "is of another corpus, or it has changed"),
        ({"shard_characters": 300}, "built with shard_characters=200"),
        ({"words": ChineseWords()}, "built with has_words=False"),
    ],
)
def test_shards_of_another_build_are_refused(
    tmp_path: Path, tokenizer: BertTokenizer, more: dict[str, Any], message: str
) -> None:
    build(tmp_path, tokenizer)
    with pytest.raises(ValueError, match=message):
        build(tmp_path, tokenizer, **more)


def test_shards_of_another_vocabulary_are_refused(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    build(tmp_path, tokenizer)
    other = BertTokenizer(vocab={piece: number for number, piece in enumerate([*PIECES, "x"])})
    with pytest.raises(ValueError, match="is of another vocabulary"):
        load_shards(tmp_path, other)
    with pytest.raises(ValueError, match="is of another vocabulary"):
        build(tmp_path, other)


@pytest.mark.parametrize(("shard", "of"), [(5, 4), (4, 4), (-1, 2)])
def test_a_number_that_no_process_has_is_refused(shard: int, of: int) -> None:
    with pytest.raises(ValueError, match=f"--shard {shard} --of {of}: give a number from 0 to {of - 1}"):
        Part(shard, of)


def test_the_command_builds_verifies_and_says_what_is_wrong(
    tmp_path: Path, tokenizer: BertTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "语料.txt").write_text("\n\n".join(DOCUMENTS), encoding="utf-8")
    command = ["data", "build", str(tmp_path / "语料.txt"), str(tmp_path / "out")]
    command += ["--tokenizer", str(tmp_path / "tokenizer")]
    main(command)
    assert "documents: 50" in capsys.readouterr().out
    main(["data", "verify", str(tmp_path / "out")])
    assert "all shards are as they were written" in capsys.readouterr().out
    (tmp_path / "语料.txt").write_text("a b.", encoding="utf-8")
    for arguments, message in (
        (command, "is of another corpus, or it has changed"),
        ([*command, "--shard", "5", "--of", "4"], "--shard 5 --of 4"),
        (["data", "verify", str(tmp_path)], "holds no shards"),
        ([*command, "--shard_megabytes", "0"], "--shard_megabytes 0"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        shown = capsys.readouterr().err
        assert caught.value.code == 2 and message in shown and shown.count("\n") == 1


def test_an_index_tells_what_the_shard_holds(tmp_path: Path, tokenizer: BertTokenizer) -> None:
    build(tmp_path, tokenizer)
    indices = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("part-*/shard-*/index.json"))]
    assert sum(index["num_read"] for index in indices) == len(DOCUMENTS)
    assert sum(index["documents"] for index in indices) == 50  # two have no text
