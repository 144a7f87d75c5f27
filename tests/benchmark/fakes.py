"""A launcher without any real runtime: workers that follow a script."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from exporter.benchmark import Arm, BenchmarkOptions, Run, Subject
from exporter.benchmark.run import RunProtocol
from exporter.errors import BenchmarkError
from exporter.inputs import Feeds
from exporter.records import Case, Check, Device, Measurement, Memory, ModelFile, Times
from exporter.runtimes.worker import Opened, Task
from tests.samples import ids_inputs

__all__ = [
    "DEVICE",
    "Clock",
    "FakeLauncher",
    "Script",
    "arm",
    "crash",
    "full_disk",
    "measurement",
    "protocol",
    "run_of",
    "subject",
]

DEVICE = Device(
    label="Test CPU",
    cpu="Test CPU",
    cores=64,
    usable_cores=64,
    system="TestOS",
    engine="CPython 3.12",
    runtime="onnxruntime",
    runtime_version="1.30",
)


@contextmanager
def full_disk(bytes_left: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Clock:
    """Seconds that pass only when a worker runs."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Script:
    """What the workers of one variant do.

    Args:
        times_ms: of its runs, repeated for ever; an exception in it is raised, once.
        opening: what opening raises.
        opened: what opening tells, beyond the usual.
        was_hidden: whether the page is out of sight.
        layers: layers that a text uses, by its first id; none: the worker does not tell.
    """

    times_ms: Sequence[float | BaseException] = (10.0,)
    opening: BaseException | None = None
    opened: dict[str, Any] = field(default_factory=dict)
    was_hidden: bool = False
    layers: dict[int, int] = field(default_factory=dict)

    def runs(self) -> Iterator[float | BaseException]:
        """The runs of one worker."""
        last = [t for t in self.times_ms if not isinstance(t, BaseException)][-1:] or [10.0]
        return chain(self.times_ms, repeat(last[0]))


class FakeWorker:
    """Runs by its script, on the launcher's clock, and logs what it does."""

    def __init__(self, launcher: FakeLauncher, name: str, script: Script) -> None:
        self._launcher, self._name, self._runs = launcher, name, script.runs()
        self._layers = script.layers
        usual: dict[str, Any] = {
            "times": Times(process_start=1.0, session_create=20.0, cold_first=15.0),
            "memory": Memory(added_rss=1000, peak_rss=5000),
            "check": Check(),
            "threads_used": 1,
            "device": DEVICE,
        }
        self.opened = Opened(**(usual | script.opened))
        self.was_hidden = script.was_hidden
        self.closed = False

    def run(self) -> float:
        assert not self.closed, "a closed worker was run"
        step = next(self._runs)
        if isinstance(step, BaseException):
            raise step
        self._launcher.log.append(("run", self._name))
        self._launcher.clock.now += step / 1e3
        return step

    def outputs(self, feeds: Feeds | None = None) -> dict[str, np.ndarray]:
        return {}

    def compute(self, feeds: Feeds | None = None) -> tuple[float, dict[str, np.ndarray]]:
        assert feeds is not None
        text = int(feeds["input_ids"][0, 0])
        self._launcher.texts.append((self._name, text))
        used = self._layers.get(text)
        return self.run(), {} if used is None else {"layers_used": np.array([used])}

    def memory(self) -> Memory:
        return Memory(peak_rss=7000)

    def close(self) -> None:
        if not self.closed:
            self._launcher.log.append(("close", self._name))
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class FakeLauncher:
    """Starts fake workers.

    Args:
        scripts: what each variant does; one for each session, or one for all.
        absent: why a runtime is not there.
        installed: browsers.
    """

    def __init__(
        self,
        scripts: dict[str, Script | list[Script]] | None = None,
        absent: dict[str, str] | None = None,
        installed: Sequence[str] = ("chromium",),
    ) -> None:
        self.scripts = scripts or {}
        self.absent = absent or {}
        self.installed = list(installed)
        self.clock = Clock()
        self.log: list[tuple[str, str]] = []
        self.tasks: list[Task] = []
        self.texts: list[tuple[str, int]] = []
        self._sessions: dict[str, int] = {}

    def browsers(self) -> list[str]:
        return self.installed

    def missing(self, case: Case) -> str | None:
        return self.absent.get(case.runtime)

    def device(self, case: Case) -> Device:
        return DEVICE

    def open(self, case: Case, task: Task) -> FakeWorker:
        name = case.variant
        self.log.append(("open", name))
        self.tasks.append(task)
        scripts = self.scripts.get(name, Script())
        session = self._sessions.get(name, 0)
        self._sessions[name] = session + 1
        script = scripts[session] if isinstance(scripts, list) else scripts
        if script.opening is not None:
            raise script.opening
        return FakeWorker(self, name, script)


def subject(variant: str = "fp32", artifact: str = "demo", **changes: Any) -> Subject:
    """A model file that is never read."""
    values: dict[str, Any] = {
        "artifact": artifact,
        "variant": variant,
        "path": Path(f"{variant}.onnx"),
        "files": (Path(f"{variant}.onnx"),),
        "model": ModelFile(
            path=f"onnx/{variant}.onnx",
            sha256=hashlib.sha256(f"{artifact}/{variant}".encode()).hexdigest(),
            file_bytes=1_000_000,
        ),
        "inputs": ids_inputs(100, 24),
    }
    return Subject(**(values | changes))


def arm(variant: str = "fp32", artifact: str = "demo", **changes: Any) -> Arm:
    """A case of the CPU, one thread, 1×8."""
    values: dict[str, Any] = {"runtime": "cpu", "threads": 1, "batch": 1, "sequence": 8}
    case = Case(artifact=artifact, variant=variant, **(values | changes))
    return Arm(case, subject(variant, artifact), {"batch": case.batch, "sequence": case.sequence})


def run_of(*variants: str, **changes: Any) -> Run:
    """One run of these variants."""
    return Run(tuple(arm(variant, **changes) for variant in variants))


def protocol(launcher: FakeLauncher, *variants: str, **options: Any) -> RunProtocol:
    """The protocol for one run of these variants, on the launcher's clock."""
    values: dict[str, Any] = {"sessions": 1, "min_runs": 4, "min_seconds": 0.0}
    return RunProtocol(
        run_of(*variants),
        launcher,
        BenchmarkOptions(**(values | options)),
        clock=launcher.clock,
        swapped=lambda: 0,
    )


def measurement(variant: str = "fp32", **changes: Any) -> Measurement:
    """A record of :func:`arm`."""
    one = arm(variant)
    values: dict[str, Any] = {
        "tool": "1.0",
        "created": "2026-01-31T12:00:00Z",
        "run": "run 1",
        "case": one.case,
        "model": one.subject.model,
        "device": DEVICE,
        "samples_ms": (1.0, 2.0, 4.0, 8.0, 100.0),
    }
    return Measurement(**(values | changes))


def crash(text: str = "the process ended with exit code 1") -> BenchmarkError:
    """What a worker raises that died."""
    return BenchmarkError(text)
