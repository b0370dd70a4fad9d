"""Turn token ids into masked token ids and the labels to predict.

[CLS] the cat sat [SEP]  ->  [CLS] the [MASK] sat [SEP]  with labels  -100 -100 cat -100 -100
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Literal

import numpy as np

# B rows, S positions, W words in the batch
IGNORED_LABEL = -100  # what the losses of torch and transformers skip

# Each kind of decision reads a stream of its own, so that none of them tells anything about another.
CHOICE_STREAM, BUDGET_STREAM, LAST_WORD_STREAM, ACTION_STREAM, REPLACEMENT_STREAM, SPAN_STREAM = range(6)

# How often 1, 2, 3 ... words are masked together: MacBERT's n-grams (Cui et al., 2020), and SpanBERT's
# lengths (Joshi et al., 2020), geometric with p = 0.2 up to 10, with a mean of 3.8.
SPAN_SHARES = {
    "word": np.array([1.0]),
    "ngram": np.array([0.4, 0.3, 0.2, 0.1]),
    "geometric": 0.2 * 0.8 ** np.arange(10) / (1 - 0.8**10),
}

# The finaliser of splitmix64 (Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators").
GOLDEN_STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
WORD_MASK = (1 << 64) - 1

Draw = Callable[..., np.ndarray]


@dataclass(kw_only=True)
class MaskingOptions:
    """How much is predicted and what the model sees instead (Devlin et al., 2019, section 3.1, task 1).

    A chosen token becomes [MASK] with `mask_replace_prob`, a random token with `random_replace_prob`, and
    stays as it is otherwise; `mask_replace_prob=1.0, random_replace_prob=0.0` puts [MASK] everywhere.
    Raises ValueError for a rate outside [0, 1] or replacement rates whose sum is above 1.
    """

    mlm_probability: float = 0.15
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    whole_word_mask: bool = False  # the pieces of a word are masked together
    masked_span: Literal["word", "ngram", "geometric"] = (
        "word"  # whole words masked together: see SPAN_SHARES
    )

    def __post_init__(self) -> None:
        for name in ("mlm_probability", "mask_replace_prob", "random_replace_prob"):
            check_rate(name, getattr(self, name))
        total = self.mask_replace_prob + self.random_replace_prob
        if total > 1 + 1e-9:  # 0.7 + 0.2 + 0.1 may be a hair above 1 in binary
            raise ValueError(
                f"mask_replace_prob={self.mask_replace_prob} and random_replace_prob="
                f"{self.random_replace_prob} make {total:g}: lower one of them, their sum may be 1 at most"
            )
        if self.masked_span not in SPAN_SHARES:
            raise ValueError(f"masked_span={self.masked_span!r} is not one of {', '.join(SPAN_SHARES)}")
        if self.masked_span != "word" and not self.whole_word_mask:
            raise ValueError(f"masked_span={self.masked_span} masks whole words: set whole_word_mask=true")


def check_rate(name: str, rate: object) -> None:
    """Refuse what is no share of a whole, with the option's name in the message."""
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= float(rate) <= 1:
        raise ValueError(f"{name}={rate!r} is not a share: give a number from 0 to 1, such as 0.15")


def mask_tokens(
    input_ids: np.ndarray,
    maskable: np.ndarray,
    word_ids: np.ndarray | None,
    sample_ids: np.ndarray,
    options: MaskingOptions,
    *,
    seed: int,
    epoch: int,
    mask_token_id: int,
    replacement_ids: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Hide a share of the tokens of each row and say what stood there (Devlin et al., 2019, section 3.1).

    `input_ids` (B, S) int64, `maskable` (B, S) bool, `sample_ids` (B,) integers, `replacement_ids` (any
    number,) the ids a random token is drawn from; returns masked ids and labels, both (B, S) int64, labels
    -100 where nothing is predicted. With n maskable tokens, `mlm_probability * n` are chosen, rounded up or
    down at random so that the mean is exact, and one at least unless the rate is 0. A row's result depends
    on nothing but its own tokens and (seed, epoch, sample id).

    With `whole_word_mask`, `word_ids` (B, S) is required: neighbours of equal id are one word, -1 is never
    masked. Words are taken whole, in random order, until the row's share is used up, one at least; the last
    one may go beyond it, as often as keeps the mean exact. What stands in the place of a piece is still drawn
    piece by piece. With `masked_span`, a drawn word brings the words after it along, up to a drawn length and
    no further than its segment; they count towards the same share.
    """
    draw = partial(counter_hash, seed, epoch)
    if options.whole_word_mask:
        assert word_ids is not None, "whole_word_mask needs word_ids"
        maskable = maskable & (word_ids >= 0)
    # Counting the candidates, not the columns, makes a row's masks independent of padding on either side.
    ordinals = np.cumsum(maskable, axis=1) - 1
    budget = _token_budget(maskable.sum(axis=1), sample_ids, options.mlm_probability, draw)
    if options.whole_word_mask:
        assert word_ids is not None
        shares = SPAN_SHARES[options.masked_span]
        chosen = _choose_words(maskable, word_ids, ordinals, sample_ids, budget, draw, shares)
    else:
        chosen = _choose_tokens(maskable, ordinals, sample_ids, budget, draw)
    labels = np.where(chosen, input_ids, IGNORED_LABEL)
    rows, columns = np.nonzero(chosen)
    masked_input_ids = input_ids.copy()
    masked_input_ids[rows, columns] = _replace(
        input_ids[rows, columns],
        partial(draw, sample_ids[rows], ordinals[rows, columns]),
        options,
        mask_token_id,
        replacement_ids,
    )
    return masked_input_ids, labels


def counter_hash(
    seed: int, epoch: int, sample_id: np.ndarray | int, position: np.ndarray | int, stream: int
) -> np.ndarray:
    """64 random bits for each (seed, epoch, sample id, position, stream), the same on every machine.

    `sample_id` and `position` are integers or integer arrays that broadcast against each other; the answer is
    uint64 of their common shape. There is no state: asking in another order or in another process changes
    nothing.
    """
    key = np.zeros(1, dtype=np.uint64)
    for part in (seed, epoch, stream):
        key = _mix((key ^ np.uint64(int(part) & WORD_MASK)) + GOLDEN_STEP)
    key = _mix((key ^ _as_words(sample_id)) + GOLDEN_STEP)
    bits = _mix(key + (_as_words(position) + np.uint64(1)) * GOLDEN_STEP)
    return bits.reshape(np.broadcast_shapes(np.shape(sample_id), np.shape(position)))


def unit_interval(bits: np.ndarray) -> np.ndarray:
    """uint64 bits -> float64 in [0, 1), of the same shape."""
    return (bits >> np.uint64(11)) * 2.0**-53


def content_keys(input_ids: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """A key for each row made of its own ids, for rows that carry no sample id.

    `input_ids` (B, S), `inside` (B, S) bool, False on padding; returns (B,) uint64. Equal texts get equal
    keys, whatever the padding around them.
    """
    places = _as_words(np.cumsum(inside, axis=1)) * GOLDEN_STEP
    bits = np.where(inside, _mix(_mix(_as_words(input_ids) + GOLDEN_STEP) ^ places), np.uint64(0))
    return _mix(bits.sum(axis=1, dtype=np.uint64) + GOLDEN_STEP)


def _as_words(values: np.ndarray | int) -> np.ndarray:
    # At least one dimension: numpy warns of the (wanted) overflow of scalars, not of arrays.
    return np.atleast_1d(values).astype(np.uint64)


def _mix(bits: np.ndarray) -> np.ndarray:
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND_FACTOR
    return bits ^ (bits >> np.uint64(31))


def _token_budget(num_candidates: np.ndarray, sample_ids: np.ndarray, rate: float, draw: Draw) -> np.ndarray:
    """How many tokens of each row are predicted: (B,) -> (B,)."""
    rounding = unit_interval(draw(sample_ids, 0, BUDGET_STREAM))
    budget = np.floor(rate * num_candidates + rounding).astype(np.int64)
    least = np.minimum(num_candidates, 1 if rate > 0 else 0)
    return np.clip(budget, least, num_candidates)


def _choose_tokens(
    maskable: np.ndarray, ordinals: np.ndarray, sample_ids: np.ndarray, budget: np.ndarray, draw: Draw
) -> np.ndarray:
    """The candidates with the smallest hashes, as many as the budget says: (B, S) bool."""
    if not maskable.any():
        return np.zeros_like(maskable)
    priority = draw(sample_ids[:, None], ordinals, CHOICE_STREAM)
    priority[~maskable] = WORD_MASK
    # Sorting values and comparing with the last that is in costs a quarter of sorting indices.
    last = np.take_along_axis(np.sort(priority, axis=1), np.maximum(budget - 1, 0)[:, None], axis=1)
    return maskable & (priority <= last) & (budget > 0)[:, None]


def _choose_words(
    maskable: np.ndarray,
    word_ids: np.ndarray,
    ordinals: np.ndarray,
    sample_ids: np.ndarray,
    budget: np.ndarray,
    draw: Draw,
    span_shares: np.ndarray,
) -> np.ndarray:
    """Whole words up to the budget of each row: (B, S) bool."""
    chosen = np.zeros_like(maskable)
    rows, columns = np.nonzero(maskable)
    if not len(rows):
        return chosen
    starts = np.ones_like(maskable)
    starts[:, 1:] = word_ids[:, 1:] != word_ids[:, :-1]
    runs = np.cumsum(starts).reshape(starts.shape)[rows, columns]
    is_first = np.diff(runs, prepend=-1) != 0
    word_numbers = np.cumsum(is_first) - 1
    word_rows = rows[is_first]  # (W,) from here on
    draw_word = partial(draw, sample_ids[word_rows], ordinals[rows, columns][is_first])
    priority = draw_word(CHOICE_STREAM)
    if len(span_shares) > 1:
        # A gap, such as a [SEP], ends a stretch of words, and so does the row.
        is_break = (np.diff(columns, prepend=-2) > 1) | (np.diff(rows, prepend=-1) != 0)
        lengths = 1 + np.searchsorted(
            np.cumsum(span_shares)[:-1], unit_interval(draw_word(SPAN_STREAM)), "right"
        )
        priority = _share_priority(priority, lengths, np.cumsum(is_break)[is_first])
    order = np.lexsort((priority, word_rows))
    coins = unit_interval(draw_word(LAST_WORD_STREAM))
    taken = np.empty(len(order), dtype=bool)
    taken[order] = _take_words(np.bincount(word_numbers)[order], word_rows[order], budget, coins[order])
    chosen[rows, columns] = taken[word_numbers]
    return chosen


def _share_priority(priority: np.ndarray, lengths: np.ndarray, stretches: np.ndarray) -> np.ndarray:
    """The best priority among the words whose span reaches each word, its own included: (W,) -> (W,).

    So the words of a span stand together in the order of a row, where its first word would stand alone.
    """
    best = priority.copy()
    for distance in range(1, min(int(lengths.max()), len(priority))):
        reaches = (lengths[:-distance] > distance) & (stretches[:-distance] == stretches[distance:])
        best[distance:] = np.where(
            reaches, np.minimum(best[distance:], priority[:-distance]), best[distance:]
        )
    return best


def _take_words(sizes: np.ndarray, rows: np.ndarray, budget: np.ndarray, coins: np.ndarray) -> np.ndarray:
    """Take the words of each row in order until its budget is used up, one at least: (W,) bool.

    The word that crosses the line is in with the probability left / size, which makes the mean the budget. If
    it were passed over for shorter ones, a short row would never have a long word chosen.
    """
    is_first = np.diff(rows, prepend=-1) != 0
    tokens_before = np.cumsum(sizes) - sizes
    tokens_before -= tokens_before[is_first][np.cumsum(is_first) - 1]
    left = budget[rows] - tokens_before
    taken = coins * sizes < left  # always while the word fits, never when nothing is left
    has_none = np.bincount(rows, weights=taken, minlength=len(budget)) == 0
    return taken | (is_first & has_none[rows] & (budget[rows] > 0))


def _replace(
    token_ids: np.ndarray,
    draw: Callable[[int], np.ndarray],
    options: MaskingOptions,
    mask_token_id: int,
    replacement_ids: np.ndarray,
) -> np.ndarray:
    """What the model sees in the place of each chosen token: (chosen,) -> (chosen,)."""
    action = unit_interval(draw(ACTION_STREAM))
    becomes_mask = action < options.mask_replace_prob
    becomes_random = ~becomes_mask & (action < options.mask_replace_prob + options.random_replace_prob)
    seen = np.where(becomes_mask, mask_token_id, token_ids)
    if becomes_random.any():
        drawn = draw(REPLACEMENT_STREAM)[becomes_random] % np.uint64(len(replacement_ids))
        seen[becomes_random] = replacement_ids[drawn]
    return seen
