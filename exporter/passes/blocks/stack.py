"""Constants that differ between the blocks of a run: stacked, and gathered by iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from exporter.passes.blocks.constants import add_constant
from exporter.passes.blocks.graph_index import GraphIndex
from exporter.passes.blocks.node_names import NodeNames
from exporter.passes.scopes import Names

__all__ = ["StackBuilder"]


class StackBuilder:
    """Makes the stacks of one loop, and the nodes of its body that read them.

    ::

        w0 = [a, b]; w1 = [c, d]     stack [2, *shape] = [[a, b], [c, d]]
        block i uses w(i)       ->   body: w = Gather(stack, iteration)

    Equal tensors get one row. Where that leaves fewer rows than iterations, a table
    ``int64 [iterations]`` of row numbers stands between: ``Gather(stack, Gather(table, i))``;
    constants with the same pattern share it.

    Attributes:
        nodes: the ``Gather`` nodes for the body, in order.
        stacks: the stack initializers.
    """

    def __init__(
        self, index: GraphIndex, names: Names, node_names: NodeNames, iteration: ir.Value
    ) -> None:
        self._graph, self._index = index.graph, index
        self._names, self._node_names = names, node_names
        self._iteration = iteration
        self._row_numbers: dict[tuple[int, ...], ir.Value] = {}
        self.nodes: list[ir.Node] = []
        self.stacks: list[ir.Value] = []

    def add(self, values: Sequence[ir.Value]) -> ir.Value:
        """Stack ``values``, one per iteration, and return the body value of the current one."""
        rows: list[ir.Value] = []
        pattern = []
        for value in values:
            row = next((r for r in rows if self._index.same_constant(r, value)), None)
            if row is None:
                rows.append(value)
                row = value
            pattern.append(rows.index(row))
        arrays = [self._index.constants[row].numpy() for row in rows]
        name = self._names.fresh(f"{values[0].name}_stack")
        stack = add_constant(self._graph, name, np.stack(arrays))
        self.stacks.append(stack)
        whole = len(rows) == len(values)
        number = self._iteration if whole else self._row_number(tuple(pattern))
        shape = ir.Shape(tuple(arrays[0].shape))
        return self._gather(stack, number, f"{values[0].name}_current", shape)

    def _row_number(self, pattern: tuple[int, ...]) -> ir.Value:
        if pattern not in self._row_numbers:
            array = np.array(pattern, np.int64)
            table = add_constant(self._graph, self._names.fresh("stack_rows"), array)
            number = self._gather(table, self._iteration, "stack_row", ir.Shape(()))
            self._row_numbers[pattern] = number
        return self._row_numbers[pattern]

    def _gather(self, data: ir.Value, number: ir.Value, name: str, shape: ir.Shape) -> ir.Value:
        result = ir.Value(name=self._names.fresh(name), type=data.type, shape=shape)
        axis = ir.AttrInt64("axis", 0)
        node_name = self._node_names.fresh(f"Gather_{result.name}")
        node = ir.Node("", "Gather", [data, number], [axis], outputs=[result], name=node_name)
        self.nodes.append(node)
        return result
