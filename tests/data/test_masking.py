"""Which tokens are predicted and what stands there: chi-square tests, hand-worked rows, invariants."""

import numpy as np
import pytest
from scipy import stats

from hfbert.data.masking import (
    GOLDEN_STEP,
    IGNORED_LABEL,
    SPAN_SHARES,
    MaskingOptions,
    _mix,
    _share_priority,
    _take_words,
    content_keys,
    counter_hash,
    mask_tokens,
    unit_interval,
)

CLS, SEP, MASK = 2, 3, 4
WORDS = np.arange(10, 5010)


def make_rows(num_rows, length, seed=0):
    generator = np.random.default_rng(seed)
    input_ids = generator.choice(WORDS, size=(num_rows, length))
    input_ids[:, 0], input_ids[:, -1] = CLS, SEP
    return input_ids


def mask(input_ids, word_ids=None, maskable=None, sample_ids=None, seed=0, epoch=0, **options):
    return mask_tokens(
        input_ids,
        input_ids >= 10 if maskable is None else maskable,
        word_ids,
        np.arange(len(input_ids)) if sample_ids is None else sample_ids,
        MaskingOptions(whole_word_mask=word_ids is not None, **options),
        seed=seed,
        epoch=epoch,
        mask_token_id=MASK,
        replacement_ids=WORDS,
    )


def make_words(num_rows, length, seed=0):
    """Words of one to four pieces, -1 on both ends."""
    generator = np.random.default_rng(seed)
    word_ids = np.cumsum(generator.random((num_rows, length)) < 0.5, axis=1)
    word_ids[:, 0] = word_ids[:, -1] = -1
    return word_ids


def is_uniform(counts):
    return stats.chisquare(counts).pvalue > 1e-4


def test_hash_is_uniform_over_each_of_its_arguments():
    numbers = np.arange(100_000)
    for bits in (
        counter_hash(0, 0, numbers, 0, 0),
        counter_hash(0, 0, 0, numbers, 0),
        np.concatenate([counter_hash(seed, 0, 0, 0, 0).reshape(1) for seed in range(5000)]),
        np.concatenate([counter_hash(0, epoch, 0, 0, 0).reshape(1) for epoch in range(5000)]),
        np.concatenate([counter_hash(0, 0, 0, 0, stream).reshape(1) for stream in range(5000)]),
    ):
        for shift in (0, 24, 58):  # low, middle and high bits
            assert is_uniform(np.bincount((bits >> np.uint64(shift)).astype(np.uint64) % 64, minlength=64))


@pytest.mark.parametrize("neighbour", ["seed", "epoch", "sample", "position", "stream"])
def test_hashes_of_neighbouring_keys_are_independent(neighbour):
    samples = np.arange(60_000)
    step = {name: int(name == neighbour) for name in ("seed", "epoch", "sample", "position", "stream")}
    first = unit_interval(counter_hash(7, 1, samples * 2, 3, 1))
    second = unit_interval(
        counter_hash(
            7 + step["seed"],
            1 + step["epoch"],
            samples * 2 + step["sample"],
            3 + step["position"],
            1 + step["stream"],
        )
    )
    table = np.histogram2d(first, second, bins=8)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-4


def test_hash_has_the_shape_of_its_arguments_and_no_state():
    grid = counter_hash(1, 2, np.arange(3)[:, None], np.arange(5), 0)
    assert grid.shape == (3, 5) and grid.dtype == np.uint64
    assert counter_hash(1, 2, 2, 4, 0).shape == ()
    assert counter_hash(1, 2, 2, 4, 0) == grid[2, 4]
    assert len(np.unique(grid)) == 15


def test_hash_of_a_known_key_never_changes():
    # The finaliser after one step from 0 is the first output of splitmix64 with seed 0, a published number.
    assert int(_mix(np.zeros(1, dtype=np.uint64) + GOLDEN_STEP)[0]) == 0xE220A8397B1DCDAF


def test_negative_and_huge_seeds_are_seeds():
    hashes = [int(counter_hash(seed, 0, 0, 0, 0)) for seed in (-1, 0, 1, 2**63, 2**80)]
    assert len(set(hashes[:4])) == 4


def test_share_of_chosen_tokens_is_exact_on_average():
    _, labels = mask(make_rows(40_000, 25))  # 23 candidates: 3.45 a row
    chosen = (labels != IGNORED_LABEL).sum(axis=1)
    assert set(chosen) == {3, 4}
    assert abs(chosen.mean() - 0.15 * 23) < 0.01


def test_every_position_is_chosen_equally_often():
    _, labels = mask(make_rows(40_000, 26))
    counts = (labels != IGNORED_LABEL).sum(axis=0)
    assert counts[0] == counts[-1] == 0
    assert is_uniform(counts[1:-1])


def test_pairs_of_neighbours_are_chosen_together_as_often_as_any_other():
    _, labels = mask(make_rows(60_000, 22), mlm_probability=0.3)  # 6 of 20, exactly
    chosen = (labels != IGNORED_LABEL)[:, 1:-1]
    expected = 6 * 5 / (20 * 19)
    for distance in (1, 2, 7):
        share = (chosen[:, distance:] & chosen[:, :-distance]).mean()
        assert abs(share - expected) < 0.003


def test_one_token_at_least_is_chosen_in_50_draws_of_a_short_sentence():
    row = np.array([[CLS, 10, 11, 12, 13, SEP]])  # A01
    for epoch in range(50):
        _, labels = mask(row, epoch=epoch)
        assert (labels != IGNORED_LABEL).sum() == 1


def test_rate_0_chooses_nothing_and_rate_1_everything():
    rows = make_rows(50, 20)
    assert (mask(rows, mlm_probability=0.0)[1] == IGNORED_LABEL).all()
    assert (mask(rows, mlm_probability=1.0)[1][:, 1:-1] == rows[:, 1:-1]).all()


def test_rows_without_candidates_are_left_alone():
    rows = np.array([[CLS, SEP, SEP], [CLS, 10, SEP]])
    for word_ids in (None, np.array([[-1, -1, -1], [-1, 0, -1]])):
        masked, labels = mask(rows, word_ids)
        assert (labels[0] == IGNORED_LABEL).all() and (masked[0] == rows[0]).all()
        assert labels[1, 1] == 10
    masked, labels = mask(rows[:1], rows[:1] * 0 - 1)
    assert (labels == IGNORED_LABEL).all()


@pytest.mark.parametrize("whole_word", [False, True])
def test_chosen_tokens_are_masked_random_and_kept_80_10_10(whole_word):
    rows = make_rows(11_000, 128)  # A05: over 200,000 chosen tokens
    masked, labels = mask(rows, make_words(*rows.shape) if whole_word else None)
    chosen = labels != IGNORED_LABEL
    assert chosen.sum() > 200_000
    assert (labels[chosen] == rows[chosen]).all()
    assert (masked[~chosen] == rows[~chosen]).all()
    is_mask, is_kept = masked[chosen] == MASK, masked[chosen] == rows[chosen]
    shares = np.array([is_mask.mean(), (~is_mask & ~is_kept).mean(), is_kept.mean()])
    assert np.abs(shares - [0.8, 0.1, 0.1]).max() < 0.01
    drawn = masked[chosen][~is_mask & ~is_kept]
    assert np.isin(drawn, WORDS).all()
    assert is_uniform(np.bincount((drawn - 10) // 100, minlength=50))


def test_80_10_10_is_drawn_for_each_piece_of_a_word():
    rows = make_rows(4000, 42)
    word_ids = np.repeat(np.arange(21), 2)[None].repeat(4000, axis=0)  # words of two pieces
    word_ids[:, :2] = word_ids[:, -2:] = -1
    masked, labels = mask(rows, word_ids)
    pieces = (masked == MASK)[labels != IGNORED_LABEL].reshape(-1, 2)
    mixed = (pieces[:, 0] != pieces[:, 1]).mean()
    assert abs(mixed - 2 * 0.8 * 0.2) < 0.02


def test_everything_becomes_the_mask_one_flag_away():
    masked, labels = mask(make_rows(200, 50), mask_replace_prob=1.0, random_replace_prob=0.0)
    assert (masked[labels != IGNORED_LABEL] == MASK).all()


def test_everything_becomes_random_or_stays_when_asked():
    rows = make_rows(2000, 50)
    masked, labels = mask(rows, mask_replace_prob=0.0, random_replace_prob=0.0)
    assert (masked == rows).all() and (labels != IGNORED_LABEL).any()
    masked, labels = mask(rows, mask_replace_prob=0.0, random_replace_prob=1.0)
    assert (masked != MASK).all()
    assert (masked == rows)[labels != IGNORED_LABEL].mean() < 0.01  # a random token may be the same one


def test_no_word_is_partly_chosen_and_the_share_is_kept():
    rows, word_ids = make_rows(3000, 64), make_words(3000, 64)
    _, labels = mask(rows, word_ids)
    chosen = labels != IGNORED_LABEL
    same_word = (word_ids[:, 1:] == word_ids[:, :-1]) & (word_ids[:, 1:] >= 0)
    assert (chosen[:, 1:] == chosen[:, :-1])[same_word].all()
    assert not chosen[word_ids < 0].any()
    counts = chosen.sum(axis=1)
    assert counts.min() >= 1
    assert abs(counts.mean() - 9.3) < 0.1  # 62 * 0.15


def test_words_are_taken_as_a_walk_in_random_order_takes_them():
    generator = np.random.default_rng(5)
    rows = np.sort(generator.integers(0, 200, size=2000))
    sizes, coins = generator.integers(1, 7, size=2000), generator.random(2000)
    budget = generator.integers(0, 20, size=200)
    taken = _take_words(sizes, rows, budget, coins)
    for row in range(200):  # the plain loop, one word at a time
        left, expected = budget[row], []
        for size, coin in zip(sizes[rows == row], coins[rows == row], strict=True):
            expected.append(bool(left > 0 and (size <= left or coin < left / size)))
            left -= size
        if expected and not any(expected) and budget[row] > 0:
            expected[0] = True
        assert taken[rows == row].tolist() == expected


def test_a_long_word_in_a_short_row_is_chosen_too():
    row = np.array([[CLS, 10, 11, 12, 13, 14, SEP]])
    word_ids = np.array(
        [[-1, 0, 1, 2, 2, 2, -1]]
    )  # the share is one token at most and the last word has three
    seen = {tuple(np.flatnonzero(mask(row, word_ids, epoch=e)[1][0] != IGNORED_LABEL)) for e in range(60)}
    assert (3, 4, 5) in seen and (1,) in seen and (2,) in seen


def test_a_single_long_word_is_chosen_whole():
    row = np.array([[CLS, 10, 11, 12, 13, 14, SEP]])
    _, labels = mask(row, np.array([[-1, 0, 0, 0, 0, 0, -1]]))
    assert labels.tolist() == [[-100, 10, 11, 12, 13, 14, -100]]


def test_equal_word_ids_in_both_segments_are_two_words():
    row = np.array([[CLS, 10, 11, SEP, 12, 13, SEP]])
    word_ids = np.array([[-1, 0, 0, -1, 0, 0, -1]])
    seen = {tuple(np.flatnonzero(mask(row, word_ids, epoch=e)[1][0] != IGNORED_LABEL)) for e in range(40)}
    assert seen == {(1, 2), (4, 5)}


@pytest.mark.parametrize("whole_word", [False, True])
def test_a_row_depends_on_no_other_row_nor_on_padding_nor_on_order(whole_word):
    rows = make_rows(16, 40)
    word_ids = make_words(16, 40) if whole_word else None
    masked, labels = mask(rows, word_ids)
    order = np.random.default_rng(1).permutation(16)
    shuffled = mask(rows[order], None if word_ids is None else word_ids[order], sample_ids=order)
    assert (shuffled[0] == masked[order]).all() and (shuffled[1] == labels[order]).all()
    for left, right in ((0, 24), (9, 0)):
        wide = np.pad(rows, ((0, 0), (left, right)))
        wide_words = (
            None if word_ids is None else np.pad(word_ids, ((0, 0), (left, right)), constant_values=-1)
        )
        for row in range(16):
            words = None if wide_words is None else wide_words[row : row + 1]
            alone = mask(wide[row : row + 1], words, sample_ids=np.array([row]))
            assert (alone[0][0, left : left + 40] == masked[row]).all()
            assert (alone[1][0, left : left + 40] == labels[row]).all()


def test_seed_epoch_and_sample_id_each_give_other_masks():
    rows = make_rows(64, 64)
    base = mask(rows)[1]
    for other in (mask(rows, seed=1), mask(rows, epoch=1), mask(rows, sample_ids=np.arange(64) + 1)):
        both = ((other[1] != IGNORED_LABEL) & (base != IGNORED_LABEL)).sum()
        assert abs(both / (base != IGNORED_LABEL).sum() - 0.15) < 0.06  # as often as chance has it


def test_input_is_not_changed():
    rows = make_rows(4, 20)
    copy = rows.copy()
    mask(rows)
    assert (rows == copy).all()


def test_content_keys_ignore_padding_and_see_order():
    rows = make_rows(4, 10)
    inside = np.ones_like(rows, dtype=bool)
    keys = content_keys(rows, inside)
    for pad in ((3, 0), (0, 3)):
        wide = np.pad(rows, ((0, 0), pad))
        assert (content_keys(wide, np.pad(inside, ((0, 0), pad))) == keys).all()
    assert len(np.unique(np.append(keys, content_keys(rows[:, ::-1], inside)))) == 8


@pytest.mark.parametrize(
    "options",
    [
        {"mlm_probability": 1.5},
        {"mlm_probability": -0.1},
        {"mlm_probability": float("nan")},
        {"mlm_probability": "0.15"},
        {"mlm_probability": True},
        {"mask_replace_prob": 2},
        {"random_replace_prob": None},
        {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
    ],
)
def test_rates_that_are_no_shares_are_refused_in_one_line_naming_them(options):
    with pytest.raises(ValueError, match=next(reversed(options))) as error:
        MaskingOptions(**options)
    assert "\n" not in str(error.value)


def test_replacement_rates_that_fill_the_whole_are_accepted():
    for share in (0.1, 0.2, 0.3, 0.6, 0.7):
        MaskingOptions(mask_replace_prob=1 - share, random_replace_prob=share)


def span_rows(masked_span: str, count: int, width: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Labels and word ids of rows of two-token words with a gap in the middle, masked at 15 %."""
    word_ids = np.repeat(np.arange(width // 2), 2)[None].repeat(count, axis=0)
    word_ids[:, width // 2 : width // 2 + 2] = -1
    ids = np.full((count, width), 9)
    options = MaskingOptions(whole_word_mask=True, masked_span=masked_span)  # type: ignore[arg-type]
    _, labels = mask_tokens(
        ids,
        word_ids >= 0,
        word_ids,
        np.arange(count),
        options,
        seed=5,
        epoch=0,
        mask_token_id=4,
        replacement_ids=np.arange(5, 50),
    )
    return labels, word_ids


@pytest.mark.parametrize("masked_span", ["word", "ngram", "geometric"])
def test_spans_keep_the_budget_and_break_no_word(masked_span: str) -> None:
    labels, word_ids = span_rows(masked_span, 2000)
    chosen = labels != -100
    assert chosen.sum() / (word_ids >= 0).sum() == pytest.approx(0.15, abs=0.002)
    assert (chosen[:, ::2] == chosen[:, 1::2]).all() and not chosen[word_ids < 0].any()


@pytest.mark.parametrize(("masked_span", "mean"), [("ngram", 2.0), ("geometric", 3.8)])
def test_the_published_lengths_of_spans_have_the_published_mean(masked_span: str, mean: float) -> None:
    shares = SPAN_SHARES[masked_span]
    assert shares.sum() == pytest.approx(1)
    assert (shares * np.arange(1, len(shares) + 1)).sum() == pytest.approx(mean, abs=0.01)


def test_the_words_of_a_span_are_taken_together_as_a_walk_over_spans_takes_them() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        count = int(draw.integers(1, 30))
        priority = draw.permutation(count).astype(np.uint64)
        lengths = draw.integers(1, 6, count)
        stretches = np.sort(draw.integers(0, 3, count))
        walked: list[int] = []
        for first in np.argsort(priority):
            for word in range(first, min(first + lengths[first], count)):
                if stretches[word] == stretches[first] and word not in walked:
                    walked.append(word)
        shared = _share_priority(priority, lengths, stretches)
        assert np.argsort(shared, kind="stable").tolist() == walked
