"""The process of a :class:`~exporter.runtimes.cpu_worker.CpuWorker`.

Requests and answers are one line of JSON each, on standard input and output; the messages
are those of ``web_demo/measure/core.js``.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from exporter.errors import ExportError
from exporter.inputs import Feeds
from exporter.packed_arrays import pack_array, unpack_array
from exporter.records import Check
from exporter.reference import check_outputs, read_reference
from exporter.runtimes.cores import stay_on_cores

__all__ = ["main"]


class _OpenModel:
    """One model in one session."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        stay_on_cores(request["threads"])
        start = time.perf_counter()
        import onnxruntime

        from exporter.runtimes.cpu import CpuSession

        runtime_start_ms = _ms_since(start)
        self._feeds = _unpacked(request["feeds"])
        path, threads = Path(request["model"]), request["threads"]
        before = _memory("VmRSS")
        start = time.perf_counter()
        self._session = CpuSession(path, threads=threads)
        session_create_ms = _ms_since(start)
        cold_first_ms, _ = self._run()
        after = _memory("VmRSS")
        self._added = None if before is None or after is None else after - before
        memory = self.memory()
        check = self._check(request["reference"], request["tolerance"])
        warm_first_ms = None
        if request["warmFirst"]:
            del self._session  # the memory of two at once would be in the peak
            self._session = CpuSession(path, threads=threads)
            warm_first_ms, _ = self._run()
        self.opened = {
            "type": "opened",
            "times": {
                "runtime_start": runtime_start_ms,
                "session_create": session_create_ms,
                "cold_first": cold_first_ms,
                "warm_first": warm_first_ms,
            },
            "memory": memory,
            "check": msgspec.to_builtins(check),
            "threadsUsed": threads,
            "runtimeVersion": onnxruntime.__version__,
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["type"] == "run":
            return {"type": "ran", "ms": self._run()[0]}
        if request["type"] == "compute":
            ms, outputs = self._run(_unpacked(request.get("feeds", {})))
            values = {name: pack_array(array) for name, array in outputs.items()}
            return {"type": "computed", "ms": ms, "outputs": values}
        if request["type"] == "memory":
            return {"type": "memory", "memory": self.memory()}
        raise ExportError(f"unknown request {request['type']!r}")

    def memory(self) -> dict[str, int | None]:
        return {"added_rss": self._added, "peak_rss": _peak_bytes(), "wasm_heap": None}

    def _run(self, feeds: Feeds | None = None) -> tuple[float, Mapping[str, Any]]:
        start = time.perf_counter()
        outputs = self._session.run(feeds or self._feeds)
        return _ms_since(start), outputs

    def _check(self, reference: str | None, tolerance: float | None) -> Check:
        if reference is None or tolerance is None:
            return Check()
        return check_outputs(read_reference(Path(reference)), self._session.run, tolerance)


def _unpacked(feeds: Mapping[str, Any]) -> Feeds:
    return {name: unpack_array(value) for name, value in feeds.items()}


def main() -> None:
    """Answer until standard input ends; the first request opens the model."""
    resolution_ms = time.get_clock_info("perf_counter").resolution * 1e3
    _say({"type": "ready", "timerResolutionMs": resolution_ms})
    model: _OpenModel | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if model is None:
                model = _OpenModel(request)
                _say(model.opened)
            else:
                _say(model.answer(request))
        except ExportError as error:
            _say({"type": "error", "message": str(error)})


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


def _memory(key: str) -> int | None:
    """A figure of Linux's ``/proc/self/status``, in bytes; ``None`` on other systems."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    found = next((line for line in status.splitlines() if line.startswith(f"{key}:")), None)
    return int(found.split()[1]) * 1024 if found else None


def _peak_bytes() -> int:
    # Linux counts into ru_maxrss what the parent held when it started this process.
    peak = _memory("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss if peak is None else peak


if __name__ == "__main__":
    main()
