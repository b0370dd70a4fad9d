"""Turn a stream of documents into shards of token ids, in bounded memory, and shards into one corpus.

1,000,000 documents  ->  OUT/part-0-of-1/shard-00000 ..., each a `TokenizedCorpus` and an index.json

A shard stands whole or not at all; a build that was killed makes those that do not stand yet. Several
processes or machines take every n-th document each, and share nothing but the folder.
"""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from hfbert.data.segmentation import ChineseWords
from hfbert.data.tokenized import TokenizedCorpus, tokenize_corpus

INDEX = "index.json"
COMPLETE = "complete.json"
TOKENIZER = "tokenizer"
FORMAT_VERSION = 1
_COUNTS = ("documents", "sentences", "tokens", "unknown_tokens")


@dataclass(frozen=True)
class Part:
    """The share of a build that one process has: every `of`-th document from number `shard` on."""

    shard: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.shard < self.of:
            raise ValueError(f"--shard {self.shard} --of {self.of}: give a number from 0 to {self.of - 1}")

    def folder(self, out: Path) -> Path:
        return out / f"part-{self.shard}-of-{self.of}"


def build_shards(
    documents: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    out: Path,
    corpus_key: str,
    part: Part,
    words: ChineseWords | None = None,
    shard_characters: int = 64_000_000,
) -> dict[str, int]:
    """Write the shards of a part that do not stand yet; counts over all of them.

    `corpus_key` says which corpus this is: ValueError when the shards that stand are of another one, of
    another vocabulary, or cut another way. No more than one shard's text and ids are in memory.
    """
    folder = part.folder(out)
    settings = {
        "format_version": FORMAT_VERSION,
        "corpus": corpus_key,
        "vocabulary": vocabulary_key(tokenizer),
        "shard_characters": shard_characters,
        "has_words": words is not None,
    }
    for shard in find_shards(folder):
        _check_settings(shard, settings)
    for leftover in folder.glob(".shard-*"):
        shutil.rmtree(leftover)
    indices: list[dict[str, Any]] = []
    own = islice(documents, part.shard, None, part.of)
    while True:
        shard = folder / f"shard-{len(indices):05d}"
        if find_damage(shard) is None:
            # Where a shard ends depends on its documents alone, so what is read over is what it holds.
            indices.append(_read_index(shard))
            deque(islice(own, indices[-1]["num_read"]), maxlen=0)
            continue
        batch = _take(own, shard_characters)
        if not batch:
            break
        corpus, report = tokenize_corpus(batch, tokenizer, words)
        counts = {name: int(getattr(report, name)) for name in _COUNTS}
        indices.append(settings | counts | {"num_read": len(batch)})
        _write_shard(shard, corpus, indices[-1])
    if not indices:
        raise ValueError(f"--shard {part.shard} --of {part.of}: the corpus has no document for it")
    _write_json(folder / COMPLETE, {"shards": len(indices)})
    return {name: sum(index[name] for index in indices) for name in _COUNTS}


def _take(documents: Iterator[str], num_characters: int) -> list[str]:
    """The next documents with so many characters together, or one that has more; none at the end."""
    batch: list[str] = []
    size = 0
    while size < num_characters and (document := next(documents, None)) is not None:
        batch.append(document)
        size += len(document)
    return batch


def _write_shard(folder: Path, corpus: TokenizedCorpus, index: dict[str, Any]) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # one that was damaged
    partial = folder.with_name(f".{folder.name}.partial")
    partial.mkdir(parents=True)
    corpus.save(partial)
    files = {path.name: _size_and_hash(path) for path in sorted(partial.iterdir())}
    _write_json(partial / INDEX, index | {"files": files})
    partial.rename(folder)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def _size_and_hash(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def vocabulary_key(tokenizer: PreTrainedTokenizerBase) -> str:
    """What two tokenizers share that give the same ids."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    kept = {name: backend[name] for name in ("normalizer", "pre_tokenizer", "model")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def find_shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("shard-*"))


def is_sharded(folder: Path) -> bool:
    """Whether a folder holds what `build_shards` writes."""
    return folder.is_dir() and any(folder.glob("part-*-of-*"))


def _read_index(shard: Path) -> dict[str, Any]:
    try:
        return json.loads((shard / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{shard} has no sound {INDEX}: delete the shard and build again") from None


def _check_settings(shard: Path, settings: dict[str, Any]) -> dict[str, Any]:
    index = _read_index(shard)
    for name, value in settings.items():
        if index.get(name) != value:
            what = {"corpus": "of another corpus, or it has changed", "vocabulary": "of another vocabulary"}
            told = what.get(name, f"built with {name}={index.get(name)}")
            raise ValueError(f"{shard} is {told}: name another folder, or delete this one")
    return index


def find_damage(shard: Path, reads_all: bool = False) -> str | None:
    """What is wrong with a shard: missing, cut short or, if all of it is read, changed."""
    try:
        files = _read_index(shard)["files"]
    except ValueError as error:
        return str(error)
    for name, written in files.items():
        path = shard / name
        if not path.is_file():
            return f"{path} is missing"
        if path.stat().st_size != written["size"]:
            return f"{path} has {path.stat().st_size} bytes instead of {written['size']}"
        if reads_all and _size_and_hash(path) != written:
            return f"{path} was changed after it was written"
    return None


def verify_shards(out: Path) -> list[str]:
    """A line for every shard of which a byte is not as it was written."""
    shards = [shard for part in sorted(out.glob("part-*")) for shard in find_shards(part)]
    return [damage for shard in shards if (damage := find_damage(shard, reads_all=True)) is not None]


def load_shards(out: Path, tokenizer: PreTrainedTokenizerBase) -> TokenizedCorpus:
    """All shards as one corpus whose tokens stay on the disk.

    ValueError for a part that is not there or not complete, for a shard that is missing or cut short, and for
    another vocabulary than the tokenizer's.
    """
    parts = sorted(out.glob("part-*-of-*"), key=lambda path: int(path.name.split("-")[1]))
    of = int(parts[0].name.split("-")[-1])
    if {path.name for path in parts} != {f"part-{shard}-of-{of}" for shard in range(of)}:
        there = ", ".join(path.name for path in parts)
        raise ValueError(f"{out}: parts of one build are missing or mixed with others: there are {there}")
    shards = [shard for part in parts for shard in _shards_of(part)]
    for shard in shards:
        damage = find_damage(shard)
        if damage is not None:
            raise ValueError(f"{damage}: run the same `hfbert data build` again")
        if _read_index(shard)["vocabulary"] != vocabulary_key(tokenizer):
            raise ValueError(f"{shard} is of another vocabulary than the tokenizer's")
    return _join(shards)


def _shards_of(part: Path) -> list[Path]:
    """The shards of a part that was built to its end."""
    try:
        count = json.loads((part / COMPLETE).read_text(encoding="utf-8"))["shards"]
    except (OSError, ValueError, KeyError):
        raise ValueError(f"{part} is not complete: run the same `hfbert data build` again") from None
    return [part / f"shard-{number:05d}" for number in range(count)]


def _join(shards: Sequence[Path]) -> TokenizedCorpus:
    corpora = [TokenizedCorpus.load(shard) for shard in shards]
    sentences = _chain([corpus.sentence_offsets for corpus in corpora])
    documents = _chain([corpus.document_offsets for corpus in corpora])
    starts = None
    if corpora[0].word_starts is not None:
        starts = ShardedArray([shard / "word_starts.npy" for shard in shards])
    tokens = ShardedArray([shard / "tokens.npy" for shard in shards])
    return TokenizedCorpus(tokens, sentences, documents, starts)  # type: ignore[arg-type]


def _chain(offsets: Sequence[np.ndarray]) -> np.ndarray:
    """Offsets of each shard, counted from its own start -> offsets over all of them."""
    before = np.cumsum([0, *(one[-1] for one in offsets)])
    shifted = [one[:-1] + first for one, first in zip(offsets, before, strict=False)]
    return np.concatenate([*shifted, before[-1:]])


class ShardedArray:
    """Arrays on the disk as one, read by slices; a copy for another process holds the paths alone."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self.arrays = [np.load(path, mmap_mode="r") for path in paths]
        self.starts = np.cumsum([0, *map(len, self.arrays)])
        self.dtype = self.arrays[0].dtype

    def __len__(self) -> int:
        return int(self.starts[-1])

    def __getitem__(self, span: slice) -> np.ndarray:
        start, stop, step = span.indices(len(self))
        assert step == 1, "shards are read by whole stretches"
        first = int(np.searchsorted(self.starts, start, side="right")) - 1
        pieces = []
        while start < stop:
            end = min(stop, int(self.starts[first + 1]))
            pieces.append(self.arrays[first][start - self.starts[first] : end - self.starts[first]])
            start, first = end, first + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, self.dtype), *pieces])

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardedArray, (self.paths,)
