"""Workers of all runtimes that the files run in, for the product's own protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environments import ToolError
from benchmarks.peers.chains import Chain
from benchmarks.peers.litert_browser import LiteRtBrowserWorker, install
from exporter.benchmark import InstalledRuntimes
from exporter.errors import BenchmarkError
from exporter.inputs import ModelInputs
from exporter.records import Case, Device
from exporter.runtimes.browsers import find_browsers
from exporter.runtimes.cpu_worker import CpuWorker
from exporter.runtimes.device import describe_device, describe_python
from exporter.runtimes.line_process import LineProcess
from exporter.runtimes.worker import MessageWorker, Task, Worker

__all__ = ["SEQUENCE", "PeerRuntimes", "read_inputs"]

HERE = Path(__file__).parent
SEQUENCE = 128


@dataclass
class PeerRuntimes:
    """A :class:`~exporter.benchmark.Launcher` for onnxruntime, OpenVINO and LiteRT.

    Args:
        work: folder with the environments.
        chains: by name, which is what cases call their artifact.
        inputs: what every file takes.
    """

    work: Path
    chains: Mapping[str, Chain]
    inputs: ModelInputs
    sizes: dict[str, int] = field(default_factory=lambda: {"batch": 1, "sequence": SEQUENCE})
    _installed: InstalledRuntimes = field(default_factory=InstalledRuntimes)

    def start(self, chain: Chain, task: Task) -> Worker:
        """Start a fresh worker.

        Raises:
            BenchmarkError: the model cannot be opened, or the worker died or hangs.
        """
        if chain.environment is None:
            return CpuWorker(task)
        python = chain.environment.python(self.work)
        request: dict[str, Any] = {
            "model": str(task.path),
            "inputs": task.inputs.to_dict(),
            "sizes": dict(task.sizes),
            "threads": task.usable_threads,
            "warmFirst": task.warm_first,
        }
        # It needs this project's modules, and must not see its packages.
        command = ["env", f"PYTHONPATH={HERE.parent.parent}", str(python), "-P"]
        command += [str(HERE / "foreign_process.py"), chain.runtime]
        return MessageWorker(
            task,
            lambda: LineProcess(command),
            request,
            lambda ready, opened: self._device(chain, opened["runtimeVersion"]),
        )

    def browsers(self) -> list[str]:
        """See :class:`~exporter.benchmark.Launcher`."""
        return []

    def missing(self, case: Case) -> str | None:
        """See :class:`~exporter.benchmark.Launcher`."""
        return self._installed.missing(case)

    def device(self, case: Case) -> Device:
        """See :class:`~exporter.benchmark.Launcher`."""
        if case.runtime == "browser":
            return self._installed.device(case)
        return self._device(self.chains[case.artifact], "not started")

    def open(self, case: Case, task: Task) -> Worker:
        """See :class:`~exporter.benchmark.Launcher`."""
        chain = self.chains[case.artifact]
        if case.runtime == "cpu":
            return self.start(chain, task)
        if chain.runtime == "onnxruntime":
            return self._installed.open(case, task)
        browser = next(found for found in find_browsers() if found.name == case.browser)
        try:
            return LiteRtBrowserWorker(task, browser, install(self.work))
        except ToolError as error:
            raise BenchmarkError(f"LiteRT.js: {error}") from error

    def _device(self, chain: Chain, version: str) -> Device:
        if chain.environment is None:
            return describe_python()
        return describe_device(engine="CPython", runtime=chain.runtime, runtime_version=version)


def read_inputs(manifest: Path) -> ModelInputs:
    """What the model takes, as our manifest of it says."""
    return ModelInputs.from_dict(json.loads(manifest.read_text(encoding="utf-8"))["inputs"])
