"""Reading ``Loop`` nodes that run a fixed number of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import onnx_ir as ir

from exporter.passes.blocks.constants import add_constant, constant_tensor, drop_unused_constants

__all__ = ["CountedLoop", "counted_loops", "read_loop", "replace_trip_count"]


@dataclass(frozen=True)
class CountedLoop:
    """A ``Loop`` whose condition is always true.

    Args:
        node: the ``Loop``.
        body: its body: ``(iteration, condition, carried…) -> (condition, carried…, scanned…)``.
        trip_count: the value that says how often it runs.
        count: that number; None if it is not constant.
    """

    node: ir.Node
    body: ir.Graph
    trip_count: ir.Value
    count: int | None

    @property
    def carried(self) -> int:
        """Number of values carried from one iteration to the next."""
        return len(self.body.inputs) - 2

    @property
    def scanned(self) -> int:
        """Number of values collected from all iterations."""
        return len(self.body.outputs) - 1 - self.carried

    @property
    def uses_iteration(self) -> bool:
        """Whether the body reads the iteration number, as stacked constants make it do."""
        return bool(self.body.inputs[0].uses()) or self.body.inputs[0] in self.body.outputs


def counted_loops(graph: ir.Graph) -> list[CountedLoop]:
    """Return the loops of ``graph`` itself that :func:`read_loop` understands."""
    loops = (read_loop(node) for node in graph if node.op_type == "Loop" and node.domain == "")
    return [loop for loop in loops if isinstance(loop, CountedLoop)]


def read_loop(node: ir.Node) -> CountedLoop | str:
    """Read a ``Loop`` node, or say why its number of iterations depends on data."""
    body = node.attributes["body"].as_graph()
    trip_count = node.inputs[0] if node.inputs else None
    condition = node.inputs[1] if len(node.inputs) > 1 else None
    if trip_count is None:
        return "it has no trip count"
    if condition is not None and not _is_true(condition):
        return "its condition is not constantly true"
    if not (_passes_on(body.outputs[0], body.inputs[1]) or _is_true(body.outputs[0])):
        return "its body computes the condition"
    tensor = constant_tensor(trip_count)
    count = None if tensor is None else int(tensor.numpy().item())
    return CountedLoop(node, body, trip_count, count)


def replace_trip_count(graph: ir.Graph, loop: CountedLoop, count: int, name: str) -> ir.Value:
    """Give ``loop`` an initializer ``name`` of its own as trip count; ``name`` must be free."""
    value = add_constant(graph, name, np.array(count, np.int64))
    loop.node.replace_input_with(0, value)
    drop_unused_constants(graph, [loop.trip_count])
    return value


def _passes_on(output: ir.Value, source: ir.Value) -> bool:
    while output is not source:
        node = output.producer()
        if node is None or node.op_type != "Identity" or node.domain != "":
            return False
        output = cast(ir.Value, node.inputs[0])
    return True


def _is_true(value: ir.Value) -> bool:
    tensor = constant_tensor(value)
    return tensor is not None and bool(tensor.numpy().all())
