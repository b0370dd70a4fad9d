"""The threshold of no answer, against every threshold there is."""

import random

import pytest

from hfbert.training.null_threshold import best_null_threshold


def mean_score(threshold: float, rows: list[tuple[float, float, float]]) -> float:
    return sum(null if difference > threshold else answered for difference, answered, null in rows) / len(
        rows
    )


def test_no_threshold_does_better() -> None:
    draw = random.Random(0)
    for _ in range(300):
        rows = [
            (float(draw.randint(-3, 3)), draw.choice([0.0, 0.5, 1.0]), draw.choice([0.0, 1.0]))
            for _ in range(draw.randint(1, 9))
        ]
        threshold, score = best_null_threshold(*zip(*rows, strict=True))
        assert score == pytest.approx(mean_score(threshold, rows))
        everywhere = [-4.5, *(row[0] for row in rows)]
        assert score == pytest.approx(max(mean_score(one, rows) for one in everywhere))


def test_the_example_of_the_module_holds() -> None:
    assert best_null_threshold([-3, 1, 5], [1, 0, 0], [0, 1, 1]) == (-3, 1.0)


def test_all_that_cannot_be_answered_is_not_answered() -> None:
    threshold, score = best_null_threshold([-7.0, 2.0], [0.0, 0.0], [1.0, 1.0])
    assert threshold < -7.0 and score == 1.0
