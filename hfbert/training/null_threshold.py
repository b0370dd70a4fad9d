"""Turn the scores of answers and of no answer into the threshold between the two.

no answer less best answer [-3, 1, 5], points if answered [1, 0, 0], points if not [0, 1, 1]  ->  (-3, 1.0)
"""

from collections.abc import Sequence
from itertools import groupby


def best_null_threshold(
    differences: Sequence[float], if_answered: Sequence[float], if_null: Sequence[float]
) -> tuple[float, float]:
    """The threshold with the highest mean score when "no answer" is said above it, and that mean.

    As the evaluation of SQuAD 2.0 searches for it (Rajpurkar et al. 2018): among the differences themselves,
    and below all of them. The lowest of equally good ones.
    """
    rows = sorted(zip(differences, if_answered, if_null, strict=True))
    total = sum(if_null)
    best, threshold = total, rows[0][0] - 1.0
    for difference, group in groupby(rows, key=lambda row: row[0]):
        total += sum(answered - null for _, answered, null in group)
        if total > best:
            best, threshold = total, difference
    return threshold, best / len(rows)
