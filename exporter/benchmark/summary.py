"""Figures of each record, and its ratios to what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from exporter.benchmark.plan import work_name
from exporter.comparisons import compared_with, reference_name
from exporter.errors import BenchmarkError
from exporter.ratios import Ratio, ratio
from exporter.records import Case, Measurement

__all__ = ["Summary", "precision_notices", "summarize"]


@dataclass(frozen=True)
class Summary:
    """One record and its ratios.

    Args:
        record: the measurement.
        ratios: time in proportion to that of another case of the same run, by the other's
            name; see :func:`~exporter.comparisons.compared_with`.
    """

    record: Measurement
    ratios: dict[str, Ratio]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; figures are ``null`` where nothing was measured."""
        record = self.record
        figures = {
            "mean_ms": record.mean_ms,
            "median_ms": record.median_ms,
            "p90_ms": record.p90_ms,
            "min_ms": record.min_ms,
            "mad_ms": record.mad_ms,
        }
        measured = bool(record.samples_ms)
        return {
            "run": record.run,
            "case": msgspec.to_builtins(record.case),
            "status": record.status,
            "runs": len(record.samples_ms),
            **{name: value if measured else None for name, value in figures.items()},
            "ratios": {
                name: {**asdict(one), "verdict": one.verdict} for name, one in self.ratios.items()
            },
        }


def summarize(records: Sequence[Measurement]) -> list[Summary]:
    """Compare each record with those of its run that it has to be compared with."""
    runs: dict[str, dict[Case, Measurement]] = {}
    for record in records:
        runs.setdefault(record.run, {})[record.case] = record
    summaries = []
    for record in records:
        run = runs[record.run]
        ratios = {}
        for case in compared_with(record.case, list(run)):
            if (found := _ratio(record, run[case])) is not None:
                ratios[reference_name(record.case, case)] = found
        summaries.append(Summary(record, ratios))
    return summaries


def precision_notices(summaries: Sequence[Summary]) -> list[str]:
    """Say plainly which precisions are slower than fp32."""
    notices = []
    for summary in summaries:
        found = summary.ratios.get("fp32")
        if found is not None and found.verdict == "slower":
            case = summary.record.case
            interval = f", {found.low:.2f}–{found.high:.2f}" if found.has_interval else ""
            notices.append(
                f"{case.artifact}: {case.variant} is slower than fp32 "
                f"({found.value:.2f}×{interval}): "
                f"{case.browser or case.runtime}, {case.threads} thread(s), "
                f"{work_name(case)}"
            )
    return notices


def _ratio(record: Measurement, other: Measurement) -> Ratio | None:
    """The ratio, or nothing where the two make no pairs: one failed, or the clock is coarse."""
    try:
        return ratio(record, other)
    except BenchmarkError:
        return None
