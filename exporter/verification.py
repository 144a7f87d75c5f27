"""Are two sets of named arrays the same? Pure numpy.

Measuring is separate from the verdict: :func:`compare` records every metric, always;
:func:`judge` decides. Nothing here knows where the arrays came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["CaseReport", "OutputReport", "Status", "Verdict", "Verification", "compare", "judge"]

Status = Literal["passed", "failed", "not run"]


@dataclass(frozen=True)
class OutputReport:
    """How one output differs from its reference, over all its elements.

    Args:
        output: name of the output.
        shape: shape of the reference; ``candidate_shape`` is the other's. Where they
            differ every metric is ``None``.
        max_abs: largest absolute difference; infinite where one side is finite and the
            other is not, or both are infinite with opposite signs.
        mean_abs: mean absolute difference.
        largest: largest finite absolute value of the reference.
        max_rel: largest of ``|a-b| / max(|a|, 1e-6)``.
        cosine: cosine of the two flattened arrays, 1.0 when both are zero.
        top1_agreement: share of positions along the last axis whose argmax is equal.
        nonfinite_reference: elements of the reference that are NaN or infinite.
        nonfinite_candidate: the same of the candidate. NaN against NaN is no difference.
        bit_equal: both arrays hold the same bits.
    """

    output: str
    shape: tuple[int, ...]
    candidate_shape: tuple[int, ...]
    max_abs: float | None
    mean_abs: float | None
    largest: float
    max_rel: float | None
    cosine: float | None
    top1_agreement: float | None
    nonfinite_reference: int
    nonfinite_candidate: int
    bit_equal: bool


@dataclass(frozen=True)
class CaseReport:
    """The outputs of one named set of inputs.

    Args:
        case: its name.
        outputs: one report per output that both sides have.
        missing: outputs of the reference that the candidate lacks.
        extra: the other way round.
        excluded_rows: rows of the batch that were left out of the comparison.
    """

    case: str
    outputs: tuple[OutputReport, ...]
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    excluded_rows: tuple[int, ...] = ()

    @property
    def worst(self) -> float:
        """Largest absolute difference; infinite where outputs cannot be compared."""
        if self.missing or self.extra:
            return float("inf")
        values = (float("inf") if o.max_abs is None else o.max_abs for o in self.outputs)
        return max(values, default=float("inf"))


@dataclass(frozen=True)
class Verdict:
    """``passed`` or ``failed``, with the reasons for a failure."""

    status: Status
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """All cases of one file, the tolerance they were held to, and the verdict."""

    cases: tuple[CaseReport, ...]
    atol: float
    verdict: Verdict

    @property
    def worst(self) -> float:
        """Largest absolute difference over all cases."""
        return max((case.worst for case in self.cases), default=float("inf"))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; an infinite difference is ``null``."""
        return {
            "verdict": self.verdict.status,
            "reasons": list(self.verdict.reasons),
            "atol": self.atol,
            "worst_abs_error": _json_number(self.worst),
            "cases": [_case_dict(case) for case in self.cases],
        }


def compare(
    case: str,
    reference: Mapping[str, np.ndarray],
    candidate: Mapping[str, np.ndarray],
    *,
    exclude_rows: tuple[int, ...] = (),
) -> CaseReport:
    """Measure every output of ``candidate`` against ``reference``.

    Args:
        case: name for the report.
        reference: output name → array.
        candidate: the same of the other side.
        exclude_rows: rows of the first dimension that are not compared.
    """
    if exclude_rows:
        reference = {name: _without(value, exclude_rows) for name, value in reference.items()}
        candidate = {name: _without(value, exclude_rows) for name, value in candidate.items()}
    return CaseReport(
        case=case,
        outputs=tuple(
            _compare_output(name, reference[name], candidate[name])
            for name in reference
            if name in candidate
        ),
        missing=tuple(name for name in reference if name not in candidate),
        extra=tuple(name for name in candidate if name not in reference),
        excluded_rows=exclude_rows,
    )


def _without(value: np.ndarray, rows: tuple[int, ...]) -> np.ndarray:
    return np.delete(value, rows, axis=0) if value.ndim else value


def judge(cases: tuple[CaseReport, ...], atol: float) -> Verification:
    """Decide: every output of every case present, of equal shape, and within ``atol``.

    No case at all is a failure: nothing was shown.

    Raises:
        ValueError: ``atol`` is negative or not finite, so that nothing or everything passes.
    """
    if not (np.isfinite(atol) and atol >= 0):
        raise ValueError(f"atol must be a finite number of at least 0, not {atol}")
    reasons = [] if cases else ["no case was run"]
    for case in cases:
        reasons += [f"{case.case}: output {name!r} is missing" for name in case.missing]
        reasons += [f"{case.case}: output {name!r} is not in the source" for name in case.extra]
        if not (case.outputs or case.missing):
            reasons.append(f"{case.case}: there is no output to compare")
        for output in case.outputs:
            if output.max_abs is None:
                reasons.append(
                    f"{case.case}: {output.output} has shape {list(output.candidate_shape)}, "
                    f"not {list(output.shape)}"
                )
            elif not output.max_abs <= atol:
                reasons.append(
                    f"{case.case}: {output.output} (up to {output.largest:.3g}) differs by "
                    f"{output.max_abs:.3g}, more than {atol:.3g}"
                )
    verdict = Verdict("failed" if reasons else "passed", tuple(reasons))
    return Verification(cases=cases, atol=atol, verdict=verdict)


def _compare_output(name: str, reference: np.ndarray, candidate: np.ndarray) -> OutputReport:
    a = np.asarray(reference, dtype=np.float64)
    b = np.asarray(candidate, dtype=np.float64)
    comparable = a.shape == b.shape
    difference = _difference(a, b) if comparable else None
    scale = np.maximum(np.abs(np.nan_to_num(a, posinf=1.0, neginf=1.0)), 1e-6)
    return OutputReport(
        output=name,
        shape=reference.shape,
        candidate_shape=candidate.shape,
        max_abs=None if difference is None else float(difference.max(initial=0.0)),
        mean_abs=None if difference is None else float(difference.sum() / max(a.size, 1)),
        largest=float(np.abs(a[np.isfinite(a)]).max(initial=0.0)),
        max_rel=None if difference is None else float((difference / scale).max(initial=0.0)),
        cosine=_cosine(a, b) if comparable else None,
        top1_agreement=_top1_agreement(a, b) if comparable else None,
        nonfinite_reference=int((~np.isfinite(a)).sum()),
        nonfinite_candidate=int((~np.isfinite(b)).sum()),
        bit_equal=reference.dtype == candidate.dtype
        and comparable
        and reference.tobytes() == candidate.tobytes(),
    )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``|a-b|``; 0 for the same NaN or infinity on both sides, infinite for one side only."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(a - b)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _cosine(a: np.ndarray, b: np.ndarray) -> float | None:
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    if not (a.any() and b.any()):
        return 1.0 if not (a.any() or b.any()) else 0.0
    # Of length about 1 first: squares of very large or small values leave float64.
    a, b = a.ravel() / np.abs(a).max(), b.ravel() / np.abs(b).max()
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def _top1_agreement(a: np.ndarray, b: np.ndarray) -> float | None:
    if a.ndim == 0 or a.shape[-1] < 2 or not a.size:
        return None
    return float((a.argmax(axis=-1) == b.argmax(axis=-1)).mean())


def _json_number(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def _case_dict(case: CaseReport) -> dict[str, Any]:
    record = asdict(case)
    record["worst_abs_error"] = _json_number(case.worst)
    for output in record["outputs"]:
        output["shape"] = list(output["shape"])
        output["candidate_shape"] = list(output["candidate_shape"])
        for metric in ("max_abs", "mean_abs", "max_rel"):
            output[metric] = _json_number(output[metric])
    for key in ("outputs", "missing", "extra", "excluded_rows"):
        record[key] = list(record[key])
    return record
