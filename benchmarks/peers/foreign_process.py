"""The process of a worker for another runtime: OpenVINO, or LiteRT.

    python foreign_process.py openvino|openvino-float32|litert

Runs in that runtime's own environment, with this project's folder on ``PYTHONPATH`` for the
modules that need at most numpy. Its messages are those of ``exporter.runtimes.cpu_process``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from exporter.inputs import Feeds, ModelInputs
from exporter.packed_arrays import pack_array, unpack_array
from exporter.runtimes.cores import stay_on_cores

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUTS = ("last_hidden_state", "pooler_output")


class Session(Protocol):
    """One loaded model."""

    version: str

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run once; return the named outputs."""


class OpenVinoSession:
    """A model in OpenVINO, which by itself computes float32 in bfloat16 where the CPU can."""

    hints: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, path: str, threads: int) -> None:
        import openvino

        options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, **self.hints}
        self.version = openvino.__version__.split("-")[0]
        self._request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See :class:`Session`."""
        found = self._request.infer(feeds, share_inputs=True)
        return {output.get_any_name(): value for output, value in found.items()}


class Float32OpenVinoSession(OpenVinoSession):
    """The same with float32 as float32, which is what the other runtimes do."""

    hints = MappingProxyType({"INFERENCE_PRECISION_HINT": "f32"})


class LiteRtSession:
    """A model in LiteRT with its XNNPACK kernels."""

    def __init__(self, path: str, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.version = metadata.version("ai-edge-litert")
        self._interpreter = Interpreter(path, num_threads=threads)
        self._runner = self._interpreter.get_signature_runner()
        # The converter numbers arguments and results and forgets their names.
        taken = self._runner.get_input_details()
        self._names = dict(zip(sorted(taken), INPUTS, strict=True))
        self._types = {name: detail["dtype"] for name, detail in taken.items()}

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See :class:`Session`."""
        given = {
            own: feeds[name].astype(self._types[own], copy=False)
            for own, name in self._names.items()
        }
        found = self._runner(**given)
        return dict(zip(OUTPUTS, (found[name] for name in sorted(found)), strict=True))


SESSIONS: dict[str, type[Any]] = {
    "openvino": OpenVinoSession,
    "openvino-float32": Float32OpenVinoSession,
    "litert": LiteRtSession,
}


class OpenModel:
    """One model in one session, as the first request wants it."""

    def __init__(self, kind: str, request: Mapping[str, Any]) -> None:
        stay_on_cores(request["threads"])
        start = time.perf_counter()
        import_module("ai_edge_litert.interpreter" if kind == "litert" else "openvino")
        runtime_start_ms = _ms_since(start)
        self._feeds = ModelInputs.from_dict(request["inputs"]).draw(request["sizes"])
        path, threads = request["model"], request["threads"]
        before = _memory("VmRSS")
        start = time.perf_counter()
        self._session: Session = SESSIONS[kind](path, threads)
        session_create_ms = _ms_since(start)
        cold_first_ms, _ = self._run(self._feeds)
        self._added = _memory("VmRSS") - before
        memory = self.memory()
        warm_first_ms = None
        if request["warmFirst"]:
            del self._session
            self._session = SESSIONS[kind](path, threads)
            warm_first_ms, _ = self._run(self._feeds)
        self.opened = {
            "type": "opened",
            "times": {
                "runtime_start": runtime_start_ms,
                "session_create": session_create_ms,
                "cold_first": cold_first_ms,
                "warm_first": warm_first_ms,
            },
            "memory": memory,
            "check": {},
            "threadsUsed": threads,
            "runtimeVersion": self._session.version,
        }

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a further request."""
        if request["type"] == "memory":
            return {"type": "memory", "memory": self.memory()}
        packed = request.get("feeds")
        feeds = {n: unpack_array(v) for n, v in packed.items()} if packed else self._feeds
        ms, outputs = self._run(feeds)
        if request["type"] == "run":
            return {"type": "ran", "ms": ms}
        values = {name: pack_array(np.asarray(array)) for name, array in outputs.items()}
        return {"type": "computed", "ms": ms, "outputs": values}

    def memory(self) -> dict[str, int | None]:
        """Return bytes."""
        return {"added_rss": self._added, "peak_rss": _memory("VmHWM"), "wasm_heap": None}

    def _run(self, feeds: Feeds) -> tuple[float, dict[str, np.ndarray]]:
        start = time.perf_counter()
        outputs = self._session.run(feeds)
        return _ms_since(start), outputs


def main() -> None:
    """Answer until standard input ends; the first request opens the model."""
    # What the runtimes print must not get between the messages.
    messages, sys.stdout = sys.stdout, sys.stderr
    resolution_ms = time.get_clock_info("perf_counter").resolution * 1e3
    _say(messages, {"type": "ready", "timerResolutionMs": resolution_ms})
    model: OpenModel | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if model is None:
                model = OpenModel(sys.argv[1], request)
                _say(messages, model.opened)
            else:
                _say(messages, model.answer(request))
        except Exception as error:
            _say(messages, {"type": "error", "message": f"{type(error).__name__}: {error}"[:1500]})


def _say(stream: Any, answer: Mapping[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


def _ms_since(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


def _memory(key: str) -> int:
    """A figure of Linux's ``/proc/self/status``, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    found = next(line for line in lines if line.startswith(f"{key}:"))
    return int(found.split()[1]) * 1024


if __name__ == "__main__":
    main()
