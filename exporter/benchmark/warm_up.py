"""When a model runs at its steady speed."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MAXIMUM_ROUNDS", "STABLE_RUNS", "is_stable"]

STABLE_RUNS = 3
_WITHIN = 0.10
MAXIMUM_ROUNDS = 30
"""After so many rounds measuring begins, stable or not; the record then says so."""


def is_stable(samples_ms: Sequence[float], minimum: int) -> bool:
    """Whether three runs in a row were within 10 % of each other, after ``minimum`` in all."""
    if len(samples_ms) < max(minimum, STABLE_RUNS):
        return False
    windows = zip(*(samples_ms[start:] for start in range(STABLE_RUNS)), strict=False)
    return any(max(window) <= min(window) * (1 + _WITHIN) for window in windows)
