"""Turn documents of token ids into sentence pairs, planned anew for every epoch.

[[11, 12], [13], [14, 15]]  ->  [CLS] 11 12 13 [SEP] 14 15 [SEP], next_sentence_label 0
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial

import numpy as np
from torch.utils.data import Dataset

from hfbert.data.masking import IGNORED_LABEL, check_rate, counter_hash, unit_interval
from hfbert.data.tokenizer import TokenizedCorpus

# D documents of the split that have text, P samples of an epoch
IS_NEXT, IS_RANDOM = 0, 1
NUM_SPECIAL_TOKENS = 3  # [CLS] A [SEP] B [SEP]
SHORTEST_MAX_LENGTH = 8

# Streams of the hash; those of masking.py are below 100.
SHORT, LENGTH, SPLIT, NEXT, DOCUMENT, SENTENCE, FIRST_FRONT, SECOND_FRONT = range(100, 108)

NUM_SET_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1)

Draw = Callable[..., np.ndarray]


@dataclass(kw_only=True)
class PairOptions:
    """Shape of the pairs; the defaults are the paper's (Devlin et al., 2019, A.2) and its data builder's.

    `max_length` counts [CLS] and both [SEP]s and is 8 at least, so that a pair has room for five pieces;
    `short_seq_prob` is the share of samples of a random shorter length, `nsp_probability` the share of pairs
    whose B is the true next text. Raises ValueError for a shorter `max_length` and shares outside [0, 1].
    """

    max_length: int = 128
    short_seq_prob: float = 0.1
    nsp_probability: float = 0.5

    def __post_init__(self) -> None:
        if self.max_length < SHORTEST_MAX_LENGTH:
            raise ValueError(
                f"max_length={self.max_length} is too small for a pair: give {SHORTEST_MAX_LENGTH} or more "
                f"({NUM_SPECIAL_TOKENS} positions are [CLS] and [SEP]s)"
            )
        check_rate("short_seq_prob", self.short_seq_prob)
        check_rate("nsp_probability", self.nsp_probability)


class SentencePairs(Dataset[dict[str, object]]):
    """Samples for masked LM and next sentence prediction (Devlin et al., 2019, section 3.1 and A.2).

    The sentences of a document are gathered until the target length is reached or the document ends; A is a
    random number of them from the front, B the rest (label 0) or text from another document (label 1), and
    then the rest is put back and opens the next sample. What is too long loses tokens from its longer side,
    each from the front or the back by a coin toss. Two things differ from the paper's data builder:

    * The coin is tossed whatever the sentences are like, and a chunk takes a second sentence whenever the
      document has one. There, a long first sentence always got a random B, so length told the label. A
      sentence with none left to pair it with becomes `[CLS] A [SEP]` for masked LM alone, with label -100.
    * A random B is as long as the true B would have been, to the nearest end of a sentence, so that its
      length says little of the label: its document is uniform among the others that have as many
      tokens (among all others if none has), its first sentence uniform among those with as many tokens from
      there on. There, a random B was whatever was left of a document, often much shorter than a true one.

    Every decision is a function of (seed, epoch, document number): workers, processes and order change
    nothing.

        pairs = SentencePairs(corpus, PairOptions(max_length=128), cls_token_id=2, sep_token_id=3, seed=0)
        for epoch in range(3):
            pairs.set_epoch(epoch)  # before the DataLoader is iterated: workers get a copy
            ...

    `documents` are the document numbers to use, all by default; random B's come from these too. Raises
    ValueError when they hold no text, do not exist, or are too few for a random B.
    """

    def __init__(
        self,
        corpus: TokenizedCorpus,
        options: PairOptions,
        cls_token_id: int,
        sep_token_id: int,
        seed: int,
        documents: np.ndarray | None = None,
    ) -> None:
        self.options = options
        self.cls_token_id = cls_token_id
        self.sep_token_id = sep_token_id
        self.seed = seed
        self._tokens = corpus.tokens
        self._text = _find_text(corpus, documents)
        num_documents = len(self._text.numbers)
        if num_documents == 0:
            raise ValueError("no document has any text: check the corpus and the share of held-out documents")
        if num_documents == 1 and options.nsp_probability < 1:
            raise ValueError(
                "next sentence prediction needs two documents or more, to take a random second text from "
                "another one, and there is one: separate documents by blank lines, or set nsp_probability=1.0"
            )
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Plan the samples of this epoch."""
        self._plan = _make_plan(self._text, self.options, partial(counter_hash, self.seed, epoch))

    def __len__(self) -> int:
        """Samples in this epoch; the number differs a little from epoch to epoch."""
        return len(self._plan.label)

    def length(self, sample: int) -> int:
        """Positions of a sample of this epoch, special tokens included."""
        plan = self._plan
        num_second = int(plan.second_end[sample] - plan.second_start[sample])
        return int(plan.first_end[sample] - plan.first_start[sample]) + (num_second + 3 if num_second else 2)

    def __getitem__(self, sample: int) -> dict[str, object]:
        """`input_ids`, `token_type_ids`, `special_tokens_mask` (S,) int64; label and `sample_id` as int.

        Raises IndexError when there is no such sample in this epoch.
        """
        if not 0 <= sample < len(self):
            raise IndexError(f"sample {sample} of {len(self)}")
        plan = self._plan
        first = self._tokens[plan.first_start[sample] : plan.first_end[sample]]
        second = self._tokens[plan.second_start[sample] : plan.second_end[sample]]
        middle = len(first) + 1
        length = middle + 1 + (len(second) + 1 if len(second) else 0)
        separators = [middle, length - 1]
        input_ids = np.empty(length, dtype=np.int64)
        input_ids[0] = self.cls_token_id
        input_ids[1:middle] = first
        input_ids[middle + 1 : middle + 1 + len(second)] = second
        input_ids[separators] = self.sep_token_id
        token_type_ids = np.zeros(length, dtype=np.int64)
        token_type_ids[middle + 1 :] = 1
        special_tokens_mask = np.zeros(length, dtype=np.int64)
        special_tokens_mask[[0, *separators]] = 1
        return {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "special_tokens_mask": special_tokens_mask,
            "next_sentence_label": int(plan.label[sample]),
            "sample_id": int(sample),
        }


@dataclass(frozen=True, kw_only=True)
class PairStatistics:
    """What a run prints of its pairs; `str()` gives the line."""

    num_documents: int
    num_documents_with_pairs: int
    num_pairs: int
    num_random_pairs: int
    num_single_segments: int
    mean_length: float

    @property
    def random_share(self) -> float:
        return self.num_random_pairs / self.num_pairs if self.num_pairs else 0.0

    def __str__(self) -> str:
        counts = (
            f"documents: {self.num_documents:,}, with >= 2 sentences: {self.num_documents_with_pairs:,}, "
            f"next-sentence pairs: {self.num_pairs:,}"
        )
        if not self.num_pairs:
            return (
                f"warning: {counts}; only masked LM is trained. A blank line ends a document: "
                "keep the sentences of one document on lines without blank ones between them"
            )
        return (
            f"{counts} ({self.random_share:.1%} random), single sentences for masked LM only: "
            f"{self.num_single_segments:,}, mean length: {self.mean_length:.1f}"
        )


def pair_statistics(dataset: SentencePairs) -> PairStatistics:
    """Counts over this epoch's samples, and their mean length in positions."""
    text, plan = dataset._text, dataset._plan
    num_tokens = plan.first_end - plan.first_start + plan.second_end - plan.second_start
    is_pair = plan.label != IGNORED_LABEL
    return PairStatistics(
        num_documents=len(text.numbers),
        num_documents_with_pairs=int((text.last - text.first > 1).sum()),
        num_pairs=int(is_pair.sum()),
        num_random_pairs=int((plan.label == IS_RANDOM).sum()),
        num_single_segments=int((~is_pair).sum()),
        mean_length=float(np.mean(num_tokens + np.where(is_pair, NUM_SPECIAL_TOKENS, 2))),
    )


@dataclass
class _Text:
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
class _Plan:
    """Spans into the tokens and the label of each sample, all (P,) int64."""

    document: np.ndarray
    first_start: np.ndarray
    first_end: np.ndarray
    second_start: np.ndarray
    second_end: np.ndarray
    label: np.ndarray


def _find_text(corpus: TokenizedCorpus, documents: np.ndarray | None) -> _Text:
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
    return _Text(bounds, numbers[has_text], first[has_text], last[has_text])


def _make_plan(text: _Text, options: PairOptions, draw: Draw) -> _Plan:
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
    return _Plan(*(np.concatenate([getattr(p, f.name) for p in parts])[order] for f in fields(_Plan)))


def _plan_chunk(
    text: _Text, options: PairOptions, document: np.ndarray, start: np.ndarray, draw: Draw
) -> tuple[_Plan, np.ndarray]:
    """The next sample of each document, and the sentence its following one starts with."""
    bounds, last = text.bounds, text.last[document]
    target = _draw_target(options, draw)
    end = _gather(bounds, start, target, last)
    end = np.maximum(end, np.minimum(start + 2, last))
    is_single = end - start == 1
    split = start + 1 + _draw_below(end - start - 1, draw(SPLIT))
    is_random = ~is_single & (unit_interval(draw(NEXT)) >= options.nsp_probability)
    second_start, second_end = bounds[split], bounds[end]
    if is_random.any():
        other_start, other_end = _draw_other(text, document, second_end - second_start, draw)
        second_start = np.where(is_random, other_start, second_start)
        second_end = np.where(is_random, other_end, second_end)
    label = np.where(is_single, IGNORED_LABEL, np.where(is_random, IS_RANDOM, IS_NEXT))
    # A single segment has one [SEP] less.
    spans = _truncate((bounds[start], bounds[split]), (second_start, second_end), target + is_single, draw)
    return _Plan(document, *spans, label), np.where(is_random, split, end)


def _draw_target(options: PairOptions, draw: Draw) -> np.ndarray:
    """Tokens of A and B together: the longest that fits or, now and then, any number from 2 to that."""
    longest = options.max_length - NUM_SPECIAL_TOKENS
    is_short = unit_interval(draw(SHORT)) < options.short_seq_prob
    return np.where(is_short, 2 + _draw_below(np.asarray(longest - 1), draw(LENGTH)), longest)


def _draw_other(
    text: _Text, document: np.ndarray, wanted: np.ndarray, draw: Draw
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


Span = tuple[np.ndarray, np.ndarray]


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
