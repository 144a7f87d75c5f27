"""One model in onnxruntime-web's WebAssembly in Node, in a process of its own."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from exporter.errors import BenchmarkError
from exporter.packages import find_node, runtime_files
from exporter.packed_arrays import pack_array
from exporter.runtimes.device import describe_device
from exporter.runtimes.line_process import LineProcess
from exporter.runtimes.web_folder import web_folder
from exporter.runtimes.worker import MessageWorker, Task, external_data

__all__ = ["NodeWorker", "find_node"]


class NodeWorker(MessageWorker):
    """Opens ``task`` in Node; a :class:`~exporter.runtimes.worker.Worker`.

    Raises:
        BenchmarkError: there is no Node, the model cannot be opened, or the process died or
            hangs.
        PackageError: onnxruntime-web is not there and cannot be fetched.
    """

    def __init__(self, task: Task) -> None:
        node = find_node()
        if node is None:
            raise BenchmarkError(
                "Node 20 or later is not installed: install it, or 'albert-export[web]'"
            )
        feeds = task.feeds()
        path = task.path.absolute()
        request: dict[str, Any] = {
            "runtime": (runtime_files() / "ort.node.min.mjs").as_uri(),
            "model": str(path),
            "externalData": [
                {"path": file.name, "location": str(file)} for file in external_data(path)
            ],
            "threads": task.usable_threads,
            "feeds": {name: pack_array(array) for name, array in feeds.items()},
            "reference": str(task.reference.absolute()) if task.reference else None,
            "tolerance": task.tolerance,
            "warmFirst": task.warm_first,
            "maximumHeapBytes": task.heap_bytes,
        }
        command = [str(node), str(web_folder() / "measure" / "node.mjs")]
        super().__init__(
            task,
            lambda: LineProcess(command),
            request,
            lambda ready, opened: describe_device(
                engine=f"Node {_version(node)}",
                runtime="onnxruntime-web",
                runtime_version=opened["runtimeVersion"],
                timer_resolution_ms=ready["timerResolutionMs"],
            ),
        )


@cache
def _version(node: Path) -> str:
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30)
    return done.stdout.strip().removeprefix("v")
