"""What ``bench`` shows: a progress bar while measuring, a table for each run, notices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from exporter.benchmark.plan import work_name
from exporter.benchmark.summary import precision_notices
from exporter.cli.console import megabytes
from exporter.comparisons import BASELINE, exit_of, work
from exporter.ratios import sessions_note

if TYPE_CHECKING:
    from rich.console import Console

    from exporter.benchmark import Ratio, Step, Summary
    from exporter.records import Measurement

__all__ = ["bench_progress", "print_bench", "time_left"]

_TABLE_WIDTH = 400


@contextmanager
def bench_progress() -> Iterator[Callable[[Step], None]]:
    """Show one bar with the remaining time; where no terminal is, a line for each new step."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        seen: set[str] = set()

        def line(step: Step) -> None:
            text = step.text.partition(": ")[0]
            if text not in seen:
                seen.add(text)
                console.print(f"measuring {text} …", markup=False)

        yield line
        return
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=1.0, left="")

        def show(step: Step) -> None:
            left = time_left(step.remaining_s)
            progress.update(task, completed=step.done, description=f"{step.text} …", left=left)

        yield show


def time_left(seconds: float) -> str:
    """Say in words how long the rest takes: ``about 2 min left``."""
    if seconds < 10:
        return "a few seconds left"
    if seconds < 100:
        return f"about {round(seconds / 5) * 5} s left"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def print_bench(summaries: Sequence[Summary], notices: Sequence[str]) -> None:
    """Print a table for each run, then what a person should know."""
    console = _console()
    runs: dict[tuple[object, ...], list[Summary]] = {}
    for summary in summaries:
        case = summary.record.case
        # What was not run is no run of its own; it stands where it would have been.
        place = (case.runtime, case.browser, case.threads, case.batch, work(case))
        runs.setdefault(place, []).append(summary)
    for group in runs.values():
        _print_run(group, console)
    for notice in (*precision_notices(summaries), *notices):
        console.print(f"! {notice}", markup=False)
    if few := sessions_note(ratio for summary in summaries for ratio in summary.ratios.values()):
        console.print(f"note: {few}", markup=False)


def _console() -> Console:
    """A console for results that leaves it to the terminal to break lines, so that no figure
    is cut off."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, width=_TABLE_WIDTH)


def _print_run(group: Sequence[Summary], console: Console) -> None:
    from rich.table import Table

    case = group[0].record.case
    device = max((s.record for s in group), key=lambda r: r.status == "measured").device
    console.print(
        f"{device.label}: {device.engine}, {device.runtime} {device.runtime_version}, "
        f"{case.threads} thread{'s' * (case.threads > 1)}, {_work(group)}",
        style="bold",
        markup=False,
    )
    several = len({s.record.case.artifact for s in group}) > 1
    references = list(dict.fromkeys(name for s in group for name in s.ratios))
    leaves_early = any(s.record.layers for s in group)
    if leaves_early:  # how a file does against itself has a column of its own
        references = [name for name in references if any(_is_shown(s, name) for s in group)]
    # A baseline of one's own in each precision would be a column each, nearly all empty: the
    # report and --json have those ratios.
    references = [name for name in references if not name.startswith(f"{BASELINE}-")]
    references.sort(key=lambda name: name != BASELINE)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model")
    on_texts = case.texts is not None
    columns = ["file", "load", "memory", "cold", "warm", "median", "p90", "runs"]
    if on_texts:
        columns.insert(columns.index("median"), "mean")
    columns += [f"time / {name}" for name in references]
    if leaves_early:
        columns += ["time / all layers", "layers mean, p90"]
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("remarks")
    for summary in group:
        record = summary.record
        name = f"{record.case.artifact} {record.case.variant}" if several else record.case.variant
        ratios = [
            _ratio(summary.ratios[name] if _is_shown(summary, name) else None)
            for name in references
        ]
        if leaves_early:
            full = exit_of(record.case.variant)
            ratios.append(_ratio(summary.ratios.get(full) if full else None))
            used = record.layers
            ratios.append(f"{used.mean:.2f}, {used.p90:g} of {used.of}" if used else "all")
        table.add_row(name, *_figures(record, mean=on_texts), *ratios, _remarks(record))
    console.print(table, markup=False)
    console.print()


def _work(group: Sequence[Summary]) -> str:
    """Name what was run, with the lengths that the artifacts' tokenizers make of texts."""
    case = group[0].record.case
    if case.texts is None:
        return f"batch {case.batch}, sequence {case.sequence}"
    lengths = dict.fromkeys(f"{summary.record.case.sequence:,}" for summary in group)
    return f"{work_name(case)}, of {' and '.join(lengths)} tokens on average"


def _is_shown(summary: Summary, reference: str) -> bool:
    """Whether there is such a ratio, and it is not the one of a file to itself."""
    return reference in summary.ratios and reference != exit_of(summary.record.case.variant)


def _figures(record: Measurement, *, mean: bool) -> list[str]:
    memory = record.memory
    used = memory.wasm_heap if memory.wasm_heap is not None else memory.added_rss
    samples = record.samples_ms
    return [
        megabytes(record.model.file_bytes),
        _ms(record.times.session_create),
        "-" if used is None else f"{used / 1e6:,.0f} MB",
        _ms(record.times.cold_first),
        _ms(record.times.warm_first),
        *([_ms(record.mean_ms if samples else None)] if mean else []),
        _ms(record.median_ms if samples else None),
        _ms(record.p90_ms if samples else None),
        f"{len(samples):,}",
    ]


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:,.2f} ms"


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    interval = f" ({ratio.low:.2f}–{ratio.high:.2f})" if ratio.has_interval else ""
    return f"{ratio.value:.2f}×{interval}"


def _remarks(record: Measurement) -> str:
    words: list[str] = []
    if record.status != "measured":
        words.append(record.status)
    for flag in record.flags:
        if flag == "fewer threads":
            words.append(f"{record.threads_used} of {record.case.threads} threads used")
        elif flag == "failed check":
            error, limit = record.check.relative_error, record.check.tolerance
            known = error is not None and limit is not None
            words.append(
                f"outputs differ: error {error:.1e}, allowed {limit:.1e}"
                if known
                else "outputs are not those of the reference vectors"
            )
        else:
            words.append(flag)
    return ", ".join(words)
