"""One model in onnxruntime on this machine's CPU, in a process of its own."""

from __future__ import annotations

import sys
from typing import Any

from exporter.packed_arrays import pack_array
from exporter.runtimes.device import describe_python
from exporter.runtimes.line_process import LineProcess
from exporter.runtimes.worker import MessageWorker, Task

__all__ = ["CpuWorker"]


class CpuWorker(MessageWorker):
    """Opens ``task`` in Python's onnxruntime; a :class:`~exporter.runtimes.worker.Worker`.

    Raises:
        BenchmarkError: the model cannot be opened, or the process died or hangs.
    """

    def __init__(self, task: Task) -> None:
        feeds = task.feeds()  # wrong sizes show before a process is started
        # -P: a folder or file of the caller's must not be imported in place of ours.
        command = [sys.executable, "-P", "-m", "exporter.runtimes.cpu_process"]
        request: dict[str, Any] = {
            "model": str(task.path),
            "feeds": {name: pack_array(array) for name, array in feeds.items()},
            "threads": task.usable_threads,
            "reference": str(task.reference) if task.reference else None,
            "tolerance": task.tolerance,
            "warmFirst": task.warm_first,
        }
        super().__init__(
            task,
            lambda: LineProcess(command),
            request,
            lambda ready, opened: describe_python(timer_resolution_ms=ready["timerResolutionMs"]),
        )
