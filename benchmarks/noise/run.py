"""Whether ratios deserve their intervals: a file against itself, and a planted slow-down.

    python -m benchmarks.noise.run [--trials 20] [--work-dir DIR]

A/A: ``albert-export bench X X`` as people run it; each interval has to contain 1, in all but
one trial in 20 on average. Planted: the same with one arm whose every run is followed by a busy
wait of a fifth of what it took; the interval has to lie above 1. Writes ``results.json`` and
``results.md`` beside this file; takes about 10 minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from benchmarks.commands import albert_export
from exporter.benchmark import Bench, BenchmarkOptions, InstalledRuntimes, Ratio, summarize
from exporter.benchmark.prepare import prepare
from exporter.inputs import Feeds
from exporter.records import Case, Memory
from exporter.runtimes.device import describe_python
from exporter.runtimes.worker import Task, Worker

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / "exporter" / "demo_model" / "model.pt"
SLOWER = 0.2
FEWEST = 0.9
"""Share of the A/A intervals that must contain 1; 18 of 20."""


@dataclass(frozen=True)
class Trial:
    """One ratio of the second arm to the first."""

    value: float
    low: float
    high: float

    def contains(self, value: float) -> bool:
        """Whether the interval does."""
        return self.low <= value <= self.high


@click.command()
@click.option("--trials", type=click.IntRange(1), default=20, show_default=True)
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where the artifact is kept.")
def main(trials: int, work_dir: Path | None) -> None:
    """Run both kinds of trials in turns, write the counts."""
    work = (work_dir or Path(tempfile.mkdtemp(prefix="noise-"))).absolute()
    artifact = work / "demo"
    if not artifact.exists():
        albert_export("export", MODEL, "-o", artifact)
    same, planted = [], []
    for number in range(trials):
        same.append(against_itself(artifact))
        planted.append(slowed_down(artifact))
        shown = " and ".join(f"{t.low:.3f}–{t.high:.3f}" for t in (same[-1], planted[-1]))
        print(f"trial {number + 1} of {trials}: {shown}", file=sys.stderr)
    results = {
        "created": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": msgspec.to_builtins(describe_python()),
        "versions": {n: metadata.version(n) for n in ("albert-export", "onnxruntime")},
        "trials": trials,
        "same_containing_1": sum(trial.contains(1.0) for trial in same),
        "planted_detected": sum(trial.low > 1 for trial in planted),
        "planted_containing_it": sum(trial.contains(1 + SLOWER) for trial in planted),
        "same": [asdict(trial) for trial in same],
        "planted": [asdict(trial) for trial in planted],
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (HERE / "results.md").write_text(document(results, same, planted), encoding="utf-8")
    print(document(results, same, planted))
    if results["same_containing_1"] < FEWEST * trials or results["planted_detected"] < trials:
        raise SystemExit("the intervals do not keep what they promise")


def against_itself(artifact: Path) -> Trial:
    """Measure one file in both arms, by the command."""
    output = albert_export("bench", artifact, artifact, "--no-transfer").output
    (found,) = output["summary"][1]["ratios"].values()
    return Trial(found["value"], found["low"], found["high"])


def slowed_down(artifact: Path) -> Trial:
    """The same with the second arm slower."""
    launcher = SlowSecondArm()
    options = BenchmarkOptions()
    with tempfile.TemporaryDirectory() as cache:
        folders = [artifact, artifact]
        prepared = prepare(folders, options, launcher, cache=Path(cache), transfer=False)
    records = list(Bench(prepared.runs, launcher, options).records())
    found: Ratio
    (found,) = summarize(records)[1].ratios.values()
    return Trial(found.value, found.low, found.high)


class SlowSecondArm(InstalledRuntimes):
    """Installed runtimes, where the artifact that is measured second runs slower."""

    def __init__(self) -> None:
        self._first: str | None = None

    def open(self, case: Case, task: Task) -> Worker:
        """See :class:`~exporter.benchmark.Launcher`."""
        self._first = self._first or case.artifact
        worker = super().open(case, task)
        return worker if case.artifact == self._first else SlowWorker(worker)


class SlowWorker:
    """A worker whose runs take longer, by a busy wait in proportion to each."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self.opened = worker, worker.opened

    @property
    def was_hidden(self) -> bool:
        """See :class:`~exporter.runtimes.worker.Worker`."""
        return self._worker.was_hidden

    def run(self) -> float:
        """Run, wait, and return what both took."""
        took_ms = self._worker.run()
        start = time.perf_counter()
        while (waited_ms := (time.perf_counter() - start) * 1e3) < SLOWER * took_ms:
            pass
        return took_ms + waited_ms

    def outputs(self, feeds: Feeds | None = None) -> dict[str, np.ndarray]:
        """See :class:`~exporter.runtimes.worker.Worker`."""
        return self._worker.outputs(feeds)

    def compute(self, feeds: Feeds | None = None) -> tuple[float, dict[str, np.ndarray]]:
        """See :class:`~exporter.runtimes.worker.Worker`."""
        return self._worker.compute(feeds)

    def memory(self) -> Memory:
        """See :class:`~exporter.runtimes.worker.Worker`."""
        return self._worker.memory()

    def close(self) -> None:
        """See :class:`~exporter.runtimes.worker.Worker`."""
        self._worker.close()

    def __enter__(self) -> SlowWorker:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()


def document(results: dict[str, Any], same: Sequence[Trial], planted: Sequence[Trial]) -> str:
    """Return ``results.md``."""
    device, trials = results["device"], results["trials"]
    lines = [
        "# Do the intervals keep what they promise?",
        "",
        f"The demo model, `albert-export bench` with its default options, {trials} trials of "
        f"each kind. Measured on {results['created']}: {device['cpu']}, {device['cores']} cores, "
        f"{device['system']}; onnxruntime {results['versions']['onnxruntime']}.",
        "",
        "    python -m benchmarks.noise.run",
        "",
        "| trial | count |",
        "|---|--:|",
        f"| the same file in both arms: the 95 % interval contains 1 "
        f"| {results['same_containing_1']} of {trials} |",
        f"| one arm made 20 % slower: the interval lies above 1 "
        f"| {results['planted_detected']} of {trials} |",
        f"| one arm made 20 % slower: the interval contains 1.2 "
        f"| {results['planted_containing_it']} of {trials} |",
        "",
        "Each interval, with its centre:",
        "",
        "| trial | same file | 20 % slower |",
        "|--:|---|---|",
    ]
    for number, pair in enumerate(zip(same, planted, strict=True), start=1):
        cells = [f"{t.value:.3f} ({t.low:.3f}–{t.high:.3f})" for t in pair]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
