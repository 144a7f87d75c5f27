"""The tables of a report, the same in every form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.comparisons import exit_of
from exporter.records import Evaluation, LayersUsed, Measurement
from exporter.report.build import DeviceLine
from exporter.report.charts import PHASES
from exporter.report.figures import Comparison, Row, Setting
from exporter.report.naming import variant_name
from exporter.report.sizes import Model
from exporter.report.text import NO_BREAK, clean, milliseconds, ratio, share, size

__all__ = [
    "Cell",
    "Column",
    "Group",
    "Table",
    "accuracy_table",
    "device_table",
    "latency_table",
    "load_table",
    "ratio_table",
    "size_table",
]


@dataclass(frozen=True)
class Column:
    """A column: ``key`` names its figure for programs; ``numeric`` ones are set right."""

    key: str
    title: str
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """What stands in a table, and the exact figure behind it."""

    text: str
    value: float | None = None
    style: str = ""


@dataclass(frozen=True)
class Group:
    """Rows under a heading; the first cell of each is its name. ``run`` names their run."""

    heading: str
    rows: tuple[tuple[Cell, ...], ...]
    run: str = ""

    @property
    def size(self) -> int:
        """How many rows."""
        return len(self.rows)


@dataclass(frozen=True)
class Table:
    """A table with a caption."""

    caption: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]


def size_table(models: Sequence[Model], against: str = "unshared fp32") -> Table:
    """Tabulate files, in proportion to what they are compared with."""
    covered = any(model.coverage for model in models)
    columns = (
        Column("name", "file", numeric=False),
        Column("file_bytes", "on disk"),
        Column("gzip_bytes", "gzip"),
        Column("brotli_bytes", "brotli"),
        Column("against_baseline", f"to {against}"),
        *([Column("coverage", "precision reaches", numeric=False)] if covered else []),
        Column("sha256", "content", numeric=False),
    )
    rows = tuple(
        (
            Cell(model.name),
            _bytes(model.file.file_bytes),
            _bytes(model.file.gzip_bytes),
            _bytes(model.file.brotli_bytes),
            _ratio(model.against_baseline),
            *([Cell(model.coverage or "–")] if covered else []),
            Cell(f"#{model.file.sha256[:12]}", style="code"),
        )
        for model in models
    )
    return Table("Sizes; MB are 10⁶ bytes", columns, (Group("", rows),))


def _bytes(value: float | None) -> Cell:
    return Cell(size(value), value)


def _ms(value: float | None) -> Cell:
    return Cell(milliseconds(value), value)


def _ratio(value: float | None) -> Cell:
    return Cell(ratio(value), value)


def _heading(setting: Setting) -> str:
    return f"{setting.title}: {setting.workload}; {setting.date}"


def _by_setting(
    settings: Iterable[Setting], cells: dict[int, list[tuple[Cell, ...]]]
) -> tuple[Group, ...]:
    return tuple(
        Group(_heading(setting), tuple(rows), setting.run)
        for setting in settings
        if (rows := cells.get(id(setting)))
    )


def ratio_table(settings: Sequence[Setting]) -> Table:
    """Tabulate every comparison."""
    columns = (
        Column("name", "variant", numeric=False),
        Column("against", "to", numeric=False),
        Column("time_ratio", "latency"),
        Column("interval", "95 % interval"),
        Column("verdict", "verdict", numeric=False),
        Column("pairs", "pairs"),
        Column("sessions", "processes"),
        Column("session_ratio", "session create"),
        Column("memory_ratio", "memory"),
        Column("file_ratio", "file"),
    )
    cells = {
        id(setting): [
            _comparison_cells(row, comparison)
            for row in setting.rows
            for comparison in row.comparisons
        ]
        for setting in settings
    }
    return Table("Ratios; below 1 is better", columns, _by_setting(settings, cells))


def _comparison_cells(row: Row, comparison: Comparison) -> tuple[Cell, ...]:
    time = comparison.time
    interval = comparison.interval
    verdict = comparison.missing or comparison.verdict
    return (
        Cell(row.name),
        Cell(variant_name(comparison.against)),
        _ratio(time.value if time else None),
        Cell("–" if interval is None else f"{interval[0]:.3f}–{interval[1]:.3f}"),
        Cell(verdict, style={"slower": "worse", "faster": "better"}.get(verdict, "")),
        Cell(f"{time.pairs:,}", time.pairs) if time else Cell("–"),
        Cell(f"{time.sessions:,}", time.sessions) if time else Cell("–"),
        _ratio(comparison.session),
        _ratio(comparison.memory),
        _ratio(comparison.file),
    )


def latency_table(settings: Sequence[Setting]) -> Table:
    """Tabulate the steady runs and the self-check of every case."""
    rows = [row for setting in settings for row in setting.rows]
    on_texts = any(row.record.case.texts for row in rows)
    leaves_early = any(row.record.layers for row in rows)
    columns = (
        Column("name", "variant", numeric=False),
        *((Column("mean_ms", "mean"),) if on_texts else ()),
        Column("median_ms", "median"),
        Column("p10_ms", "p10"),
        Column("p90_ms", "p90"),
        Column("min_ms", "min"),
        Column("mad_ms", "MAD"),
        *((Column("layers", "layers, mean and p90"),) if leaves_early else ()),
        Column("samples", "runs"),
        Column("sessions", "processes"),
        Column("threads_used", "threads used"),
        Column("check", "outputs", numeric=False),
        Column("flags", "flags", numeric=False),
    )
    cells = {
        id(s): [_latency_cells(row, s, mean=on_texts, layers=leaves_early) for row in s.rows]
        for s in settings
    }
    return Table("Latency of one steady run", columns, _by_setting(settings, cells))


def _latency_cells(row: Row, setting: Setting, *, mean: bool, layers: bool) -> tuple[Cell, ...]:
    record, spread = row.record, row.spread
    if spread is None:
        figures = [Cell("–")] * (7 + mean + layers)
    else:
        sessions = len(record.session_runs) or 1
        figures = [
            *([_ms(spread.mean)] if mean else []),
            _ms(spread.median),
            _ms(spread.p10),
            _ms(spread.p90),
            _ms(spread.low),
            _ms(spread.mad),
            *([_layers(record.layers)] if layers else []),
            Cell(f"{spread.samples:,}", spread.samples),
            Cell(f"{sessions:,}", sessions),
        ]
    used = record.threads_used
    check = record.check
    bad = not row.trusted
    return (
        Cell(row.name),
        *figures,
        Cell("–" if used is None else str(used), used),
        Cell(_outputs(row, setting), check.relative_error, "worse" if bad else ""),
        Cell(", ".join(record.flags) or "–"),
    )


def _outputs(row: Row, setting: Setting) -> str:
    """Say what the self-check found; what leaves early is a file that was checked as a whole."""
    check, full = row.record.check, exit_of(row.variant)
    if not row.measured:
        return row.record.status
    if check.status == "not run" and full is not None:
        sha256 = row.record.model.sha256
        same = (r for r in setting.rows if r.variant == full and r.record.model.sha256 == sha256)
        if any(one.record.check.status == "passed" for one in same):
            return f"as {variant_name(full)}"
    error = "" if check.relative_error is None else f" ({check.relative_error:.1e})"
    return f"{check.status}{error}"


def load_table(settings: Sequence[Setting]) -> Table:
    """Tabulate everything that happens once, and memory."""
    columns = (
        Column("name", "variant", numeric=False),
        *(Column(f"{key}_ms", title) for key, title in PHASES),
        Column("warm_first_ms", "warm first run"),
        Column("added_rss_bytes", "added RSS"),
        Column("peak_rss_bytes", "peak RSS"),
        Column("wasm_heap_bytes", "WASM heap"),
    )
    cells = {id(s): [_load_cells(r.name, r.record) for r in s.rows if r.measured] for s in settings}
    return Table("Loading and memory", columns, _by_setting(settings, cells))


def _load_cells(name: str, record: Measurement) -> tuple[Cell, ...]:
    times, memory = record.times, record.memory
    return (
        Cell(name),
        *(_ms(getattr(times, key)) for key, _ in PHASES),
        _ms(times.warm_first),
        _bytes(memory.added_rss),
        _bytes(memory.peak_rss),
        _bytes(memory.wasm_heap),
    )


def accuracy_table(groups: Sequence[Sequence[Evaluation]]) -> Table:
    """Tabulate evaluations, a group per data file."""
    leaves_early = any(item.layers for group in groups for item in group)
    columns = (
        Column("name", "variant", numeric=False),
        Column("accuracy", "accuracy"),
        Column("interval", "95 % interval"),
        Column("correct", "right"),
        Column("agreement", "agreement"),
        *((Column("layers", "layers, mean and p90"),) if leaves_early else ()),
        Column("file_bytes", "on disk"),
        Column("date", "date", numeric=False),
    )
    made = tuple(_accuracy_group(group, leaves_early) for group in groups)
    return Table("Accuracy next to size", columns, made)


def _accuracy_group(items: Sequence[Evaluation], leaves_early: bool) -> Group:
    first = items[0]
    heading = (
        f"{clean(first.data)} #{first.data_sha256[:6]}: {first.rows:,} rows, "
        f"most frequent label {share(first.majority)}"
    )
    rows = []
    for item in items:
        low, high = item.interval_95
        agreement = share(item.agreement)
        if item.agreement is not None and item.reference is not None:
            agreement += f" with {variant_name(item.reference)}"
        rows.append(
            (
                Cell(variant_name(item.variant)),
                Cell(share(item.accuracy), item.accuracy),
                Cell(f"{low * 100:.1f}–{high * 100:.1f} %"),
                Cell(f"{item.correct:,}", item.correct),
                Cell(agreement, item.agreement),
                *((_layers(item.layers),) if leaves_early else ()),
                _bytes(item.model.file_bytes),
                Cell(item.created[:10]),
            )
        )
    return Group(heading, tuple(rows))


def _layers(used: LayersUsed | None) -> Cell:
    if used is None:
        return Cell("all")
    return Cell(f"{used.mean:.2f}, {used.p90:g} of {used.of}", used.mean)


def device_table(lines: Sequence[DeviceLine]) -> Table:
    """Tabulate everything known about the devices."""
    columns = (
        Column("label", "device", numeric=False),
        Column("engine", "engine and runtime", numeric=False),
        Column("cpu", "CPU and instruction sets", numeric=False),
        Column("cores", "cores (usable)"),
        Column("memory_bytes", "memory"),
        Column("system", "system", numeric=False),
        Column("days", "measured", numeric=False),
        Column("records", "records"),
        Column("timer_resolution_ms", "clock step"),
        Column("cross_origin_isolated", "isolated", numeric=False),
        Column("user_agent", "user agent", numeric=False),
    )
    return Table("Devices", columns, (Group("", tuple(map(_device_cells, lines))),))


def _device_cells(line: DeviceLine) -> tuple[Cell, ...]:
    device = line.device
    cores = "–" if device.cores is None else str(device.cores)
    if device.usable_cores is not None:
        cores += f" ({device.usable_cores})"
    isolated = {None: "–", True: "yes", False: "no"}[device.cross_origin_isolated]
    processor = ", ".join(map(clean, (device.cpu, *device.cpu_flags)))
    runtime = f"{clean(device.runtime)} {clean(device.runtime_version)}"
    return (
        Cell(f"D{line.number} {clean(device.label)}"),
        Cell(f"{clean(device.engine)}, {runtime}", style="wrap"),
        Cell(processor or "–", style="wrap"),
        Cell(cores, device.cores),
        Cell(_memory(device.memory_bytes), device.memory_bytes),
        Cell(clean(device.system), style="wrap"),
        Cell(", ".join(line.days), style="wrap"),
        Cell(f"{line.records:,}", line.records),
        Cell(_clock_step(line.timer_ms), line.timer_ms),
        Cell(isolated),
        Cell(clean(device.user_agent) if device.user_agent else "–", style="wrap"),
    )


def _clock_step(step_ms: float | None) -> str:
    """Return ``1 ns``, ``5 µs`` or ``1 ms``."""
    if step_ms is None:
        return "–"
    units = (("ms", 1.0), ("µs", 1e3), ("ns", 1e6))
    unit, scale = next((u for u in units if step_ms * u[1] >= 0.9995), units[-1])
    return f"{step_ms * scale:.3g}{NO_BREAK}{unit}"


def _memory(value: int | None) -> str:
    """Return physical memory as it is sold, in GiB."""
    return "–" if value is None else f"{value / 2**30:.1f} GiB"
