"""One model in onnxruntime on the CPU; ``workers.py`` tells it what to do."""

from __future__ import annotations

import json
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


def main() -> None:
    """Answer one line of JSON per line: the first opens the model, each further one runs it."""
    case = json.loads(sys.stdin.readline())
    feeds = _feeds(case["sequence"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    before = _peak_bytes()
    start, cpu = time.perf_counter(), time.process_time()
    session = onnxruntime.InferenceSession(
        case["path"], options, providers=["CPUExecutionProvider"]
    )
    load_ms, load_cpu_ms = _since(start, cpu)
    start, cpu = time.perf_counter(), time.process_time()
    outputs = session.run(None, feeds)
    first_ms, _ = _since(start, cpu)
    Path(case["dump"]).write_bytes(outputs[0].astype(np.float32).tobytes())
    memory = _peak_bytes() - before
    _answer(load_ms=load_ms, load_cpu_ms=load_cpu_ms, first_ms=first_ms, memory_bytes=memory)
    for _ in sys.stdin:
        start, cpu = time.perf_counter(), time.process_time()
        session.run(None, feeds)
        ms, cpu_ms = _since(start, cpu)
        _answer(ms=ms, cpu_ms=cpu_ms)


def _feeds(sequence: int) -> dict[str, np.ndarray]:
    """Ids all over the table, the last quarter padding; ``node_worker.mjs`` makes the same."""
    place = np.arange(sequence, dtype=np.int64)[None]
    return {
        "input_ids": place * 7919 % 30000,
        "attention_mask": (place < sequence - sequence // 4).astype(np.int64),
        "token_type_ids": place % 2,
    }


def _peak_bytes() -> int:
    """Peak resident memory of this program; the general figure starts with the parent's."""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def _since(start: float, cpu: float) -> tuple[float, float]:
    return (time.perf_counter() - start) * 1e3, (time.process_time() - cpu) * 1e3


def _answer(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
