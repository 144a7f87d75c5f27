"""How the error of a precision grows from one pass through the shared layers to the next."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from exporter.errors import ArtifactError
from exporter.inputs import ModelInputs
from exporter.onnx_files import write_model
from exporter.passes.blocks.loops import CountedLoop, counted_loops, replace_trip_count
from exporter.passes.scopes import Names
from exporter.runtimes.cpu import CpuSession
from exporter.verification import compare, relative_errors

__all__ = ["DepthErrors", "DepthProbe"]

_MOST_DEPTHS = 48
_BATCH, _LENGTH = 2, 16


@dataclass(frozen=True)
class DepthErrors:
    """The relative error after each number of passes, over all outputs.

    ``by_uses[t]`` is that of a model that stops after ``t`` passes through its layers, its
    head included: not of a state inside the full model.
    """

    by_uses: Mapping[int, float]

    def to_list(self) -> list[dict[str, float | None]]:
        """Return plain JSON values; an error that is not finite is ``null``."""
        return [
            {"uses": uses, "relative_error": error if math.isfinite(error) else None}
            for uses, error in self.by_uses.items()
        ]


class DepthProbe:
    """Runs a rolled graph with fewer passes than it has.

    Args:
        reference: the graph in float32, with its loops; not changed.
        inputs: what it takes.

    Attributes:
        totals: the numbers of passes that are tried; empty where the graph has no loop that
            can run less often.
    """

    def __init__(self, reference: ir.Model, inputs: ModelInputs) -> None:
        counts = [_count(loop) for loop in _loops(reference)]
        self._counts = [count for count in counts if count is not None]
        total = sum(self._counts)
        step = -(-total // _MOST_DEPTHS) if total else 1
        self.totals = [*range(step, total, step), total] if total else []
        sizes = {
            symbol: min(_BATCH if symbol == "batch" else _LENGTH, inputs.limit(symbol))
            for symbol in inputs.symbols
        }
        self._feeds = inputs.draw(sizes)
        self._expected = self._run(reference) if self.totals else []

    def errors(self, model: ir.Model) -> DepthErrors:
        """Compare ``model``, the same graph in another precision, after each number of passes."""
        answers = self._run(model) if self.totals else []
        errors = {}
        for total, expected, answer in zip(self.totals, self._expected, answers, strict=True):
            found = relative_errors([compare(f"{total} passes", expected, answer)])
            errors[total] = max(found.values(), default=float("inf"))
        return DepthErrors(errors)

    def _run(self, model: ir.Model) -> Sequence[Mapping[str, np.ndarray]]:
        clone = model.clone()
        names = [_open_count(clone, loop) for loop in _loops(clone)]
        with tempfile.TemporaryDirectory(prefix="albert-export-") as folder:
            path = Path(folder) / "model.onnx"
            try:
                write_model(clone, path)
            except OSError as error:
                raise ArtifactError(
                    f"cannot write to {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a "
                    "folder with more room"
                ) from error
            session = CpuSession(path)
            return [
                session.run(self._feeds | dict(zip(names, self._split(total), strict=True)))
                for total in self.totals
            ]

    def _split(self, total: int) -> list[np.ndarray]:
        """Divide ``total`` passes among the loops, the first ones first."""
        parts = []
        for count in self._counts:
            part = min(count, total)
            total -= part
            parts.append(np.array(part, np.int64))
        return parts


def _loops(model: ir.Model) -> list[CountedLoop]:
    """Return the loops, or none where one cannot run less often."""
    loops = counted_loops(model.graph)
    if any(_count(loop) is None or loop.scanned for loop in loops):
        return []
    return loops


def _count(loop: CountedLoop) -> int | None:
    """Return how often a loop runs, where its trip count is an input: by default."""
    default = loop.trip_count.const_value
    if loop.trip_count.is_graph_input() and default is not None:
        return int(default.numpy().item())
    return loop.count


def _open_count(model: ir.Model, loop: CountedLoop) -> str:
    """Make the trip count an input; return its name."""
    if not loop.trip_count.is_graph_input():
        assert loop.count is not None
        name = Names(model).fresh("passes")
        model.graph.inputs.append(replace_trip_count(model.graph, loop, loop.count, name))
        return name
    return str(loop.trip_count.name)
