"""What the benchmark sees of a runtime: one model opened apart from all others.

A worker is a process (or a page of a browser started for it) that opens one model and runs
it when told, so that its memory and caches are its alone while the caller decides whose
turn it is. All kinds of workers speak the same messages, see ``web_demo/measure/core.js``.

Opening goes: start of the process, start of the runtime, creation of the session, cold
first run, check of the outputs against the reference vectors, then the same file in a
second session and its first run. Added memory is taken after the cold first run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import msgspec
import numpy as np

from exporter.errors import BenchmarkError
from exporter.inputs import Feeds, ModelInputs
from exporter.packed_arrays import pack_array, unpack_array
from exporter.records import Check, Device, Memory, Times
from exporter.runtimes.device import usable_cores
from exporter.runtimes.line_process import NoAnswerError

__all__ = ["Channel", "MessageWorker", "Opened", "Task", "Worker", "external_data"]

_START_TIMEOUT_S = 60.0
"""Longest wait for a process or page to start."""

_Part = TypeVar("_Part", Times, Memory, Check)


@dataclass(frozen=True)
class Task:
    """What a worker opens and runs.

    Args:
        path: the model; external data lies beside it, as ``<name>_data…`` or ``<name>.data…``.
        inputs: what it takes.
        sizes: size of each symbolic dimension of a run.
        given: arrays to run on; ``None``: random ones of these sizes.
        threads: compute threads asked for; not more are used than there are usable cores.
        reference: ``reference.json`` of the artifact, where the outputs are to be checked.
        tolerance: largest relative error against it.
        warm_first: whether to open a second session.
        heap_bytes: most that a WebAssembly heap may claim; ``None``: as the runtime asks.
        timeout_s: longest that opening it, or one run, may take; then the worker is ended.
    """

    path: Path
    inputs: ModelInputs
    sizes: Mapping[str, int]
    threads: int = 1
    reference: Path | None = None
    tolerance: float | None = None
    warm_first: bool = True
    heap_bytes: int | None = None
    timeout_s: float = 300.0
    given: Feeds | None = None

    def feeds(self) -> Feeds:
        """Return the arrays to run on; the same in every runtime.

        Raises:
            ExportError: the sizes are beyond what the model takes.
        """
        feeds = self.given or self.inputs.draw(self.sizes)
        self.inputs.check(feeds)
        return feeds

    @property
    def usable_threads(self) -> int:
        """Threads asked for, but at most one for each core this process may run on."""
        return min(self.threads, usable_cores())


@dataclass(frozen=True)
class Opened:
    """What opening told.

    Args:
        times, memory, check: as in the record schema; memory after the cold first run.
        threads_used: compute threads of the runtime.
        device: where it runs.
    """

    times: Times
    memory: Memory
    check: Check
    threads_used: int | None
    device: Device


class Worker(Protocol):
    """One open model. All methods raise BenchmarkError where the worker died or hangs.

    Attributes:
        opened: what opening told.
    """

    opened: Opened

    @property
    def was_hidden(self) -> bool:
        """Whether its page was ever out of sight, where browsers slow pages down."""

    def run(self) -> float:
        """Run the model once; return milliseconds."""

    def outputs(self, feeds: Feeds | None = None) -> dict[str, np.ndarray]:
        """Run once, on other inputs where given; return the named outputs."""

    def compute(self, feeds: Feeds | None = None) -> tuple[float, dict[str, np.ndarray]]:
        """Run once, on other inputs where given; return milliseconds and the named outputs."""

    def memory(self) -> Memory:
        """Memory now."""

    def close(self) -> None:
        """End it; safe to call again."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class Channel(Protocol):
    """Messages to one worker and back."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; a worker that is gone shows in :meth:`receive`."""

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next message.

        Raises:
            NoAnswerError: the worker said nothing for so long, and was ended.
            BenchmarkError: the worker ended.
        """

    def close(self) -> None:
        """End the worker; safe to call again."""


class MessageWorker:
    """A worker at the other end of a channel; see :class:`Worker`.

    Args:
        task: what it opens.
        connect: starts it; how long that takes until it is ready is measured.
        request: the message that opens the model.
        describe: from the messages ``ready`` and ``opened`` to the device.
    """

    def __init__(
        self,
        task: Task,
        connect: Callable[[], Channel],
        request: Mapping[str, Any],
        describe: Callable[[Mapping[str, Any], Mapping[str, Any]], Device],
    ) -> None:
        self._task = task
        self._step = "start"
        self.was_hidden = False
        start = time.perf_counter()
        self._channel = connect()
        try:
            ready = self._receive("ready", min(task.timeout_s, _START_TIMEOUT_S))
            process_start_ms = (time.perf_counter() - start) * 1e3
            opened = self._ask({"type": "open", **request}, "opened")
            times = {"process_start": process_start_ms, **opened["times"]}
            self.opened = Opened(
                times=_record(times, Times),
                memory=_record(opened["memory"], Memory),
                check=_record(opened["check"], Check),
                threads_used=opened["threadsUsed"],
                device=describe(ready, opened),
            )
        except BaseException:
            self.close()
            raise

    def run(self) -> float:
        """Run the model once; return milliseconds."""
        return float(self._ask({"type": "run"}, "ran")["ms"])

    def outputs(self, feeds: Feeds | None = None) -> dict[str, np.ndarray]:
        """Run once, on other inputs where given; return the named outputs."""
        return self.compute(feeds)[1]

    def compute(self, feeds: Feeds | None = None) -> tuple[float, dict[str, np.ndarray]]:
        """Run once, on other inputs where given; return milliseconds and the named outputs."""
        packed = {name: pack_array(array) for name, array in (feeds or {}).items()}
        request = {"type": "compute", **({"feeds": packed} if packed else {})}
        computed = self._ask(request, "computed")
        outputs = {name: unpack_array(value) for name, value in computed["outputs"].items()}
        return float(computed["ms"]), outputs

    def memory(self) -> Memory:
        """Memory now."""
        return _record(self._ask({"type": "memory"}, "memory")["memory"], Memory)

    def close(self) -> None:
        """End the worker; safe to call again."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, request: Mapping[str, Any], answer: str) -> dict[str, Any]:
        self._step = request["type"]
        self._channel.send(request)
        return self._receive(answer)

    def _receive(self, kind: str, timeout_s: float | None = None) -> dict[str, Any]:
        """Return the next message of ``kind``; what it says on the way is remembered."""
        limit_s = timeout_s or self._task.timeout_s
        end = time.monotonic() + limit_s
        while True:
            try:
                message = self._channel.receive(max(0.0, end - time.monotonic()))
            except NoAnswerError as error:
                raise NoAnswerError(
                    f"{self._task.path} ({self._step}): not done after {limit_s:g} s; it was ended"
                ) from error
            except BenchmarkError as error:
                raise BenchmarkError(f"{self._task.path} ({self._step}): {error}") from error
            self.was_hidden |= message.get("hidden") is True
            if message.get("type") == "error":
                raise BenchmarkError(f"{self._task.path} ({self._step}): {message['message']}")
            if message.get("type") == kind:
                return message
            if message.get("type") == "progress":
                self._step = message["step"]


def external_data(path: Path) -> list[Path]:
    """Return the files beside a model that may hold its weights."""
    prefixes = (f"{path.name}_data", f"{path.name}.data")
    return sorted(file for file in path.parent.iterdir() if file.name.startswith(prefixes))


def _record(values: Mapping[str, Any], kind: type[_Part]) -> _Part:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise BenchmarkError(f"the worker's {kind.__name__} is not valid: {error}") from error
