"""Measure how two sets of named arrays differ: every metric, always, and no verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

__all__ = ["CaseReport", "OutputReport", "compare", "json_number"]

_WHOLE = "biu"
"""Kinds of numpy types: truth values and whole numbers."""


@dataclass(frozen=True)
class OutputReport:
    """How one output differs from its reference, over all its elements.

    Args:
        output: name of the output.
        shape: shape of the reference; ``candidate_shape`` is the other's. Where they
            differ there is no metric of the difference.
        differing: elements that differ, where both sides hold whole numbers or truth values.
            Such are labels, ids or counts, for which near is no better than far: they have no
            metric of real numbers, and real numbers do not have this one.
        max_abs: largest absolute difference; infinite where one side is finite and the
            other is not, or both are infinite with opposite signs.
        mean_abs: mean absolute difference.
        rms: root mean square of the difference; ``None`` where it is not finite.
        rms_reference: root mean square of the reference's finite values.
        largest: largest finite absolute value of the reference; ``None`` for whole numbers, as
            ``rms_reference``.
        max_rel: largest of ``|a-b| / max(|a|, 1e-6)``.
        cosine: cosine of the two flattened arrays, 1.0 when both are zero.
        top1_agreement: share of positions along the last axis whose argmax is equal; ``None``
            without such positions.
        nonfinite_reference: elements of the reference that are NaN or infinite.
        nonfinite_candidate: the same of the candidate. NaN against NaN is no difference.
        bit_equal: both arrays hold the same bits.
    """

    output: str
    shape: tuple[int, ...]
    candidate_shape: tuple[int, ...]
    bit_equal: bool
    differing: int | None = None
    max_abs: float | None = None
    mean_abs: float | None = None
    rms: float | None = None
    rms_reference: float | None = None
    largest: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    top1_agreement: float | None = None
    nonfinite_reference: int = 0
    nonfinite_candidate: int = 0

    @property
    def size(self) -> int:
        """Elements of the reference."""
        return math.prod(self.shape)

    @property
    def comparable(self) -> bool:
        """Whether both sides have one shape."""
        return self.shape == self.candidate_shape


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
        """Largest absolute difference of real numbers; infinite where outputs cannot be
        compared."""
        if self.missing or self.extra:
            return math.inf
        values = ((o.max_abs or 0.0) if o.comparable else math.inf for o in self.outputs)
        return max(values, default=math.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; what is not finite is ``null``."""
        record = asdict(self)
        record["worst_abs_error"] = json_number(self.worst)
        for output in record["outputs"]:
            output["shape"] = list(output["shape"])
            output["candidate_shape"] = list(output["candidate_shape"])
            for metric in ("max_abs", "mean_abs", "rms", "rms_reference", "max_rel"):
                output[metric] = json_number(output[metric])
        for key in ("outputs", "missing", "extra", "excluded_rows"):
            record[key] = list(record[key])
        return record


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


def _compare_output(name: str, reference: np.ndarray, candidate: np.ndarray) -> OutputReport:
    comparable = reference.shape == candidate.shape
    report = OutputReport(
        output=name,
        shape=reference.shape,
        candidate_shape=candidate.shape,
        bit_equal=reference.dtype == candidate.dtype
        and comparable
        and reference.tobytes() == candidate.tobytes(),
    )
    if reference.dtype.kind in _WHOLE and candidate.dtype.kind in _WHOLE:
        differing = int(np.count_nonzero(reference != candidate)) if comparable else None
        return replace(report, differing=differing)
    a = np.asarray(reference, dtype=np.float64)
    b = np.asarray(candidate, dtype=np.float64)
    difference = _difference(a, b) if comparable else None
    scale = np.maximum(np.abs(np.nan_to_num(a, posinf=1.0, neginf=1.0)), 1e-6)
    return replace(
        report,
        max_abs=None if difference is None else float(difference.max(initial=0.0)),
        mean_abs=None if difference is None else float(difference.sum() / max(a.size, 1)),
        rms=None if difference is None else json_number(_rms(difference)),
        rms_reference=_rms(a[np.isfinite(a)]),
        largest=float(np.abs(a[np.isfinite(a)]).max(initial=0.0)),
        max_rel=None if difference is None else float((difference / scale).max(initial=0.0)),
        cosine=_cosine(a, b) if comparable else None,
        top1_agreement=_top1_agreement(a, b) if comparable else None,
        nonfinite_reference=int((~np.isfinite(a)).sum()),
        nonfinite_candidate=int((~np.isfinite(b)).sum()),
    )


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``|a-b|``; 0 for the same NaN or infinity on both sides, infinite for one side only."""
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(a - b)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _rms(values: np.ndarray) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0


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


def json_number(value: float | None) -> float | None:
    """Return a finite number as it is, and ``None`` for what JSON cannot hold."""
    return value if value is not None and np.isfinite(value) else None
