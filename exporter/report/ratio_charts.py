"""Drawings of latency ratios with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.ratios import Ratio
from exporter.report.charts import HEADING, LABEL
from exporter.report.drawing import Axis, Chart, Dot, Line, log_axis
from exporter.report.figures import Comparison, Row, Setting
from exporter.report.naming import variant_name
from exporter.report.text import brief, count, ratio

__all__ = ["ratio_charts"]

REACH = 4.0
"""How many times an estimate the axis shows of its interval: a wide one ends at the edge."""


class _Entry(NamedTuple):
    setting: Setting
    row: Row
    comparison: Comparison
    time: Ratio


def ratio_charts(settings: Sequence[Setting]) -> list[tuple[str, str, Chart]]:
    """Draw the latency ratio of each model to what it is compared with.

    A drawing per place with a row per model; where a place has several workloads or days, a
    drawing per model with a row for each of those.

    Returns:
        Of each drawing: its title, a note, and the drawing.
    """
    entries = [
        _Entry(setting, row, row.main, row.main.time)
        for setting in settings
        for row in setting.rows
        if row.main and row.main.time
    ]
    ends = [
        end
        for *_, comparison, time in entries
        for low, high in [comparison.interval or (time.value, time.value)]
        for end in (max(low, time.value / REACH), min(high, time.value * REACH))
    ]
    axis = log_axis(ends, ratio)
    titles = [setting.title for setting in settings]
    draw = _by_place if len(set(titles)) == len(titles) else _by_model
    return draw(entries, axis)


def _by_place(entries: Sequence[_Entry], axis: Axis) -> list[tuple[str, str, Chart]]:
    places: dict[str, list[_Entry]] = {}
    for entry in entries:
        places.setdefault(entry.setting.title, []).append(entry)
    charts = []
    for title, rows in places.items():
        note = f"to {_against(rows)}; {rows[0].setting.workload}"
        chart = Chart(f"{title}, {note}", axis, marker=1.0)
        for entry in rows:
            _draw(chart, entry.row.name, entry)
        charts.append((title, note, chart.finish()))
    return charts


def _by_model(entries: Sequence[_Entry], axis: Axis) -> list[tuple[str, str, Chart]]:
    models: dict[str, list[_Entry]] = {}
    for entry in entries:
        models.setdefault(entry.row.name, []).append(entry)
    label = _short_labels([entry.setting for entry in entries])
    one_device = len({entry.setting.device for entry in entries}) == 1
    charts = []
    for name, rows in models.items():
        note = f"to {_against(rows)}"
        chart = Chart(f"{name}, {note}", axis, marker=1.0)
        place = ""
        for entry in rows:
            if entry.setting.title != place:
                place = entry.setting.title
                chart.heading(brief(entry.setting.place if one_device else place, HEADING))
            _draw(chart, label(entry.setting), entry)
        charts.append((name, note, chart.finish()))
    return charts


def _against(entries: Sequence[_Entry]) -> str:
    """Name what the entries are compared with; of several artifacts' variants, only these."""
    names = dict.fromkeys(variant_name(entry.comparison.against) for entry in entries)
    first = next(iter(names))
    return first if len(names) == 1 else f"the same variant of {first.rpartition(' ')[0]}"


def _draw(chart: Chart, label: str, entry: _Entry) -> None:
    setting, row, comparison, time = entry
    known = comparison.interval
    interval = "" if known is None else f" ({known[0]:.2f}–{known[1]:.2f})"
    wrong = "" if row.trusted else ", outputs wrong"
    value = f"{ratio(time.value)}{interval}"
    style = "worse" if wrong else "value"
    top = chart.row(brief(label, LABEL), f"{ratio(time.value)}{wrong}" if wrong else value, style)
    tone = {"slower": "worse", "faster": "model"}.get(comparison.verdict, "reference")
    title = f"{row.name} on {setting.title}, {setting.workload}: {value}{wrong}"
    place = chart.axis.place
    y = top + 4
    if known is not None:
        chart.shapes.append(Line(place(known[0]), y, place(known[1]), y, f"{tone} interval", title))
    chart.shapes.append(Dot(place(time.value), y, 3.5, f"{tone} estimate", title))


def _short_labels(settings: Sequence[Setting]) -> Callable[[Setting], str]:
    """Return how to label settings of one place: only by what varies, and the sequence."""
    varies = {
        name: len({getattr(s.workload, name) for s in settings}) > 1
        for name in ("batch", "threads")
    }
    dates = {s.moment[:10] for s in settings}

    def label(setting: Setting) -> str:
        work = setting.workload
        parts = [work.row]
        if varies["batch"]:
            parts.insert(0, f"batch {work.batch}")
        if varies["threads"]:
            parts.append(count(work.threads, "thread"))
        if len(dates) > 1 or len(setting.date) > len("2026-01-31"):
            parts.append(setting.date[5:])
        return ", ".join(parts)

    return label
