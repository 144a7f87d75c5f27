"""Accuracy, its uncertainty, and that of a difference. Neutral: both wings use it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

__all__ = ["Comparison", "compare_labels", "paired_interval", "wilson_interval"]

_Z_95 = 1.959963984540054


def wilson_interval(correct: int, rows: int) -> tuple[float, float]:
    """95 % interval of a share: ``(low, high)``, from 0 to 1.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical
    inference", JASA 22 (1927). With p = correct / rows and z = 1.96:
    (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n).
    """
    share, z2 = correct / rows, _Z_95**2
    centre = share + z2 / (2 * rows)
    spread = _Z_95 * math.sqrt(share * (1 - share) / rows + z2 / (4 * rows**2))
    scale = 1 + z2 / rows
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def paired_interval(only_first: int, only_second: int, rows: int) -> tuple[float, float]:
    """95 % interval of the second's accuracy minus the first's, on the same rows.

    Rows where both are right, or both wrong, say nothing about the difference.

    Source: D. G. Bonett and R. M. Price, "Adjusted Wald confidence interval for a difference
    of binomial proportions based on paired data", Journal of Educational and Behavioral
    Statistics 37 (2012). With p = (only_first + 1) / (n + 2) and q = (only_second + 1) / (n + 2):
    q - p ± z √((p + q - (q - p)²) / (n + 2)).
    """
    total = rows + 2
    p, q = (only_first + 1) / total, (only_second + 1) / total
    spread = _Z_95 * math.sqrt((p + q - (q - p) ** 2) / total)
    return max(-1.0, q - p - spread), min(1.0, q - p + spread)


@dataclass(frozen=True)
class Comparison:
    """One file against the reference, row by row.

    Args:
        rows: how many examples.
        agreement: share of rows to which both give the same label.
        only_reference: rows that only the reference labels right.
        only_this: rows that only this file labels right.
    """

    rows: int
    agreement: float
    only_reference: int
    only_this: int

    @property
    def difference(self) -> float:
        """Accuracy of this file minus that of the reference, as a share."""
        return (self.only_this - self.only_reference) / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the difference."""
        return paired_interval(self.only_reference, self.only_this, self.rows)


def compare_labels(labels: np.ndarray, reference: np.ndarray, truth: np.ndarray) -> Comparison:
    """Compare two files' labels, all int64 ``[rows]``."""
    right, reference_right = labels == truth, reference == truth
    return Comparison(
        rows=len(truth),
        agreement=float(np.mean(labels == reference)),
        only_reference=int(np.sum(reference_right & ~right)),
        only_this=int(np.sum(right & ~reference_right)),
    )
