"""Decide from comparisons whether a file passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from exporter.verification.comparison import CaseReport, OutputReport, json_number

__all__ = ["Status", "Verdict", "Verification", "judge", "judge_relative", "relative_errors"]

Status = Literal["passed", "failed", "not run"]


@dataclass(frozen=True)
class Verdict:
    """``passed`` or ``failed``, with the reasons for a failure."""

    status: Status
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """All cases of one file, what they were held to, and the verdict.

    Args:
        cases: the comparisons.
        verdict: what follows from them.
        atol: largest absolute difference allowed, where that was the measure.
        tolerance: largest relative error allowed, where that was.
    """

    cases: tuple[CaseReport, ...]
    verdict: Verdict
    atol: float | None = None
    tolerance: float | None = None

    @property
    def worst(self) -> float:
        """Largest absolute difference of real numbers over all cases."""
        return max((case.worst for case in self.cases), default=float("inf"))

    @property
    def relative_error(self) -> float:
        """Largest of :func:`relative_errors`; infinite where nothing was compared."""
        return max(relative_errors(self.cases).values(), default=float("inf"))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; an infinite difference is ``null``."""
        return {
            "verdict": self.verdict.status,
            "reasons": list(self.verdict.reasons),
            "atol": self.atol,
            "tolerance": self.tolerance,
            "worst_abs_error": json_number(self.worst),
            "mean_abs_error": self._mean(lambda output: output.mean_abs),
            "relative_error": json_number(self.relative_error),
            "cosine": min(self._values(lambda output: output.cosine), default=None),
            "top1_agreement": self._mean(lambda output: output.top1_agreement),
            "cases": [case.to_dict() for case in self.cases],
        }

    def _values(self, metric: Callable[[OutputReport], float | None]) -> list[float]:
        found = (metric(output) for case in self.cases for output in case.outputs)
        return [value for value in found if value is not None]

    def _mean(self, metric: Callable[[OutputReport], float | None]) -> float | None:
        """Mean over all outputs of all cases, each weighted by its number of elements."""
        outputs = [output for case in self.cases for output in case.outputs]
        pairs = [(metric(output), output.size) for output in outputs]
        known = [(value, size) for value, size in pairs if value is not None and size]
        total = sum(size for _, size in known)
        mean = sum(value * size for value, size in known) / total if total else None
        return json_number(mean)


def judge(cases: tuple[CaseReport, ...], atol: float) -> Verification:
    """Decide: every output of every case present, of equal shape, and within ``atol``.

    Whole numbers and truth values are equal or not: ``atol`` lets none of them differ. No case
    at all is a failure: nothing was shown.

    Raises:
        ValueError: ``atol`` is negative or not finite, so that nothing or everything passes.
    """
    if not (np.isfinite(atol) and atol >= 0):
        raise ValueError(f"atol must be a finite number of at least 0, not {atol}")
    reasons = _incomparable(cases)
    reasons += [
        f"{case.case}: {reason}"
        for case in cases
        for output in case.outputs
        if (reason := _beyond(output, atol)) is not None
    ]
    return Verification(cases, _verdict(reasons), atol=atol)


def _beyond(output: OutputReport, atol: float) -> str | None:
    """Say how an output differs too much, if it does."""
    if output.differing:
        return _mismatch(output.output, output.differing, output.size)
    if output.max_abs is None or output.max_abs <= atol:
        return None
    return (
        f"{output.output} (up to {output.largest:.3g}) differs by {output.max_abs:.3g}, "
        f"more than {atol:.3g}"
    )


def judge_relative(cases: tuple[CaseReport, ...], tolerance: float) -> Verification:
    """Decide: as :func:`judge`, with the :func:`relative_errors` within ``tolerance``.

    Of whole numbers and truth values, so large a share may differ.

    Raises:
        ValueError: ``tolerance`` is negative or not finite.
    """
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise ValueError(f"tolerance must be a finite number of at least 0, not {tolerance}")
    reasons = _incomparable(cases)
    outputs = _by_name(cases)
    for name, error in relative_errors(cases).items():
        if error <= tolerance:
            continue
        if (differing := _differing(outputs[name])) is not None:
            what = f"{_mismatch(name, *differing)}, {error:.3g} of them"
        else:
            what = f"{name} has a relative error of {error:.3g}"
        reasons.append(f"{what}, more than {tolerance:.3g}")
    return Verification(cases, _verdict(reasons), tolerance=tolerance)


def _incomparable(cases: tuple[CaseReport, ...]) -> list[str]:
    """Say what keeps outputs from being compared at all."""
    reasons = [] if cases else ["no case was run"]
    for case in cases:
        reasons += [f"{case.case}: output {name!r} is missing" for name in case.missing]
        reasons += [f"{case.case}: output {name!r} is not in the source" for name in case.extra]
        if not (case.outputs or case.missing):
            reasons.append(f"{case.case}: there is no output to compare")
        reasons += [
            f"{case.case}: {output.output} has shape {list(output.candidate_shape)}, "
            f"not {list(output.shape)}"
            for output in case.outputs
            if not output.comparable
        ]
    return reasons


def _verdict(reasons: Sequence[str]) -> Verdict:
    return Verdict("failed" if reasons else "passed", tuple(reasons))


def relative_errors(cases: Sequence[CaseReport]) -> dict[str, float]:
    """Return, per output, how large the difference is in proportion to the reference.

    ``sqrt(sum((a - b)²) / sum(a²))`` over all elements of all cases: a short or quiet case
    does not decide alone. What is not finite in the reference adds nothing where the other
    side has the same. Infinite where a difference is not finite or shapes differ, 0 where both
    are zero throughout. Of whole numbers and truth values, the share of elements that differ.
    """
    return {name: _relative_error(outputs) for name, outputs in _by_name(cases).items()}


def _relative_error(outputs: Sequence[OutputReport]) -> float:
    if (whole := _differing(outputs)) is not None:
        differing, size = whole
        return differing / size if size else 0.0
    difference = reference = 0.0
    for output in outputs:
        if output.rms is None or output.rms_reference is None:
            return math.inf
        difference += output.size * output.rms**2
        reference += (output.size - output.nonfinite_reference) * output.rms_reference**2
    if not difference:
        return 0.0
    return math.sqrt(difference / reference) if reference else math.inf


def _by_name(cases: Sequence[CaseReport]) -> dict[str, list[OutputReport]]:
    found: dict[str, list[OutputReport]] = {}
    for case in cases:
        for output in case.outputs:
            found.setdefault(output.output, []).append(output)
    return found


def _differing(outputs: Sequence[OutputReport]) -> tuple[int, int] | None:
    """How many elements differ, and of how many, where all are whole numbers of one shape."""
    counts = [output.differing for output in outputs if output.differing is not None]
    return (sum(counts), sum(o.size for o in outputs)) if len(counts) == len(outputs) else None


def _mismatch(name: str, differing: int, size: int) -> str:
    return f"{name} differs in {differing:,} of {size:,} elements"
