"""Adding to the body of a ``Loop``: nodes, choices, and values that go from pass to pass."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from exporter.passes.blocks.constants import add_constant
from exporter.passes.blocks.node_names import NodeNames
from exporter.passes.scopes import Names

__all__ = ["LoopExtension"]


class LoopExtension:
    """Extends one loop of the main graph.

    ::

        total_in = extension.state("total", INT64)
        total = extension.op(extension.body, "Add", [total_in, x], "total_of_pass")
        extension.carry(total_in, np.zeros(1, np.int64), total, "total")

    Args:
        model: the model; every scope of it counts for names.
        loop: its ``Loop`` node.
    """

    def __init__(self, model: ir.Model, loop: ir.Node) -> None:
        self.graph, self.loop = model.graph, loop
        self.body = loop.attributes["body"].as_graph()
        self.names, self._node_names = Names(model), NodeNames(model)
        self._constants: dict[Hashable, ir.Value] = {}

    def op(
        self,
        graph: ir.Graph,
        operator: str,
        inputs: Sequence[ir.Value],
        name: str,
        attributes: Mapping[str, Any] | None = None,
    ) -> ir.Value:
        """Add a node; return its output, called ``name`` made fresh.

        It comes last in ``graph``; in the main graph, before the loop.
        """
        node = self._node(operator, inputs, [name], attributes)
        if graph is self.graph:
            graph.insert_before(self.loop, node)
        else:
            graph.append(node)
        return node.outputs[0]

    def after(self, operator: str, inputs: Sequence[ir.Value], name: str) -> ir.Value:
        """Add a node at the end of the main graph; return its output, called ``name``."""
        node = self._node(operator, inputs, [name], None)
        self.graph.append(node)
        return node.outputs[0]

    def choose(
        self, condition: ir.Value, then: ir.Graph, otherwise: ir.Graph, names: Sequence[str]
    ) -> tuple[ir.Value, ...]:
        """Add an ``If`` at the end of the body; return its outputs, of the types of ``then``."""
        branches = {"then_branch": then, "else_branch": otherwise}
        node = self._node("If", [condition], names, branches)
        self.body.append(node)
        for output, inner in zip(node.outputs, then.outputs, strict=True):
            output.type = inner.type
        return tuple(node.outputs)

    def branch(self, name: str) -> ir.Graph:
        """Return an empty graph without inputs."""
        opsets = self.graph.opset_imports.copy()
        return ir.Graph([], [], nodes=[], opset_imports=opsets, name=self.names.fresh(name))

    def constant(self, name: str, content: np.ndarray) -> ir.Value:
        """Return an initializer of the main graph; a new one is called ``name`` made fresh."""
        key = (content.dtype, content.shape, content.tobytes())
        if key not in self._constants:
            fresh = self.names.fresh(name)
            self._constants[key] = add_constant(self.graph, fresh, content)
        return self._constants[key]

    def state(self, name: str, dtype: ir.DataType) -> ir.Value:
        """Return a value that the body is to take from the pass before; see :meth:`carry`.

        Its shape is not said: it may change from pass to pass.
        """
        return ir.Value(name=self.names.fresh(f"{name}_in"), type=ir.TensorType(dtype))

    def carry(self, state: ir.Value, initial: np.ndarray, result: ir.Value, name: str) -> ir.Value:
        """Carry ``result`` of each pass to ``state`` of the next.

        Args:
            state: of :meth:`state`.
            initial: what the first pass takes.
            result: a value of the body, of the type of ``state``, that nothing carries yet.
            name: of the loop's output, which must be free.

        Returns:
            The loop's output: the result of the last pass.
        """
        result.type = result.type or state.type
        self.body.inputs.append(state)
        self.body.outputs.append(result)
        slot = len(self.loop.inputs)
        self.loop.resize_inputs(slot + 1)
        self.loop.replace_input_with(slot, self.constant(f"{name}_start", initial))
        self.loop.resize_outputs(len(self.loop.outputs) + 1)
        output = self.loop.outputs[-1]
        output.name, output.type = name, state.type
        return output

    def _node(
        self,
        operator: str,
        inputs: Sequence[ir.Value],
        names: Sequence[str],
        attributes: Mapping[str, Any] | None,
    ) -> ir.Node:
        return ir.Node(
            "",
            operator,
            inputs,
            ir.convenience.convert_attributes(attributes or {}),
            outputs=[ir.Value(name=self.names.fresh(name)) for name in names],
            name=self._node_names.fresh(f"{operator}_{names[0]}"),
        )
