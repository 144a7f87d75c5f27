from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from exporter.scores import Comparison, compare_labels, paired_interval, wilson_interval


@pytest.mark.parametrize(
    ("correct", "total", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe, Statistics in Medicine 17 (1998), table I
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_the_wilson_interval_has_the_published_values(
    correct: int, total: int, low: float, high: float
) -> None:
    assert wilson_interval(correct, total) == pytest.approx((low, high), abs=5e-5)


def test_rows_are_compared_one_by_one() -> None:
    truth = np.array([0, 1, 0, 1, 2, 2])
    reference = np.array([0, 1, 1, 0, 0, 2])
    labels = np.array([0, 0, 0, 1, 1, 2])
    found = compare_labels(labels, reference, truth)
    assert found == Comparison(rows=6, agreement=2 / 6, only_reference=1, only_this=2)
    assert found.difference == pytest.approx(1 / 6)
    assert found.interval == paired_interval(1, 2, 6)


def test_a_file_equal_to_the_reference_has_no_difference_but_an_interval() -> None:
    same = np.array([0, 1, 1])
    found = compare_labels(same, same, np.array([0, 0, 1]))
    assert (found.difference, found.agreement) == (0.0, 1.0)
    low, high = found.interval
    assert low == -high < 0


def test_the_paired_interval_mirrors_and_stays_in_range() -> None:
    for first, second in itertools.product(range(6), repeat=2):
        low, high = paired_interval(first, second, 10)
        assert -1 <= low < (second - first) / 12 < high <= 1
        assert paired_interval(second, first, 10) == pytest.approx((-high, -low))


@pytest.mark.parametrize(("rows", "p", "q"), [(60, 0.05, 0.1), (60, 0.2, 0.2), (200, 0.02, 0.01)])
def test_the_paired_interval_covers_the_true_difference_about_95_times_in_100(
    rows: int, p: float, q: float
) -> None:
    """Summed over every outcome with its probability: no drawing."""
    covered = 0.0
    for first in range(rows + 1):
        for second in range(rows + 1 - first):
            low, high = paired_interval(first, second, rows)
            if low <= q - p <= high:
                rest = rows - first - second
                covered += math.exp(
                    math.lgamma(rows + 1)
                    - math.lgamma(first + 1)
                    - math.lgamma(second + 1)
                    - math.lgamma(rest + 1)
                    + first * math.log(p)
                    + second * math.log(q)
                    + rest * math.log(1 - p - q)
                )
    assert 0.94 <= covered <= 0.985
