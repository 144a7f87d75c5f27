"""Rolled against unrolled ALBERT-base: load, runs and memory, on the CPU and in WebAssembly.

    python -m benchmarks.layout.run [--sessions 6] [--min-runs 42]

Both files are exported anew, and take turns by the protocol of ``albert-export bench``. Writes
``results.json`` and ``results.md`` beside this file, or to ``--output``; takes about 6 minutes
on a quiet machine.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.layout.making import export
from benchmarks.layout.measuring import (
    RUNTIMES,
    SEQUENCES,
    Measured,
    Openings,
    described,
    measure,
    measuring_options,
    opening_median,
    opening_ratio,
)
from benchmarks.layout.table import ORDER, document
from exporter.benchmark import BenchmarkOptions, Ratio, choose_subjects, plan_runs, ratio

LAYOUTS = ("unrolled", "rolled")
"""The first is what the other is compared with."""

Row = dict[str, Any]


@click.command()
@measuring_options
def main(sessions: int, min_runs: int, output: Path) -> None:
    """Export both files, measure them in turns, write the table."""
    options = BenchmarkOptions(
        runtimes=RUNTIMES, sequences=SEQUENCES, sessions=sessions, min_runs=min_runs
    )
    with tempfile.TemporaryDirectory(prefix="albert-export-") as name:
        artifacts = [export(Path(name), layout, "--layout", layout) for layout in LAYOUTS]
        subjects = choose_subjects(artifacts)
        measured, notices = measure(plan_runs(subjects, options), options)
    results = {
        **described(measured, notices, options),
        "file_bytes": {subject.artifact: subject.model.file_bytes for subject in subjects},
        "figures": [row for runtime in RUNTIMES for row in figures(runtime, measured)],
    }
    text = json.dumps(results, indent=1) + "\n"
    (output / "results.json").write_text(text, encoding="utf-8")
    (output / "results.md").write_text(document(results), encoding="utf-8")
    print(document(results))


def figures(runtime: str, measured: Sequence[Measured]) -> Iterator[Row]:
    """Compare the layouts in one runtime: each figure of both, and its ratio."""
    found = {
        (one.record.case.sequence, one.record.case.artifact): one
        for one in measured
        if one.record.case.runtime == runtime
    }
    # Loading knows no length: the processes of all lengths count together.
    all_openings = (
        tuple(opened for length in SEQUENCES for opened in found[length, layout].openings)
        for layout in LAYOUTS
    )
    rows = [*_once("load_ms", None, *all_openings)]
    for length in SEQUENCES:
        unrolled, rolled = (found[length, layout] for layout in LAYOUTS)
        values = (unrolled.record.median_ms, rolled.record.median_ms)
        rows.append(_row("run_ms", length, values, ratio(rolled.record, unrolled.record)))
        for figure in ("first_ms", "added_bytes", "heap_bytes"):
            rows += _once(figure, length, unrolled.openings, rolled.openings)
    for row in sorted(rows, key=lambda row: ORDER.index(row["figure"])):
        yield {"runtime": runtime, **row}


def _once(figure: str, length: int | None, unrolled: Openings, rolled: Openings) -> Iterator[Row]:
    """Compare what happens once for each process, where the runtime has it."""
    values = opening_median(unrolled, figure), opening_median(rolled, figure)
    if None not in values:
        yield _row(figure, length, values, opening_ratio(rolled, unrolled, figure))


def _row(figure: str, length: int | None, values: Sequence[float | None], found: Ratio) -> Row:
    return {
        "figure": figure,
        "sequence": length,
        **dict(zip(LAYOUTS, values, strict=True)),
        "ratio": [round(value, 4) for value in (found.value, found.low, found.high)],
    }


if __name__ == "__main__":
    main()
