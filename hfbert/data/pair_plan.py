"""Plan the sentence pairs of an epoch: which spans of the token array become A and B, and their labels.

[[11, 12], [13], [14, 15]]  ->  A tokens 0-3, B tokens 3-5, label 0

Every decision is a function of (seed, epoch, document number, chunk); all documents are planned side by side.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Literal

import numpy as np

from hfbert.data.masking import IGNORED_LABEL, check_rate, unit_interval
from hfbert.data.tokenized import TokenizedCorpus

# D documents of the split that have text, P samples of an epoch
IS_NEXT, IS_RANDOM = 0, 1  # in their order, and swapped, under "sop"
NUM_SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]
SHORTEST_MAX_LENGTH = 8

# Streams of the hash; those of masking.py are below 100.
SHORT, LENGTH, SPLIT, NEXT, DOCUMENT, SENTENCE, FIRST_FRONT, SECOND_FRONT = range(100, 108)

NUM_SET_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)

Draw = Callable[..., np.ndarray]
Span = tuple[np.ndarray, np.ndarray]  # starts and ends in the tokens


@dataclass(kw_only=True)
class PairOptions:
    """Shape of the pairs; the defaults are the paper's (Devlin et al., 2019, A.2) and its data builder's.

    `max_length` counts [CLS] and both [SEP]s and is 8 at least, so that a pair has room for five pieces;
    `short_seq_prob` is the share of samples of a random shorter length, `nsp_probability` the share of pairs
    whose B is the true next text. Raises ValueError for a shorter `max_length` and shares outside [0, 1].

    `pair_objective` is what the label of a pair says. "nsp": 1 if B is random. "sop" (ALBERT, Lan et al.,
    2019): B always follows A in the text, 1 if the two are swapped. "none" (RoBERTa, Liu et al., 2019): there
    is one text and no label. Without next sentence prediction BERT-base lost 0.5 points of MNLI, 3.5 of QNLI
    and 0.6 of SQuAD's F1 (Devlin et al., table 5); RoBERTa found no loss when texts fill the row.
    """

    max_length: int = 128  # positions of a pair, [CLS] and both [SEP] included
    short_seq_prob: float = 0.1  # share of samples of a random shorter length
    pair_objective: Literal["nsp", "sop", "none"] = "nsp"  # next sentence, sentence order, or masked LM alone
    nsp_probability: float = 0.5  # share of pairs whose B is the true next text, or in its true order

    def __post_init__(self) -> None:
        if self.max_length < SHORTEST_MAX_LENGTH:
            raise ValueError(
                f"max_length={self.max_length} is too small for a pair: give {SHORTEST_MAX_LENGTH} or more "
                f"({NUM_SPECIAL_TOKENS} positions are [CLS] and [SEP]s)"
            )
        if self.pair_objective not in ("nsp", "sop", "none"):
            raise ValueError(f"pair_objective={self.pair_objective!r} is not one of nsp, sop, none")
        check_rate("short_seq_prob", self.short_seq_prob)
        check_rate("nsp_probability", self.nsp_probability)


@dataclass
class Text:
    """The sentences and documents of a split that have tokens."""

    bounds: np.ndarray  # where each sentence of the corpus starts in the tokens, and the end of the last
    numbers: np.ndarray  # (D,) document numbers in the corpus
    first: np.ndarray  # (D,) first sentence of each document, an index into bounds
    last: np.ndarray  # (D,) one past its last sentence
    by_length: np.ndarray = field(init=False)  # (D,) documents from the shortest to the longest
    rank: np.ndarray = field(init=False)  # (D,) the place of each document in by_length
    sorted_lengths: np.ndarray = field(init=False)  # (D,) tokens

    def __post_init__(self) -> None:
        lengths = self.bounds[self.last] - self.bounds[self.first]
        by_length = np.argsort(lengths, kind="stable")
        rank = np.empty_like(by_length)
        rank[by_length] = np.arange(len(by_length))
        self.by_length, self.rank, self.sorted_lengths = by_length, rank, lengths[by_length]


@dataclass(frozen=True)
class Plan:
    """Spans into the tokens and the label of each sample, all (P,) int64."""

    document: np.ndarray
    first_start: np.ndarray
    first_end: np.ndarray
    second_start: np.ndarray
    second_end: np.ndarray
    label: np.ndarray


def find_text(corpus: TokenizedCorpus, documents: np.ndarray | None) -> Text:
    numbers = np.arange(len(corpus)) if documents is None else np.unique(documents)
    if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < len(corpus):
        raise ValueError(
            f"documents {numbers[0]} to {numbers[-1]} were asked for, the corpus has 0 to {len(corpus) - 1}"
        )
    # An empty sentence is dropped here once, so that no segment can be made of one.
    has_tokens = np.diff(corpus.sentence_offsets) > 0
    bounds = np.append(corpus.sentence_offsets[:-1][has_tokens], corpus.sentence_offsets[-1])
    first_sentences = np.append(0, np.cumsum(has_tokens))[corpus.document_offsets]
    first, last = first_sentences[numbers], first_sentences[numbers + 1]
    has_text = first < last
    return Text(bounds, numbers[has_text], first[has_text], last[has_text])


def make_plan(text: Text, options: PairOptions, draw: Draw) -> Plan:
    """One chunk of every document at a time, all documents at once, until the last document is used up."""
    document, start = np.arange(len(text.numbers)), text.first
    chunk, parts = 0, []
    while len(document):
        draw_here = partial(draw, text.numbers[document], chunk)
        part, start = _plan_chunk(text, options, document, start, draw_here)
        parts.append(part)
        unfinished = start < text.last[document]
        document, start, chunk = document[unfinished], start[unfinished], chunk + 1
    order = np.argsort(np.concatenate([part.document for part in parts]), kind="stable")
    return Plan(*(np.concatenate([getattr(p, f.name) for p in parts])[order] for f in fields(Plan)))


def _plan_chunk(
    text: Text, options: PairOptions, document: np.ndarray, start: np.ndarray, draw: Draw
) -> tuple[Plan, np.ndarray]:
    """The next sample of each document, and the sentence its following one starts with."""
    bounds, last = text.bounds, text.last[document]
    target = _draw_target(options, draw)
    end = _gather(bounds, start, target, last)
    end = np.maximum(end, np.minimum(start + 2, last))
    if options.pair_objective == "none":
        is_single, split = np.ones_like(end, dtype=bool), end
    else:
        is_single = end - start == 1
        split = start + 1 + _draw_below(end - start - 1, draw(SPLIT))
    is_untrue = ~is_single & (unit_interval(draw(NEXT)) >= options.nsp_probability)
    first, second = (bounds[start], bounds[split]), (bounds[split], bounds[end])
    following = end
    if options.pair_objective == "sop":
        first, second = _choose(is_untrue, second, first), _choose(is_untrue, first, second)
    elif is_untrue.any():
        second = _choose(is_untrue, _draw_other(text, document, second[1] - second[0], draw), second)
        following = np.where(is_untrue, split, end)  # the rest is put back
    label = np.where(is_single, IGNORED_LABEL, np.where(is_untrue, IS_RANDOM, IS_NEXT))
    # A single segment has one [SEP] less.
    return Plan(document, *_truncate(first, second, target + is_single, draw), label), following


def _choose(where: np.ndarray, one: Span, other: Span) -> Span:
    return np.where(where, one[0], other[0]), np.where(where, one[1], other[1])


def _draw_target(options: PairOptions, draw: Draw) -> np.ndarray:
    """Tokens of A and B together: the longest that fits or, now and then, any number from 2 to that."""
    longest = options.max_length - NUM_SPECIAL_TOKENS
    is_short = unit_interval(draw(SHORT)) < options.short_seq_prob
    return np.where(is_short, 2 + _draw_below(np.asarray(longest - 1), draw(LENGTH)), longest)


def _draw_other(
    text: Text, document: np.ndarray, wanted: np.ndarray, draw: Draw
) -> tuple[np.ndarray, np.ndarray]:
    """A stretch of about `wanted` tokens in another document for each of `document`: token start and end."""
    num_documents, own_rank = len(text.numbers), text.rank[document]
    shortest = np.searchsorted(text.sorted_lengths, wanted)  # the first rank that has enough
    shortest = np.where(num_documents - shortest > 1, shortest, 0)
    rank = shortest + _draw_below(num_documents - shortest - 1, draw(DOCUMENT))
    other = text.by_length[rank + (rank >= own_rank)]  # the own document is one of those and is stepped over
    first, last = text.first[other], text.last[other]
    latest = np.searchsorted(text.bounds, text.bounds[last] - wanted, side="right") - 1
    start = first + _draw_below(np.maximum(latest - first, 0) + 1, draw(SENTENCE))
    end = _gather(text.bounds, start, wanted, last)
    goal = text.bounds[start] + wanted
    is_nearer_without_last = goal - text.bounds[end - 1] < text.bounds[end] - goal
    end = np.where((end - start > 1) & is_nearer_without_last, end - 1, end)
    return text.bounds[start], text.bounds[end]


def _gather(bounds: np.ndarray, start: np.ndarray, wanted: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The sentence after the one that reaches `wanted` tokens from sentence `start` on; `last` stops it."""
    return np.clip(np.searchsorted(bounds, bounds[start] + wanted), start + 1, last)


def _draw_below(limit: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Uniform integers from 0 to `limit` - 1; 0 where there is no choice."""
    return (unit_interval(bits) * limit).astype(np.int64)


def _truncate(
    first: Span, second: Span, target: np.ndarray, draw: Draw
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cut both segments to `target` tokens together: first start and end, second start and end."""
    first_length, second_length = first[1] - first[0], second[1] - second[0]
    # Taking one token at a time from the longer side, B on a tie, ends here in one step.
    first_kept = np.minimum(first_length, np.maximum(target - second_length, (target + 1) // 2))
    second_kept = np.minimum(second_length, target - first_kept)
    first_start = first[0] + _draw_heads(first_length - first_kept, draw, FIRST_FRONT)
    second_start = second[0] + _draw_heads(second_length - second_kept, draw, SECOND_FRONT)
    return first_start, first_start + first_kept, second_start, second_start + second_kept


def _draw_heads(num_tosses: np.ndarray, draw: Draw, stream: int) -> np.ndarray:
    """How many of so many fair coins show heads: one bit of the hash for each toss."""
    heads = np.zeros_like(num_tosses)
    for word in range(-(-int(num_tosses.max(initial=0)) // 64)):
        unused = np.clip(64 * (word + 1) - num_tosses, 0, 64)
        bits = draw(stream + 100 * word)
        bits = np.where(unused < 64, bits >> np.minimum(unused, 63).astype(np.uint64), np.uint64(0))
        heads += NUM_SET_BITS[bits.view(np.uint8)].reshape(-1, 8).sum(axis=1).astype(np.int64)
    return heads
