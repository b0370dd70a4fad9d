"""Turn documents into one array of token ids, with the places where sentences and documents begin.

["Tea is hot. It steams."]
    ->  tokens [812, 97, 1403, 8, 101, 5521, 8], sentence_offsets [0, 4, 7], document_offsets [0, 2]
"""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from hfbert.data.segmentation import ChineseWords, GivenWords, find_word_starts
from hfbert.data.sentences import split_sentences
from hfbert.data.tokenizer import encode, encode_plain

_DOCUMENTS_PER_BATCH = 512


@dataclass(frozen=True)
class TokenizedCorpus:
    """Token ids of a corpus in one array, and where its sentences and documents begin.

    Sentence s is `tokens[sentence_offsets[s] : sentence_offsets[s + 1]]`; document d is the sentences from
    `document_offsets[d]` up to `document_offsets[d + 1]`. None is empty.
    """

    tokens: NDArray[np.uint16] | NDArray[np.uint32]  # (num_tokens,)
    sentence_offsets: NDArray[np.int64]  # (num_sentences + 1,)
    document_offsets: NDArray[np.int64]  # (num_documents + 1,)
    word_starts: NDArray[np.bool_] | None = None  # (num_tokens,) where words begin, if they were looked for

    def __len__(self) -> int:
        return len(self.document_offsets) - 1

    @property
    def num_sentences(self) -> int:
        return len(self.sentence_offsets) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """One `.npy` file an array."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for array in fields(self):
            if getattr(self, array.name) is not None:
                np.save(Path(folder) / f"{array.name}.npy", getattr(self, array.name))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "TokenizedCorpus":
        """Map what `save` wrote; nothing is read before it is used. Raises ValueError without it."""
        try:
            paths = [Path(folder) / f"{array.name}.npy" for array in fields(cls)]
            if not paths[-1].exists():
                paths.pop()  # no words were looked for
            return cls(*(np.load(path, mmap_mode="r") for path in paths))
        except (OSError, ValueError, EOFError):
            message = f"{folder} holds no tokenized corpus, or half of one: delete it to have it made anew"
            raise ValueError(message) from None


@dataclass
class CorpusReport:
    """What was read, and what was left out and why."""

    documents: int = 0
    documents_with_two_sentences: int = 0
    sentences: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    unsegmented: int = 0  # documents whose segmentation does not fit: each of their tokens is a word
    dropped: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        share = self.unknown_tokens / max(self.tokens, 1)
        lines = [
            f"documents: {self.documents:,}, with >= 2 sentences: {self.documents_with_two_sentences:,}",
            f"sentences: {self.sentences:,}",
            f"tokens: {self.tokens:,}, unknown: {self.unknown_tokens:,} ({share:.2%})",
            "dropped: "
            + (", ".join(f"{count:,} {why}" for why, count in sorted(self.dropped.items())) or "nothing"),
        ]
        if self.unsegmented:
            lines.append(f"warning: the segmentation does not fit {self.unsegmented:,} documents")
        if not self.documents_with_two_sentences:
            lines.append(
                "warning: no document has two sentences, so there is no next-sentence pair; if each sentence "
                "stands between blank lines, try --document_separator file"
            )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def tokenize_corpus(
    documents: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    words: ChineseWords | GivenWords | None = None,
) -> tuple[TokenizedCorpus, CorpusReport]:
    """Split documents into sentences and those into token ids; empty ones are dropped and counted.

    With `words` it also says which tokens start a word, for masking words whole.
    """
    dtype = np.uint16 if len(tokenizer) < 2**16 else np.uint32
    report = CorpusReport()
    tokens: list[NDArray[Any]] = [np.empty(0, dtype)]
    starts: list[NDArray[Any]] = [np.empty(0, bool)]
    sentence_lengths: list[NDArray[Any]] = [np.empty(0, np.int64)]
    document_lengths: list[NDArray[Any]] = [np.empty(0, np.int64)]
    numbered = enumerate(documents)
    while batch := list(islice(numbered, _DOCUMENTS_PER_BATCH)):
        split = [split_sentences(document) for _, document in batch]
        encoded = _encode_sentences([one for sentences in split for one in sentences], tokenizer, words)
        if words is not None:
            starts += _find_starts(batch, split, encoded, words)
        ids = [one if words is None else one.ids for one in encoded]
        kept, sizes = _drop_empty(split, ids, report)
        tokens.append(np.fromiter(chain.from_iterable(kept), dtype, sum(map(len, kept))))
        sentence_lengths.append(np.fromiter(map(len, kept), np.int64, len(kept)))
        document_lengths.append(np.array(sizes, np.int64))
    corpus = TokenizedCorpus(
        np.concatenate(tokens),
        _offsets(sentence_lengths),
        _offsets(document_lengths),
        None if words is None else np.concatenate(starts),
    )
    report.documents, report.sentences, report.tokens = len(corpus), corpus.num_sentences, corpus.num_tokens
    report.documents_with_two_sentences = int((np.diff(corpus.document_offsets) >= 2).sum())
    report.unknown_tokens = int((corpus.tokens == tokenizer.unk_token_id).sum())
    report.unsegmented = 0 if words is None else words.num_unfit
    return corpus, report


def _encode_sentences(
    sentences: list[str], tokenizer: PreTrainedTokenizerBase, words: object | None
) -> list[Any]:
    """The ids of each sentence, or all that the tokenizer knows of it where words are asked for."""
    if not sentences:
        return []
    return encode_plain(sentences, tokenizer) if words is None else encode(sentences, tokenizer)


def _find_starts(
    batch: list[tuple[int, str]],
    split: list[list[str]],
    encoded: list[Any],
    words: ChineseWords | GivenWords,
) -> list[NDArray[np.bool_]]:
    """Which tokens of each sentence start a word; all of them where a document's words do not fit it."""
    rest = iter(encoded)
    starts = []
    for (number, document), sentences in zip(batch, split, strict=True):
        cut = words.open_document(number, document)
        for sentence in sentences:
            encoding = next(rest)
            if cut is None:
                starts.append(np.ones(len(encoding.ids), dtype=bool))
            else:
                known = encoding.offsets, encoding.word_ids
                starts.append(find_word_starts(sentence, *known, cut(sentence)))
    return starts


def _drop_empty(
    split: list[list[str]], encoded: list[list[int]], report: CorpusReport
) -> tuple[list[list[int]], list[int]]:
    """All sentences that have tokens, and how many of them each document has; counts what it drops."""
    rest = iter(encoded)
    kept: list[list[int]] = []
    sizes: list[int] = []
    for sentences in split:
        ids = [sentence for sentence in islice(rest, len(sentences)) if sentence]
        if ids:
            report.dropped["sentences without tokens"] += len(sentences) - len(ids)
            kept.extend(ids)
            sizes.append(len(ids))
        else:
            report.dropped["documents without tokens" if sentences else "empty documents"] += 1
    report.dropped = +report.dropped  # without the zeros
    return kept, sizes


def _offsets(lengths: list[NDArray[Any]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
