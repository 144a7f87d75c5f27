"""What each setting of an early exit costs and saves, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.scores import Comparison, compare_labels, wilson_interval

__all__ = ["Point", "choose", "measure_point"]


@dataclass(frozen=True)
class Point:
    """One setting on all examples.

    Args:
        value: of the setting.
        correct: examples labelled right.
        comparison: with the full depth, example by example.
        mean_layers, p90_layers: passes used.
        mean_ms, median_ms: time of a run of one text.
        relative_ms: mean time in proportion to the full depth's.
        same_layers: the pass after which every text left; ``None`` if they left at several.
    """

    value: float
    correct: int
    comparison: Comparison
    mean_layers: float
    p90_layers: float
    mean_ms: float
    median_ms: float
    relative_ms: float
    same_layers: int | None = None

    @property
    def loss(self) -> float:
        """Accuracy lost against the full depth, in points."""
        return -100 * self.comparison.difference + 0.0  # no negative zero

    @property
    def loss_interval(self) -> tuple[float, float]:
        """95 % interval of the loss, in points."""
        low, high = self.comparison.interval
        return -100 * high, -100 * low

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; accuracies are shares from 0 to 1, losses are points."""
        rows, paired = self.comparison.rows, self.comparison
        return {
            "value": self.value,
            "accuracy": self.correct / rows,
            "accuracy_95": list(wilson_interval(self.correct, rows)),
            "loss": self.loss,
            "loss_95": list(self.loss_interval),
            "only_full_right": paired.only_reference,
            "only_this_right": paired.only_this,
            "mean_layers": self.mean_layers,
            "p90_layers": self.p90_layers,
            "mean_ms": self.mean_ms,
            "median_ms": self.median_ms,
            "relative_ms": self.relative_ms,
        }


def measure_point(
    value: float,
    classes: np.ndarray,
    layers: np.ndarray,
    times_ms: np.ndarray,
    full: tuple[np.ndarray, np.ndarray],
    truth: np.ndarray,
) -> Point:
    """Summarize one setting.

    Args:
        value: of the setting.
        classes, layers, times_ms: of each example, ``[rows]``.
        full: the classes and times of the full depth.
        truth: the right classes.
    """
    full_classes, full_ms = full
    return Point(
        value=value,
        correct=int(np.sum(classes == truth)),
        comparison=compare_labels(classes, full_classes, truth),
        mean_layers=float(layers.mean()),
        p90_layers=float(np.percentile(layers, 90)),
        mean_ms=float(times_ms.mean()),
        median_ms=float(np.median(times_ms)),
        relative_ms=float(times_ms.mean() / full_ms.mean()),
        same_layers=int(layers[0]) if np.all(layers == layers[0]) else None,
    )


def choose(points: Sequence[Point], max_loss: float) -> Point:
    """Return the point of fewest layers among those that lose at most ``max_loss`` points.

    Of equally cheap ones the most accurate, of these the full depth if it is one (a setting
    that saves nothing here may yet lose elsewhere), else the first. Layers decide, not times,
    so that the same data gives the same choice on every machine.

    Args:
        points: not empty; the last is that of the full depth, which loses nothing.
        max_loss: in points of accuracy, 0 or more.
    """
    allowed = [point for point in points if point.loss <= max_loss]
    full = points[-1]
    return min(allowed, key=lambda point: (point.mean_layers, -point.correct, point is not full))
