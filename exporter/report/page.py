"""The HTML form: one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from exporter.records import Measurement
from exporter.report import tables
from exporter.report.build import Report, Section
from exporter.report.charts import (
    PHASES,
    accuracy_chart,
    latency_chart,
    load_chart,
    memory_chart,
    size_chart,
    unmeasured,
)
from exporter.report.drawing import Chart, Dot, Line, Rect
from exporter.report.exit_views import exit_charts, exit_table
from exporter.report.figures import Setting, used_memory
from exporter.report.ratio_charts import ratio_charts
from exporter.report.tables import Cell, Column, Table
from exporter.report.text import clean, count

__all__ = ["html_page"]

MAX_PANELS = 24
"""Settings drawn per artifact, the newest; tables hold all."""


@dataclass(frozen=True)
class _SectionView:
    """A section's drawings and tables; ``None`` where there is nothing to show."""

    section: Section
    note: str
    size: Chart | None
    size_table: Table
    ratios: Sequence[tuple[str, str, Chart]]
    ratio_table: Table
    latency: Sequence[tuple[Setting, Chart]]
    latency_table: Table
    load: Sequence[tuple[str, str, Chart]]
    load_table: Table
    memory: Sequence[tuple[str, str, Chart]]
    accuracy: Sequence[tuple[str, Chart, Chart]]
    accuracy_table: Table
    exits: Sequence[tuple[str, Chart, Chart]]
    exit_table: Table


def html_page(report: Report) -> str:
    """Return the page: one HTML document without any reference to another file."""
    template = _environment().get_template("report.html.j2")
    return template.render(
        report=report,
        sections=[_view(section) for section in report.parts],
        devices=tables.device_table(report.devices),
        phases=[name for _, name in PHASES],
        count=count,
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("exporter.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["rect"] = lambda shape: isinstance(shape, Rect)
    environment.tests["line"] = lambda shape: isinstance(shape, Line)
    environment.tests["dot"] = lambda shape: isinstance(shape, Dot)
    environment.filters["cells"] = _cells
    environment.filters["px"] = lambda value: f"{value:.5g}"
    return environment


def _cells(row: Sequence[Cell], columns: Sequence[Column]) -> Markup:
    """Return a row's cells as HTML; in Python, since large reports have 300,000 of them.

    Only a cell's text comes from records; keys and styles are constants of this program.
    """
    parts = [f'<th scope="row">{escape(row[0].text)}</th>']
    for column, cell in zip(columns[1:], row[1:], strict=True):
        style = f"{'number ' if column.numeric else ''}{cell.style}".strip()
        attributes = f' class="{style}"' if style else ""
        if cell.value is not None:
            attributes += f' data-key="{column.key}" data-value="{cell.value!r}"'
        parts.append(f"<td{attributes}>{escape(cell.text)}</td>")
    return Markup("".join(parts))


def _view(section: Section) -> _SectionView:
    settings = section.settings
    measured = [s for s in settings if any(row.measured for row in s.rows)]
    newest = {id(s) for s in sorted(measured, key=lambda s: s.moment)[-MAX_PANELS:]}
    drawn = [s for s in measured if id(s) in newest]
    note = ""
    if len(drawn) < len(measured):
        note = (
            f"Charts show the {len(drawn)} newest of {count(len(measured), 'setting')}; "
            "the tables hold all."
        )
    return _SectionView(
        section=section,
        note=note,
        size=size_chart(section.models) if section.models else None,
        size_table=tables.size_table(section.models, section.against),
        ratios=ratio_charts(drawn),
        ratio_table=tables.ratio_table(settings),
        latency=[(setting, latency_chart(setting)) for setting in drawn],
        latency_table=tables.latency_table(settings),
        load=_load_charts(drawn),
        load_table=tables.load_table(settings),
        memory=_memory_charts(drawn),
        accuracy=[
            (f"{clean(group[0].data)}, {group[0].rows:,} rows", *accuracy_chart(group))
            for group in section.evaluations
        ],
        accuracy_table=tables.accuracy_table(section.evaluations),
        exits=[(curve.title, *exit_charts(curve)) for curve in section.exits],
        exit_table=exit_table(section.exits),
    )


@dataclass(frozen=True)
class _Place:
    """Measurements of one device, place, number of threads and day, by model."""

    measured: dict[str, list[Measurement]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    references: set[str] = field(default_factory=set)

    def having(
        self, known: Callable[[Measurement], bool]
    ) -> tuple[dict[str, list[Measurement]], dict[str, str]]:
        """Return the measurements that ``known`` accepts, and why models have none."""
        kept = {name: [m for m in items if known(m)] for name, items in self.measured.items()}
        kept = {name: items for name, items in kept.items() if items}
        return kept, {name: why for name, why in self.failed.items() if name not in self.measured}


def _places(settings: Sequence[Setting]) -> dict[str, _Place]:
    found: dict[str, _Place] = {}
    for setting in settings:
        threads = count(setting.workload.threads, "thread")
        place = found.setdefault(f"{setting.title}\n{threads}; {setting.moment[:10]}", _Place())
        for row in setting.rows:
            if row.reference:
                place.references.add(row.name)
            if row.measured:
                place.measured.setdefault(row.name, []).append(row.record)
            else:
                place.failed[row.name] = unmeasured(row.record)
    return found


def _load_charts(settings: Sequence[Setting]) -> list[tuple[str, str, Chart]]:
    charts = []
    for place, items in _places(settings).items():
        title, _, note = place.partition("\n")
        known, absent = items.having(lambda m: any(getattr(m.times, key) for key, _ in PHASES))
        if known:
            charts.append((title, note, load_chart(title, known, absent)))
    return charts


def _memory_charts(settings: Sequence[Setting]) -> list[tuple[str, str, Chart]]:
    charts = []
    for place, items in _places(settings).items():
        title, _, note = place.partition("\n")
        known, absent = items.having(lambda m: used_memory(m) is not None)
        if known:
            heap = any(m.memory.wasm_heap is not None for found in known.values() for m in found)
            kind = "WASM heap" if heap else "resident memory added"
            charts.append(
                (title, f"{kind}, {note}", memory_chart(title, known, absent, items.references))
            )
    return charts
