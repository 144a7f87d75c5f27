"""The charts of a report, as drawings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from exporter.comparisons import is_baseline
from exporter.ratios import Ratio
from exporter.records import Evaluation, Measurement
from exporter.report.drawing import STRIP_HEIGHT, Axis, Chart, Dot, Line, linear_axis, log_axis
from exporter.report.figures import Comparison, Row, Setting, used_memory
from exporter.report.naming import variant_name
from exporter.report.sizes import Model
from exporter.report.text import brief, count, milliseconds, ratio, share, size

__all__ = [
    "PHASES",
    "accuracy_chart",
    "latency_chart",
    "load_chart",
    "memory_chart",
    "ratio_charts",
    "size_chart",
    "unmeasured",
]

MAX_POINTS = 60
"""Samples drawn of a row: every n-th of more."""

LABEL = 26
"""Characters of a label that fit beside a value on a phone."""

HEADING = 46
"""Characters of a line on a phone."""

PHASES: tuple[tuple[str, str], ...] = (
    ("process_start", "process start"),
    ("runtime_start", "runtime start"),
    ("session_create", "session create"),
    ("cold_first", "cold first run"),
)
"""What loading consists of, in order."""


def unmeasured(record: Measurement) -> str:
    """Say in few words why a case has no figures."""
    return "out of memory?" if "likely out of memory" in record.flags else record.status


def _tone(variant: str) -> str:
    return "unshared" if is_baseline(variant) else "shared"


def size_chart(models: Sequence[Model]) -> Chart:
    """Draw bytes on disk and on the wire, a row per file."""
    largest = max(model.file.file_bytes for model in models)
    chart = Chart("Bytes of each file, on disk and on the wire.", linear_axis(largest, size))
    for model in models:
        file, tone = model.file, _tone(model.variant)
        value = size(file.file_bytes)
        if file.brotli_bytes is not None:
            value += f", wire {size(file.brotli_bytes)}"
        top = chart.row(brief(model.name, LABEL), value)
        chart.bar(0, file.file_bytes, top, 8, tone, f"{model.name}: {file.file_bytes:,} bytes")
        if file.brotli_bytes is not None:
            title = f"{model.name}: {file.brotli_bytes:,} bytes as brotli"
            chart.bar(0, file.brotli_bytes, top + 9, 4, f"{tone} wire", title)
    return chart.finish()


def latency_chart(setting: Setting) -> Chart:
    """Draw the steady runs of one setting: box, whiskers, median and samples, a row each."""
    spreads = [row.spread for row in setting.rows if row.spread]
    axis = linear_axis(max(s.p90 for s in spreads) * 1.12, milliseconds)
    chart = Chart(f"Latency on {setting.title}", axis)
    for row in setting.rows:
        _latency_row(chart, row)
    return chart.finish()


def _latency_row(chart: Chart, row: Row) -> None:
    name = brief(row.name, LABEL)
    spread = row.spread
    if spread is None:
        chart.note(name, unmeasured(row.record))
        return
    value = milliseconds(spread.median)
    comparison = row.against("baseline")
    if not row.trusted:
        value += " · outputs wrong"
    elif comparison and comparison.time:
        value += f" · {ratio(comparison.time.value)}"
    top = chart.row(name, value, "value" if row.trusted else "worse")
    middle, tone = top + STRIP_HEIGHT / 2, _tone(row.variant)
    samples = row.record.samples_ms
    shown = samples[:: -(-len(samples) // MAX_POINTS)]
    # Beyond the axis lie outliers; clamped to its end they would look like samples there.
    inside = [s for s in shown if chart.axis.place(s) < 100]
    chart.points(inside, middle, f"{tone} point", 5)
    place = chart.axis.place
    title = (
        f"{row.name}: median {milliseconds(spread.median)}, p10 {milliseconds(spread.p10)}, "
        f"p90 {milliseconds(spread.p90)}, {spread.samples:,} runs"
    )
    chart.shapes.append(Line(place(spread.p10), middle, place(spread.p90), middle, tone, title))
    chart.bar(spread.p25, spread.p75, top + 1, STRIP_HEIGHT - 2, f"{tone} box", title)
    x = place(spread.median)
    chart.shapes.append(Line(x, top - 1, x, top + STRIP_HEIGHT + 1, f"{tone} median", title))


class _Ratio(NamedTuple):
    setting: Setting
    row: Row
    comparison: Comparison
    time: Ratio


def ratio_charts(settings: Sequence[Setting]) -> list[tuple[str, Chart]]:
    """Draw each variant's latency ratio to the unshared baseline, a row per setting."""
    found: dict[str, list[_Ratio]] = {}
    for setting in settings:
        for row in setting.rows:
            comparison = row.against("baseline")
            if comparison and comparison.time:
                entry = _Ratio(setting, row, comparison, comparison.time)
                found.setdefault(row.name, []).append(entry)
    entries = [entry for rows in found.values() for entry in rows]
    axis = log_axis([v for entry in entries for v in (entry.time.low, entry.time.high)], ratio)
    label = _short_labels([entry.setting for entry in entries])
    return [(name, _ratio_chart(name, rows, axis, label)) for name, rows in found.items()]


def _ratio_chart(
    name: str,
    entries: Sequence[_Ratio],
    axis: Axis,
    label: Callable[[Setting], str],
) -> Chart:
    chart = Chart(f"{name} against unshared fp32", axis, marker=1.0)
    one_device = len({entry.setting.device for entry in entries}) == 1
    place = ""
    for entry in entries:
        setting, comparison, time = entry.setting, entry.comparison, entry.time
        if setting.title != place:
            place = setting.title
            chart.heading(brief(setting.place if one_device else place, HEADING))
        interval = f" ({time.low:.2f}–{time.high:.2f})" if comparison.interval_known else ""
        wrong = "" if entry.row.trusted else ", outputs wrong"
        value = f"{ratio(time.value)}{interval}"
        style = "worse" if wrong else "value"
        top = chart.row(label(setting), f"{ratio(time.value)}{wrong}" if wrong else value, style)
        tone = {"slower": "worse", "faster": "shared"}.get(comparison.verdict, "unshared")
        title = f"{name} on {setting.title}, {setting.workload}: {value}{wrong}"
        y, low, high = top + 4, axis.place(time.low), axis.place(time.high)
        chart.shapes.append(Line(low, y, high, y, f"{tone} interval", title))
        chart.shapes.append(Dot(axis.place(time.value), y, 3.5, f"{tone} estimate", title))
    return chart.finish()


def _short_labels(settings: Sequence[Setting]) -> Callable[[Setting], str]:
    """Return how to label settings of one place: only by what varies, and the sequence."""
    varies = {
        name: len({getattr(s.workload, name) for s in settings}) > 1
        for name in ("batch", "threads")
    }
    dates = {s.moment[:10] for s in settings}

    def label(setting: Setting) -> str:
        work = setting.workload
        parts = [f"sequence {work.sequence}"]
        if varies["batch"]:
            parts.insert(0, f"batch {work.batch}")
        if varies["threads"]:
            parts.append(count(work.threads, "thread"))
        if len(dates) > 1 or len(setting.date) > len("2026-01-31"):
            parts.append(setting.date[5:])
        return ", ".join(parts)

    return label


def load_chart(
    caption: str, groups: Mapping[str, Sequence[Measurement]], absent: Mapping[str, str]
) -> Chart:
    """Draw what happens before the first result: the phases' medians, one after another.

    Args:
        caption: device and place.
        groups: measurements by variant; of several workloads each is a point.
        absent: why other variants have none.
    """

    def total(item: Measurement) -> float:
        return sum(getattr(item.times, key) or 0.0 for key, _ in PHASES)

    largest = max(total(m) for items in groups.values() for m in items)
    phases = {
        variant: [
            (i, name, median(known))
            for i, (key, name) in enumerate(PHASES)
            if (known := [v for m in items if (v := getattr(m.times, key)) is not None])
        ]
        for variant, items in groups.items()
    }
    longest = max(sum(value for *_, value in parts) for parts in phases.values())
    chart = Chart(f"Loading on {caption}", linear_axis(max(largest, longest), milliseconds))
    for variant, text in absent.items():
        chart.note(brief(variant_name(variant), LABEL), text)
    for variant, items in groups.items():
        name, end = variant_name(variant), 0.0
        top = chart.row(brief(name, LABEL), milliseconds(sum(v for *_, v in phases[variant])))
        for i, phase, value in phases[variant]:
            title = f"{name}, {phase}: {milliseconds(value)}"
            chart.bar(end, end + value, top, 10, f"phase{i}", title)
            end += value
        if len(items) > 1:
            chart.points([total(m) for m in items], top + 5, "point", 3)
    return chart.finish()


def memory_chart(
    caption: str, groups: Mapping[str, Sequence[Measurement]], absent: Mapping[str, str]
) -> Chart:
    """Draw the memory each variant takes: the largest over the workloads, and each as a point.

    Args:
        caption: device and place.
        groups: measurements by variant; all with a known use of memory.
        absent: why other variants have none.
    """
    used = {variant: [used_memory(m) or 0 for m in items] for variant, items in groups.items()}
    axis = linear_axis(max(max(values) for values in used.values()), size)
    chart = Chart(caption, axis)
    for variant, text in absent.items():
        chart.note(brief(variant_name(variant), LABEL), text)
    for variant, values in used.items():
        name = variant_name(variant)
        top = chart.row(brief(name, LABEL), size(max(values)))
        chart.bar(0, max(values), top, 10, _tone(variant), f"{name}: {max(values):,} bytes")
        if min(values) < 0.99 * max(values):
            chart.points(values, top + 5, "point", 3)
    return chart.finish()


def accuracy_chart(evaluations: Sequence[Evaluation]) -> tuple[Chart, Chart]:
    """Draw sizes and accuracies side by side: two charts with the same rows."""
    largest = max(e.model.file_bytes for e in evaluations)
    sizes = Chart("Bytes on disk", linear_axis(largest, size))
    low = min(min(e.majority, e.interval_95[0]) for e in evaluations)
    high = max(e.interval_95[1] for e in evaluations)
    start, end = math.floor(low * 20) / 20, math.ceil(high * 20) / 20
    axis = linear_axis(end, share, start)
    rates = Chart("Accuracy, with its 95 % interval", axis, marker=evaluations[0].majority)
    place = rates.axis.place
    for item in evaluations:
        name, tone = variant_name(item.variant), _tone(item.variant)
        bytes_ = item.model.file_bytes
        top = sizes.row(brief(name, LABEL), size(bytes_))
        sizes.bar(0, bytes_, top, 10, tone, f"{name}: {bytes_:,} bytes")
        top = rates.row(brief(name, LABEL), share(item.accuracy))
        title = f"{name}: {item.correct:,} of {item.rows:,} right"
        left, right = map(place, item.interval_95)
        rates.shapes.append(Line(left, top + 5, right, top + 5, f"{tone} interval", title))
        rates.shapes.append(Dot(place(item.accuracy), top + 5, 4, f"{tone} estimate", title))
    return sizes.finish(), rates.finish()
