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

from hfbert.data.sentences import split_sentences
from hfbert.data.tokenizer import encode_plain

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
            np.save(Path(folder) / f"{array.name}.npy", getattr(self, array.name))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "TokenizedCorpus":
        """Map what `save` wrote; nothing is read before it is used. Raises ValueError without it."""
        try:
            return cls(*(np.load(Path(folder) / f"{array.name}.npy", mmap_mode="r") for array in fields(cls)))
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
        if not self.documents_with_two_sentences:
            lines.append(
                "warning: no document has two sentences, so there is no next-sentence pair; if each sentence "
                "stands between blank lines, try --document_separator file"
            )
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines())


def tokenize_corpus(
    documents: Iterable[str], tokenizer: PreTrainedTokenizerBase
) -> tuple[TokenizedCorpus, CorpusReport]:
    """Split documents into sentences and those into token ids; empty ones are dropped and counted."""
    dtype = np.uint16 if len(tokenizer) < 2**16 else np.uint32
    report = CorpusReport()
    tokens: list[NDArray[Any]] = [np.empty(0, dtype)]
    sentence_lengths: list[NDArray[Any]] = [np.empty(0, np.int64)]
    document_lengths: list[NDArray[Any]] = [np.empty(0, np.int64)]
    documents = iter(documents)
    while batch := list(islice(documents, _DOCUMENTS_PER_BATCH)):
        sentences, sizes = _encode_documents(batch, tokenizer, report)
        num_tokens = sum(map(len, sentences))
        tokens.append(np.fromiter(chain.from_iterable(sentences), dtype, num_tokens))
        sentence_lengths.append(np.fromiter(map(len, sentences), np.int64, len(sentences)))
        document_lengths.append(np.array(sizes, np.int64))
    corpus = TokenizedCorpus(np.concatenate(tokens), _offsets(sentence_lengths), _offsets(document_lengths))
    report.documents, report.sentences, report.tokens = len(corpus), corpus.num_sentences, corpus.num_tokens
    report.documents_with_two_sentences = int((np.diff(corpus.document_offsets) >= 2).sum())
    report.unknown_tokens = int((corpus.tokens == tokenizer.unk_token_id).sum())
    return corpus, report


def _encode_documents(
    documents: list[str], tokenizer: PreTrainedTokenizerBase, report: CorpusReport
) -> tuple[list[list[int]], list[int]]:
    """The ids of all sentences in a row, and how many of them each document has; counts what it drops."""
    split = [split_sentences(document) for document in documents]
    flat = [sentence for sentences in split for sentence in sentences]
    encoded = iter(encode_plain(flat, tokenizer) if flat else [])
    kept: list[list[int]] = []
    sizes: list[int] = []
    for sentences in split:
        ids = [sentence for sentence in islice(encoded, len(sentences)) if sentence]
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
