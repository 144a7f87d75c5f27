"""The charts of a report, as drawings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median

from exporter.comparisons import is_baseline
from exporter.records import Evaluation, Measurement
from exporter.report.drawing import STRIP_HEIGHT, Chart, Dot, Line, linear_axis
from exporter.report.figures import Row, Setting, used_memory
from exporter.report.naming import variant_name
from exporter.report.sizes import Model
from exporter.report.text import brief, milliseconds, ratio, share, size

__all__ = [
    "PHASES",
    "accuracy_chart",
    "latency_chart",
    "load_chart",
    "memory_chart",
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
    if "likely out of memory" in record.flags:
        return "out of memory?"
    return "too slow" if "too slow" in record.flags else record.status


def _tone(*, reference: bool) -> str:
    return "reference" if reference else "model"


def size_chart(models: Sequence[Model]) -> Chart:
    """Draw bytes on disk and on the wire, a row per file."""
    largest = max(model.file.file_bytes for model in models)
    chart = Chart("Bytes of each file, on disk and on the wire.", linear_axis(largest, size))
    for model in models:
        file, tone = model.file, _tone(reference=model.reference)
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
    value = milliseconds(row.typical_ms)
    comparison = row.main
    if not row.trusted:
        value += " · outputs wrong"
    elif comparison and comparison.time:
        value += f" · {ratio(comparison.time.value)}"
    top = chart.row(name, value, "value" if row.trusted else "worse")
    middle, tone = top + STRIP_HEIGHT / 2, _tone(reference=row.reference)
    samples = row.record.samples_ms
    shown = samples[:: -(-len(samples) // MAX_POINTS)]
    # Beyond the axis lie outliers; clamped to its end they would look like samples there.
    inside = [s for s in shown if chart.axis.place(s) < 100]
    chart.points(inside, middle, f"{tone} point", 5)
    place = chart.axis.place
    title = (
        f"{row.name}: mean {milliseconds(spread.mean)}, median {milliseconds(spread.median)}, "
        f"p10 {milliseconds(spread.p10)}, p90 {milliseconds(spread.p90)}, "
        f"{spread.samples:,} runs"
    )
    chart.shapes.append(Line(place(spread.p10), middle, place(spread.p90), middle, tone, title))
    chart.bar(spread.p25, spread.p75, top + 1, STRIP_HEIGHT - 2, f"{tone} box", title)
    x = place(spread.median)
    chart.shapes.append(Line(x, top - 1, x, top + STRIP_HEIGHT + 1, f"{tone} median", title))


def load_chart(
    caption: str, groups: Mapping[str, Sequence[Measurement]], absent: Mapping[str, str]
) -> Chart:
    """Draw what happens before the first result: the phases' medians, one after another.

    Args:
        caption: device and place.
        groups: measurements by model; of several workloads each is a point.
        absent: why other models have none.
    """

    def total(item: Measurement) -> float:
        return sum(getattr(item.times, key) or 0.0 for key, _ in PHASES)

    largest = max(total(m) for items in groups.values() for m in items)
    phases = {
        name: [
            (i, phase, median(known))
            for i, (key, phase) in enumerate(PHASES)
            if (known := [v for m in items if (v := getattr(m.times, key)) is not None])
        ]
        for name, items in groups.items()
    }
    longest = max(sum(value for *_, value in parts) for parts in phases.values())
    chart = Chart(f"Loading on {caption}", linear_axis(max(largest, longest), milliseconds))
    for name, text in absent.items():
        chart.note(brief(name, LABEL), text)
    for name, items in groups.items():
        end = 0.0
        top = chart.row(brief(name, LABEL), milliseconds(sum(v for *_, v in phases[name])))
        for i, phase, value in phases[name]:
            title = f"{name}, {phase}: {milliseconds(value)}"
            chart.bar(end, end + value, top, 10, f"phase{i}", title)
            end += value
        if len(items) > 1:
            chart.points([total(m) for m in items], top + 5, "point", 3)
    return chart.finish()


def memory_chart(
    caption: str,
    groups: Mapping[str, Sequence[Measurement]],
    absent: Mapping[str, str],
    references: Collection[str],
) -> Chart:
    """Draw the memory each model takes: the largest over the workloads, and each as a point.

    Args:
        caption: device and place.
        groups: measurements by model; all with a known use of memory.
        absent: why other models have none.
        references: the models that others are compared with.
    """
    used = {name: [used_memory(m) or 0 for m in items] for name, items in groups.items()}
    axis = linear_axis(max(max(values) for values in used.values()), size)
    chart = Chart(caption, axis)
    for name, text in absent.items():
        chart.note(brief(name, LABEL), text)
    for name, values in used.items():
        top = chart.row(brief(name, LABEL), size(max(values)))
        tone = _tone(reference=name in references)
        chart.bar(0, max(values), top, 10, tone, f"{name}: {max(values):,} bytes")
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
        name = variant_name(item.variant)
        tone = _tone(reference=is_baseline(item.variant))
        bytes_ = item.model.file_bytes
        top = sizes.row(brief(name, LABEL), size(bytes_))
        sizes.bar(0, bytes_, top, 10, tone, f"{name}: {bytes_:,} bytes")
        top = rates.row(brief(name, LABEL), share(item.accuracy))
        title = f"{name}: {item.correct:,} of {item.rows:,} right"
        left, right = map(place, item.interval_95)
        rates.shapes.append(Line(left, top + 5, right, top + 5, f"{tone} interval", title))
        rates.shapes.append(Dot(place(item.accuracy), top + 5, 4, f"{tone} estimate", title))
    return sizes.finish(), rates.finish()
