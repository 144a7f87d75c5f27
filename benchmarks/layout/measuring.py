"""Files measured by the product's own protocol, every opening told apart.

Loading, the first run and memory come once for each fresh process. Records hold their medians;
an interval needs each of them, which are kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec

from exporter.benchmark import Bench, BenchmarkOptions, InstalledRuntimes, Ratio, Run, paired_ratio
from exporter.cli.bench_view import bench_progress
from exporter.records import Case, Measurement, Runtime
from exporter.runtimes.device import describe_python
from exporter.runtimes.worker import Opened, Task, Worker

__all__ = [
    "FIGURES",
    "RUNTIMES",
    "SEQUENCES",
    "Measured",
    "Openings",
    "described",
    "measure",
    "measuring_options",
    "opening_median",
    "opening_ratio",
]

RUNTIMES: tuple[Runtime, ...] = ("cpu", "node")
SEQUENCES = (16, 128)
VERSIONS = ("albert-export", "onnxruntime", "onnx", "onnx-ir", "torch", "transformers")

Openings = tuple[Opened, ...]
FIGURES: dict[str, Callable[[Opened], float | None]] = {
    "load_ms": lambda opened: opened.times.session_create,
    "first_ms": lambda opened: opened.times.cold_first,
    "added_bytes": lambda opened: opened.memory.added_rss,
    "heap_bytes": lambda opened: opened.memory.wasm_heap,
}
"""What happens once for each process; ``None`` where it does not exist."""


@dataclass(frozen=True)
class Measured:
    """One case.

    Args:
        record: its measurement.
        openings: what each of its processes told, in order: the *i*-th of two cases of one run
            were opened one after the other.
    """

    record: Measurement
    openings: Openings

    def to_dict(self) -> dict[str, Any]:
        """Return what matters of it as plain JSON values."""
        record = self.record
        return {
            "runtime": record.case.runtime,
            "sequence": record.case.sequence,
            "file": record.case.artifact,
            "engine": f"{record.device.engine}, {record.device.runtime} "
            f"{record.device.runtime_version}",
            "relative_error": record.check.relative_error,
            "flags": list(record.flags),
            "median_ms": round(record.median_ms, 3),
            "samples_ms": [round(sample, 3) for sample in record.samples_ms],
            "session_runs": list(record.session_runs),
            "openings": [
                {name: get(one) for name, get in FIGURES.items()} for one in self.openings
            ],
        }


class NotingRuntimes(InstalledRuntimes):
    """Installed runtimes that keep what each process told when it opened its model."""

    def __init__(self) -> None:
        self._noted: dict[Case, list[Opened]] = {}

    def open(self, case: Case, task: Task) -> Worker:
        """See :class:`~exporter.benchmark.Launcher`."""
        worker = super().open(case, task)
        self._noted.setdefault(case, []).append(worker.opened)
        return worker

    def take(self) -> dict[Case, list[Opened]]:
        """Return what was noted since the last call."""
        noted, self._noted = self._noted, {}
        return noted


def measuring_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--sessions``, ``--min-runs`` and ``--output``."""
    choices = (
        click.option(
            "--sessions",
            type=click.IntRange(2),
            default=6,
            show_default=True,
            help="Fresh processes of each file; an interval needs two, and an even number is fair.",
        ),
        click.option(
            "--min-runs",
            type=click.IntRange(2),
            default=42,
            show_default=True,
            help="Runs of each file over all sessions, at each length.",
        ),
        click.option(
            "--output",
            type=click.Path(file_okay=False, exists=True, path_type=Path),
            default=Path(__file__).parent,
            show_default="beside this file",
            help="Folder for the results.",
        ),
    )
    for choice in reversed(choices):
        command = choice(command)
    return command


def measure(runs: Sequence[Run], options: BenchmarkOptions) -> tuple[list[Measured], list[str]]:
    """Measure all runs.

    Returns:
        The cases, in order, and what a person should know.

    Raises:
        SystemExit: a case could not be measured, or its outputs are wrong.
    """
    launcher = NotingRuntimes()
    found: list[Measured] = []
    with bench_progress() as progress:
        bench = Bench(runs, launcher, options, progress)
        noted: dict[Case, list[Opened]] = {}
        for record in bench.records():
            case = record.case
            if record.status != "measured" or record.check.status == "failed":
                why = record.error or "its outputs differ from the reference vectors"
                raise SystemExit(f"{case.artifact}, {case.runtime}, {case.sequence}: {why}")
            # A run's records come before the next run opens anything. Where memory is short,
            # one is divided into several, which may hold the same case.
            if not found or found[-1].record.run != record.run:
                noted = launcher.take()
            found.append(Measured(record, tuple(noted[case])))
    return found, bench.notices


def described(
    measured: Sequence[Measured], notices: Sequence[str], options: BenchmarkOptions
) -> dict[str, Any]:
    """Return what all results hold, as plain JSON values: where, how, and the measurements."""
    return {
        "created": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": msgspec.to_builtins(describe_python()),
        "versions": {name: metadata.version(name) for name in VERSIONS},
        "sessions": options.sessions,
        "min_runs": options.min_runs,
        "notices": list(notices),
        "records": [one.to_dict() for one in measured],
    }


def opening_median(openings: Openings, figure: str) -> float | None:
    """Return the median over processes; ``None``: the figure does not exist there."""
    values = [FIGURES[figure](opened) for opened in openings]
    known = [value for value in values if value is not None]
    return median(known) if len(known) == len(values) else None


def opening_ratio(candidate: Openings, reference: Openings, figure: str) -> Ratio:
    """Compare what happens once, process by process.

    Raises:
        BenchmarkError: a figure is not positive, or does not exist there.
    """
    own, its = ([FIGURES[figure](one) or 0.0 for one in side] for side in (candidate, reference))
    return paired_ratio(own, its, session_runs=[1] * len(own))
