"""Processes that each hold one model, and runs that take turns between them.

The models take turns run by run, so that a machine that slows down slows all alike. Beside
wall time each figure comes as CPU time of the process, which other work on the machine
touches less.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import onnx

HERE = Path(__file__).parent
WEB_VERSION = "1.30.0"
RUNTIMES = ("cpu", "wasm")
WARM_UP_RUNS = 2


class Worker:
    """One process with one model open.

    Args:
        runtime: ``cpu`` or ``wasm``.
        path: the model.
        sequence: tokens per run.
        work: the folder that :func:`prepare` filled.

    Attributes:
        opened: ``load_ms``, ``load_cpu_ms``, ``first_ms``, ``memory_bytes`` (CPU: growth of
            the peak resident memory by loading and one run; WASM: size of the heap).
        output: the first output of the first run, flat.
    """

    def __init__(self, runtime: str, path: Path, sequence: int, work: Path) -> None:
        commands = {
            "cpu": [sys.executable, str(HERE / "cpu_worker.py")],
            "wasm": ["node", str(HERE / "node_worker.mjs"), str(_entry(work)), str(_tiny(work))],
        }
        self._path = path
        self._process = subprocess.Popen(
            commands[runtime], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        dump = work / f"{runtime}.output"
        try:
            self.opened = self.ask({"path": str(path), "sequence": sequence, "dump": str(dump)})
        except BaseException:
            self._process.kill()
            raise
        self.output = np.fromfile(dump, np.float32)

    def ask(self, request: object) -> dict[str, Any]:
        """Send one request, return the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"measuring {self._path.name} ended: {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@dataclass
class Samples:
    """All figures of one model in one runtime; lists are in the order of measuring."""

    opened: list[dict[str, float]] = field(default_factory=list)
    runs: dict[int, list[dict[str, float]]] = field(default_factory=dict)
    error: float = 0.0

    def median_opened(self, key: str) -> float:
        """Median of what opening took."""
        return statistics.median(one[key] for one in self.opened)

    def median_run(self, sequence: int, key: str) -> float:
        """Median of the steady runs."""
        return statistics.median(one[key] for one in self.runs[sequence])

    def ratio(self, other: Samples, sequence: int, key: str) -> float:
        """Median over the turns of this model's time divided by the other's."""
        pairs = zip(self.runs[sequence], other.runs[sequence], strict=True)
        return statistics.median(mine[key] / its[key] for mine, its in pairs)

    def load_ratio(self, other: Samples, key: str) -> float:
        """The same of opening."""
        pairs = zip(self.opened, other.opened, strict=True)
        return statistics.median(mine[key] / its[key] for mine, its in pairs)


def prepare(work: Path) -> None:
    """Install onnxruntime-web into ``work`` and make the tiny model."""
    work.mkdir(parents=True, exist_ok=True)
    if not _entry(work).exists():
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("npm is not installed: Node 20 or later is needed")
        package = f"onnxruntime-web@{WEB_VERSION}"
        subprocess.run([npm, "install", "--silent", "--prefix", str(work), package], check=True)
    text = '<ir_version: 8, opset_import: ["" : 18]> tiny (float[n] x) => (float[n] y) {y = Abs(x)}'
    onnx.save(onnx.parser.parse_model(text), _tiny(work))


def measure(
    models: Mapping[str, Path],
    runtime: str,
    *,
    work: Path,
    loads: int,
    runs: Mapping[int, int],
    progress: Callable[[str], None],
) -> dict[str, Samples]:
    """Open each model ``loads`` times, and run each ``runs[sequence]`` times, in turns.

    Returns:
        Samples by name; ``error`` is the largest absolute difference to the first model's
        output, over all sequences.
    """
    samples = {name: Samples() for name in models}
    shortest = min(runs)
    for number in range(loads):
        progress(f"{runtime}: loading, {number + 1} of {loads}")
        for name, path in models.items():
            with Worker(runtime, path, shortest, work) as worker:
                samples[name].opened.append(worker.opened)
    for sequence, count in runs.items():
        with ExitStack() as stack:
            progress(f"{runtime}: sequence {sequence}")
            workers = {
                name: stack.enter_context(Worker(runtime, path, sequence, work))
                for name, path in models.items()
            }
            reference = next(iter(workers.values())).output
            for name, worker in workers.items():
                difference = float(np.max(np.abs(worker.output - reference)))
                samples[name].error = float(np.max([samples[name].error, difference]))
                samples[name].runs[sequence] = []
            for turn in range(WARM_UP_RUNS + count):
                for name, worker in workers.items():
                    taken = worker.ask("run")
                    if turn >= WARM_UP_RUNS:
                        samples[name].runs[sequence].append(taken)
    return samples


def _entry(work: Path) -> Path:
    return work / "node_modules/onnxruntime-web/dist/ort.node.min.mjs"


def _tiny(work: Path) -> Path:
    return work / "tiny.onnx"
