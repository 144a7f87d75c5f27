"""onnxruntime on this machine's CPU."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime

from exporter.errors import ExportError
from exporter.inputs import Feeds, ModelInputs

__all__ = ["CpuSession"]


class CpuSession:
    """One loaded model.

    Args:
        path: the ``.onnx`` file.
        threads: compute threads; 0 lets onnxruntime choose.
        inputs: checked before each run, where given, so that a wrong id or length gets
            a clear error instead of the runtime's.
        optimize: onnxruntime's own graph optimizations; off, it runs the graph as written.

    Raises:
        ExportError: onnxruntime does not accept the file.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int = 0,
        inputs: ModelInputs | None = None,
        optimize: bool = True,
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4  # an error is raised anyway
        if not optimize:
            levels = onnxruntime.GraphOptimizationLevel
            options.graph_optimization_level = levels.ORT_DISABLE_ALL
        start = time.perf_counter()
        try:
            self._session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise ExportError(f"onnxruntime cannot load {path}: {_reason(error)}") from error
        self.load_ms = (time.perf_counter() - start) * 1e3
        self.path = path
        self.output_names = tuple(output.name for output in self._session.get_outputs())
        self._inputs = inputs

    def run(self, feeds: Feeds) -> Mapping[str, np.ndarray]:
        """Run once; return the named outputs.

        Raises:
            ExportError: the feeds do not fit the model, or the runtime fails.
        """
        if self._inputs is not None:
            self._inputs.check(feeds)
        try:
            values = self._session.run(None, feeds)
        except Exception as error:
            raise ExportError(f"{self.path} failed to run: {_reason(error)}") from error
        return dict(zip(self.output_names, values, strict=True))


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
