"""From records to the figures a report shows: settings, spreads, ratios, model sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from exporter.comparisons import BASELINE, is_baseline, opponents
from exporter.ratios import Ratio, paired_ratio
from exporter.records import Case, Measurement
from exporter.report.naming import (
    DeviceNames,
    Workload,
    variant_name,
    where,
)
from exporter.report.text import clean

__all__ = [
    "Comparison",
    "Row",
    "Setting",
    "Spread",
    "joint_name",
    "proportion",
    "settings_of",
    "used_memory",
    "variant_order",
]

SEED = 20_260_101
"""Of the bootstrap: the same records give the same report."""

MAX_BOOTSTRAPS = 400
"""Comparisons of single processes that get an interval, the newest settings first: a
bootstrap takes about 5 ms. Intervals over several processes cost nothing."""


@dataclass(frozen=True)
class Spread:
    """How samples lie, in the samples' unit; ``mad`` is their median absolute deviation."""

    samples: int
    mean: float
    low: float
    p10: float
    p25: float
    median: float
    p75: float
    p90: float
    high: float
    mad: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        samples = np.asarray(values)
        low, p10, p25, median, p75, p90, high = map(
            float, np.percentile(samples, (0, 10, 25, 50, 75, 90, 100))
        )
        mad = float(np.median(np.abs(samples - median)))
        mean = float(samples.mean())
        return cls(len(values), mean, low, p10, p25, median, p75, p90, high, mad)


@dataclass(frozen=True)
class Comparison:
    """One variant in proportion to another one of the same setting; below 1 is better.

    Args:
        against: the other's variant; its name, where it is of another artifact.
        time: ratio of the latencies from pairs, with its interval; ``None`` without pairs.
        interval_known: whether ``time.low`` and ``time.high`` were computed.
        session, memory, file: ratios of session creation, memory and file bytes.
        missing: why there is no ``time``.
        main: whether charts and headlines are about it: the other is the unshared baseline,
            or of the artifact that others are set beside.
    """

    against: str
    time: Ratio | None
    interval_known: bool
    session: float | None
    memory: float | None
    file: float | None
    missing: str | None = None
    main: bool = False

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of ``time``, where it was computed and covers several processes."""
        if self.time is None or not (self.interval_known and self.time.has_interval):
            return None
        return self.time.low, self.time.high

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, ``no clear difference`` or ``not known``."""
        if self.time is None or not self.interval_known:
            return "not known"
        return self.time.verdict


@dataclass(frozen=True)
class Row:
    """One variant within a setting; ``reference`` marks what others are compared with."""

    name: str
    record: Measurement
    spread: Spread | None
    comparisons: tuple[Comparison, ...] = ()
    reference: bool = False

    @property
    def variant(self) -> str:
        """The record's variant."""
        return self.record.case.variant

    @property
    def measured(self) -> bool:
        """Whether there are figures."""
        return self.record.status == "measured"

    @property
    def trusted(self) -> bool:
        """Whether the outputs were not found to be wrong."""
        return self.measured and self.record.check.status != "failed"

    @property
    def typical_ms(self) -> float | None:
        """What a run takes: the median, and the mean of runs on texts, as their ratios are."""
        if self.spread is None:
            return None
        return self.spread.median if self.record.case.texts is None else self.spread.mean

    @property
    def main(self) -> Comparison | None:
        """The comparison that charts and headlines are about."""
        return next((c for c in self.comparisons if c.main), None)


@dataclass(frozen=True)
class Setting:
    """Variants measured together: one device, one workload, one interleaved run.

    Args:
        device, number: name and number of the device.
        place: what ran the models there.
        workload: see there.
        moment: when it began, as records tell it.
        date: the same for people; with the time where that day has several.
        run: the run's identifier.
        rows: a row per variant.
    """

    device: str
    number: int
    place: str
    workload: Workload
    moment: str
    date: str
    run: str
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """Where: ``Laptop, WASM in Chromium 140``."""
        return f"{self.device}, {self.place}"

    def row(self, variant: str) -> Row | None:
        """Return a variant's row if it was measured."""
        return next((r for r in self.rows if r.variant == variant and r.measured), None)


def settings_of(
    measurements: Sequence[Measurement], names: DeviceNames, *, together: str | None = None
) -> list[Setting]:
    """Group measurements into settings: by model, device and workload, then by time.

    Of several measurements of one case in one run, the last successful one counts: it is
    the one made when an interrupted run was resumed.

    Args:
        measurements: what was measured.
        names: of their devices.
        together: what to call all artifacts that took turns in a run, to set them side by
            side, each beside the first; ``None``: each artifact has settings of its own.
    """

    def workload(case: Case) -> Workload:
        own = Workload.of(case)
        if together is None:
            return own
        # Tokenizers make other lengths of the same texts.
        return replace(own, artifact=together, sequence=0 if own.texts else own.sequence)

    groups: dict[tuple[object, ...], list[Measurement]] = {}
    for item in measurements:
        device = names.identity(item.device)
        key = (device, item.case.runtime, item.case.browser, workload(item.case), item.run)
        groups.setdefault(key, []).append(item)
    settings: list[Setting] = []
    days = Counter((*key[:-1], _first_moment(group)[:10]) for key, group in groups.items())
    budget = MAX_BOOTSTRAPS
    newest = sorted(groups.items(), key=lambda item: _first_moment(item[1]), reverse=True)
    for place, group in newest:
        first = group[0]
        rows = (_rows if together is None else _joint_rows)(group, intervals=budget > 0)
        budget -= sum(
            c.time is not None and c.time.sessions < 2 for r in rows for c in r.comparisons
        )
        moment = _first_moment(group)
        twice = days[*place[:-1], moment[:10]] > 1
        setting = Setting(
            device=names.name(first.device),
            number=names.number(first.device),
            place=where(first.device, first.case),
            workload=workload(first.case),
            moment=moment,
            date=f"{moment[:10]} {moment[11:16]} UTC" if twice else moment[:10],
            run=clean(first.run),
            rows=rows,
        )
        settings.append(setting)
    return sorted(
        settings, key=lambda s: (s.workload.artifact, s.number, s.place, s.workload, s.moment)
    )


def _first_moment(group: Sequence[Measurement]) -> str:
    return min(item.created for item in group)


def _rows(group: Sequence[Measurement], *, intervals: bool) -> tuple[Row, ...]:
    latest: dict[str, Measurement] = {}
    for item in sorted(group, key=lambda m: (m.status == "measured", m.created)):
        latest[item.case.variant] = item
    ordered = sorted(latest.values(), key=lambda m: variant_order(m.case.variant))
    return tuple(
        Row(
            name=variant_name(item.case.variant),
            record=item,
            spread=Spread.of(item.samples_ms) if item.status == "measured" else None,
            comparisons=_comparisons(item, latest, intervals=intervals),
            reference=is_baseline(item.case.variant),
        )
        for item in ordered
    )


def _joint_rows(group: Sequence[Measurement], *, intervals: bool) -> tuple[Row, ...]:
    """Rows of several artifacts; those after the first are compared with it."""
    order = list(dict.fromkeys(item.case.artifact for item in group))
    latest: dict[tuple[str, str], Measurement] = {}
    for item in sorted(group, key=lambda m: (m.status == "measured", m.created)):
        if not is_baseline(item.case.variant):
            latest[item.case.artifact, item.case.variant] = item
    variants = {variant for _, variant in latest}
    rows = []
    for (artifact, variant), item in sorted(
        latest.items(), key=lambda entry: (variant_order(entry[0][1]), order.index(entry[0][0]))
    ):
        comparisons: tuple[Comparison, ...] = ()
        first = latest.get((order[0], variant))
        if first is not None and artifact != order[0]:
            against = joint_name(order[0], variant, variants)
            comparisons = (_compare(item, first, against, intervals=intervals, main=True),)
        rows.append(
            Row(
                name=joint_name(artifact, variant, variants),
                record=item,
                spread=Spread.of(item.samples_ms) if item.status == "measured" else None,
                comparisons=comparisons,
                reference=artifact == order[0],
            )
        )
    return tuple(rows)


def joint_name(artifact: str, variant: str, variants: Collection[str]) -> str:
    """Name a file among several artifacts, with its variant where there are several."""
    return clean(artifact) if len(variants) == 1 else f"{clean(artifact)} {variant_name(variant)}"


def variant_order(variant: str) -> tuple[bool, int, str]:
    """Sort key: baselines first, then from the widest precision to the narrowest."""
    precision = variant.removeprefix("baseline").removeprefix("-") or "fp32"
    known = ("fp32", "fp16", "int8", "int4")
    rank = next((i for i, name in enumerate(known) if precision.startswith(name)), len(known))
    return (not is_baseline(variant), rank, variant)


def _comparisons(
    item: Measurement, others: dict[str, Measurement], *, intervals: bool
) -> tuple[Comparison, ...]:
    return tuple(
        _compare(item, others[name], name, intervals=intervals, main=name == BASELINE)
        for name in opponents(item.case.variant)
        if name in others
    )


def _compare(
    item: Measurement, other: Measurement, against: str, *, intervals: bool, main: bool
) -> Comparison:
    time, missing = None, None
    mine, its, sessions = _pairs(item, other)
    failed = next((m for m in (other, item) if m.status != "measured"), None)
    if failed is not None:
        missing = f"{variant_name(failed.case.variant)} {failed.status}"
    elif min(*mine, *its) <= 0:
        missing = "the clock is too coarse: there are samples of 0 ms"
    elif intervals or len(sessions) > 1:
        time = paired_ratio(mine, its, SEED, sessions, of_sums=item.case.texts is not None)
    elif item.case.texts is not None:
        value = sum(mine) / sum(its)
        time = Ratio(value, value, value, len(mine))
    else:
        value = float(np.exp(np.median(np.log(mine) - np.log(its))))
        time = Ratio(value, value, value, len(mine))
    return Comparison(
        against=against,
        time=time,
        interval_known=time is not None and (intervals or len(sessions) > 1),
        session=proportion(item.times.session_create, other.times.session_create),
        memory=proportion(used_memory(item), used_memory(other)),
        file=proportion(item.model.file_bytes, other.model.file_bytes),
        missing=missing,
        main=main,
    )


def _pairs(one: Measurement, other: Measurement) -> tuple[list[float], list[float], list[int]]:
    """Return the samples of both that were taken next to each other, and how many per session.

    An interrupted run leaves one of them longer: what the other lacks is left out, session
    by session, so that no two samples pair that were not neighbours.
    """
    left: list[float] = []
    right: list[float] = []
    sessions: list[int] = []
    starts = [0, 0]
    for counts in zip(
        one.session_runs or (len(one.samples_ms),),
        other.session_runs or (len(other.samples_ms),),
        strict=False,
    ):
        if length := min(counts):
            left += one.samples_ms[starts[0] : starts[0] + length]
            right += other.samples_ms[starts[1] : starts[1] + length]
            sessions.append(length)
        starts = [start + count for start, count in zip(starts, counts, strict=True)]
    return left, right, sessions


def proportion(mine: float | None, its: float | None) -> float | None:
    """Return the ratio of two positive figures; ``None`` where there are none."""
    if mine is None or its is None or mine <= 0 or its <= 0:
        return None
    return mine / its


def used_memory(item: Measurement) -> int | None:
    """Return what memory charts show: the WebAssembly heap, else the added resident memory."""
    memory = item.memory
    return memory.added_rss if memory.wasm_heap is None else memory.wasm_heap
