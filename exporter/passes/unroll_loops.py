"""Write loops of a constant number of iterations out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from exporter.passes.blocks.constants import (
    add_constant,
    constant_tensor,
    drop_unused_constants,
    is_constant_node,
)
from exporter.passes.blocks.loops import CountedLoop, read_loop
from exporter.passes.blocks.node_names import NodeNames
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names, all_graphs, inner_graphs

__all__ = ["UnrollLoopsPass"]


class UnrollLoopsPass(ReportingPass):
    """Replace each ``Loop`` of a constant number of iterations by copies of its body.

    ::

        x2 = Loop(2, , x0) {                    x_0  = block(x0, W)
          (i, condition, x_in):          ->     x2   = block(x_0, W)
             x = block(x_in, W)
        }

    The inverse of ``RollRepeatedBlocksPass``:

    1. The trip count is a constant (not an input), the condition always true.
    2. The iteration number becomes a constant in each copy. A ``Gather`` of a constant by it,
       also by way of a table of row numbers, becomes an initializer that holds that row alone,
       unless something outside the loop needs the constant too.
    3. Row ``i`` of a scan output, gathered by a constant, becomes the value of copy ``i``. Any
       other use of a scan output gets its rows concatenated.
    4. Initializers of the body become initializers of the graph, once for all copies.
    5. Loops inside a body follow once it is written out. Loops inside other nodes' graphs and
       inside functions stay.

    Names: those of the body, with the number of the copy from the second copy on and where
    another graph uses them too; outputs of the loop keep theirs. Weights are stored as before,
    once.

    Attributes:
        matches: one entry per loop.
        skipped: loops left as they are, with the reason.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Unroll until no loop is left that can be."""
        names, node_names = Names(model), NodeNames(model)
        while (loop := self._next(model)) is not None:
            _Unroller(model, names, node_names, loop).unroll()
            detail = f"{loop.count} iterations of {len(loop.body)} nodes written out"
            self.matches.insert(0, Match(str(loop.node.name), detail))

    def _next(self, model: ir.Model) -> CountedLoop | None:
        """Return the last loop that can be unrolled, and note why others cannot.

        The last one first: rows of a scan output that a later loop reads by its iteration
        number are then read by constants when the loop that makes them is written out.
        """
        self.skipped, last = [], None
        for graph in all_graphs(model):
            for node in graph:
                if node.op_type != "Loop" or node.domain != "":
                    continue
                if graph is not model.graph:
                    self.skipped.append(Skip(str(node.name), "it is inside another node's graph"))
                    continue
                loop = read_loop(node)
                if isinstance(loop, str):
                    self.skipped.append(Skip(str(node.name), loop))
                elif loop.count is None:
                    self.skipped.append(Skip(str(node.name), "its trip count is not constant"))
                elif loop.count < 1 and loop.scanned:
                    self.skipped.append(Skip(str(node.name), "it scans over no iterations"))
                else:
                    last = loop
        return last


class _Unroller:
    def __init__(
        self, model: ir.Model, names: Names, node_names: NodeNames, loop: CountedLoop
    ) -> None:
        self.graph, self.loop = model.graph, loop
        self.taken, self.taken_by_nodes = _names_outside(loop.body, model)
        self.names, self.node_names = names, node_names
        self.rows: dict[tuple[ir.Value, int], ir.Value] = {}
        self.only_rows: dict[ir.Value, bool] = {}
        self.made: list[ir.Value] = []

    def unroll(self) -> None:
        loop, graph = self.loop, self.graph
        self._lift_constants()
        captured = [v for node in loop.body for v in node.inputs if v is not None]
        carried = [value for value in loop.node.inputs[2:] if value is not None]
        scanned: list[list[ir.Value]] = [[] for _ in range(loop.scanned)]
        for iteration in range(loop.count or 0):
            outputs = self._copy(iteration, carried)
            carried = outputs[: loop.carried]
            for rows, value in zip(scanned, outputs[loop.carried :], strict=True):
                rows.append(value)
        results = loop.node.outputs
        for old, final in zip(results[: loop.carried], carried, strict=True):
            self._replace(old, final)
        for old, rows in zip(results[loop.carried :], scanned, strict=True):
            self._replace_scan(old, rows)
        given = [value for value in loop.node.inputs if value is not None]
        graph.remove(loop.node, safe=True)
        for node in ir.traversal.RecursiveGraphIterator(loop.body):
            for slot in range(len(node.inputs)):  # else the body still uses what it captured
                node.replace_input_with(slot, None)
        graph.sort()
        drop_unused_constants(graph, [*given, *captured, *self.made])

    def _lift_constants(self) -> None:
        """Move the constants of the body out of it, so that copies share them."""
        body = self.loop.body
        outputs = list(body.outputs)
        for position, value in enumerate(outputs):
            if value.is_initializer():
                copy = ir.Node("", "Identity", [value])
                body.append(copy)
                body.outputs[position] = copy.outputs[0]
        inside = [*body.initializers.values()]
        inside += [n.outputs[0] for n in body if is_constant_node(n)]
        for value in inside:
            tensor = constant_tensor(value)
            if tensor is None or value in outputs:
                continue
            node = value.producer()
            if node is None:
                del body.initializers[str(value.name)]
            lifted = add_constant(self.graph, self.names.fresh(str(value.name)), tensor)
            value.replace_all_uses_with(lifted)
            if node is not None:
                body.remove(node, safe=True)

    def _copy(self, iteration: int, carried: Sequence[ir.Value]) -> list[ir.Value]:
        """Add one copy of the body to the graph and return what it carries on and scans."""
        clone = self.loop.body.clone(allow_outer_scope_values=True)
        nodes, (number, condition, *inputs) = list(clone), list(clone.inputs)
        condition_out, *outputs = list(clone.outputs)
        clone.outputs.clear()
        clone.inputs.clear()
        clone.remove(nodes)
        dead = _dead_ends(condition_out, outputs)
        outputs = [_without_identity(value, dead) for value in outputs]
        nodes = [node for node in nodes if node not in dead]
        given: dict[ir.Value, ir.Value] = dict(zip(inputs, carried, strict=True))
        nodes = self._gather_rows(nodes, number, iteration, given)
        for old, array in ((number, np.array(iteration, np.int64)), (condition, np.array(True))):
            if old.uses() or old in outputs:
                name = self.names.fresh(f"{old.name}_{iteration}")
                given[old] = add_constant(self.graph, name, array)
        for old, new in given.items():
            old.replace_all_uses_with(new)
        self._rename(nodes, iteration)
        self.graph.extend(nodes)
        return [given.get(value, value) for value in outputs]

    def _gather_rows(
        self,
        nodes: Sequence[ir.Node],
        number: ir.Value,
        iteration: int,
        given: dict[ir.Value, ir.Value],
    ) -> list[ir.Node]:
        """Replace each gathering of a constant by the iteration number; return other nodes."""
        table_rows: dict[ir.Value, tuple[int, int]] = {}  # row number, rows of what it is for
        kept = []
        for node in nodes:
            data, index = (*node.inputs, None)[:2] if _is_gather_of_row(node) else (None, None)
            if data is None or index is None or not self._only_rows(data):
                kept.append(node)
                continue
            array = _array(data)
            if index is number and array is not None and iteration < len(array):
                row = iteration
            elif index in table_rows and array is not None and len(array) == table_rows[index][1]:
                row = table_rows[index][0]
            else:
                kept.append(node)
                continue
            given[node.outputs[0]] = self._row(data, array, row)
            if index is number and (rows := _rows_of_table(array)):
                table_rows[node.outputs[0]] = int(array[row]), rows
            for slot in range(len(node.inputs)):
                node.replace_input_with(slot, None)
        return kept

    def _only_rows(self, data: ir.Value) -> bool:
        """Whether all that needs ``data`` are gatherings of rows inside the loop."""
        if data not in self.only_rows:  # decided before the first copy adds uses of its own
            self.only_rows[data] = all(
                use.idx == 0 and _is_gather_of_row(use.node) and use.node.graph is not self.graph
                for use in data.uses()
            )
        return self.only_rows[data]

    def _row(self, data: ir.Value, array: np.ndarray, row: int) -> ir.Value:
        if (data, row) not in self.rows:
            name = self.names.fresh(f"{data.name}_{row}")
            content = np.array(array[row])  # numpy gives a scalar, not an array, for one number
            self.rows[data, row] = add_constant(self.graph, name, content)
            self.made.append(self.rows[data, row])
        return self.rows[data, row]

    def _rename(self, nodes: Sequence[ir.Node], iteration: int) -> None:
        """Name a copy; the first takes the names of the body, unless another graph has them."""
        values: list[ir.Value] = []
        for node in nodes:
            self._rename_node(node, iteration)
            values += node.outputs
            for inner in inner_graphs([node]):
                for graph in (inner, *inner.subgraphs()):
                    values += [*graph.inputs, *graph.initializers.values()]
                    for inside in graph:
                        self._rename_node(inside, iteration)
                        values += inside.outputs
        for value in values:
            if value.name and (iteration or value.name in self.taken):
                value.name = self.names.fresh(f"{value.name}_{iteration}")

    def _rename_node(self, node: ir.Node, iteration: int) -> None:
        if iteration or node.name in self.taken_by_nodes:
            node.name = self.node_names.fresh(f"{node.name or node.op_type}_{iteration}")

    def _replace(self, old: ir.Value, new: ir.Value) -> None:
        """Let ``new`` stand for ``old``, under the name of ``old`` if that is an output."""
        for use in tuple(old.uses()):
            use.node.replace_input_with(use.idx, new)
        for position, output in enumerate(self.graph.outputs):
            if output is not old:
                continue
            if new.producer() is None or new.is_graph_output():
                name = self.node_names.fresh(f"Identity_{old.name}")
                copy = ir.Node("", "Identity", [new], name=name)
                self.graph.append(copy)
                new = copy.outputs[0]
            new.name, new.type, new.shape = old.name, old.type, old.shape
            self.graph.outputs[position] = new

    def _replace_scan(self, old: ir.Value, rows: Sequence[ir.Value]) -> None:
        for use in tuple(old.uses()):
            number = _constant_number(use.node.inputs[1]) if _is_gather_of_row(use.node) else None
            if use.idx == 0 and number is not None and -len(rows) <= number < len(rows):
                self.made.extend(value for value in use.node.inputs[1:] if value is not None)
                self._replace(use.node.outputs[0], rows[number])
                assert use.node.graph is not None
                use.node.graph.remove(use.node, safe=True)
        if old.uses() or old.is_graph_output():
            self._replace(old, self._concatenate(str(old.name), rows))

    def _concatenate(self, name: str, rows: Sequence[ir.Value]) -> ir.Value:
        as_input = self.graph.opset_imports.get("", 0) >= 13
        axes: list[ir.Value] = []
        if as_input:
            zero = np.array([0], np.int64)
            axes = [add_constant(self.graph, self.names.fresh("axis_0"), zero)]
        lifted = []
        for number, row in enumerate(rows):
            out = ir.Value(name=self.names.fresh(f"{name}_row_{number}"), type=row.type)
            attributes = [] if as_input else [ir.AttrInt64s("axes", [0])]
            node_name = self.node_names.fresh(f"Unsqueeze_{out.name}")
            unsqueeze = ir.Node(
                "", "Unsqueeze", [row, *axes], attributes, outputs=[out], name=node_name
            )
            self.graph.append(unsqueeze)
            lifted.append(out)
        whole = ir.Value(name=self.names.fresh(f"{name}_rows"), type=rows[0].type)
        axis = ir.AttrInt64("axis", 0)
        node_name = self.node_names.fresh(f"Concat_{whole.name}")
        self.graph.append(ir.Node("", "Concat", lifted, [axis], outputs=[whole], name=node_name))
        return whole


def _names_outside(body: ir.Graph, model: ir.Model) -> tuple[set[str], set[str]]:
    """Return the names of values and of nodes in all graphs but ``body`` and those inside it."""
    values: set[str] = set()
    nodes: set[str] = set()
    inside = {body, *body.subgraphs()}
    for graph in all_graphs(model):
        if graph in inside:
            continue
        values.update(value.name for value in graph.inputs if value.name)
        if isinstance(graph, ir.Graph):
            values.update(graph.initializers)
        for node in graph:
            values.update(value.name for value in node.outputs if value.name)
            if node.name:
                nodes.add(node.name)
    return values, nodes


def _is_gather_of_row(node: ir.Node) -> bool:
    axis = node.attributes.get_int("axis", 0)
    return node.op_type == "Gather" and node.domain == "" and axis == 0


def _array(value: ir.Value) -> np.ndarray | None:
    tensor = constant_tensor(value)
    return None if tensor is None else tensor.numpy()


def _rows_of_table(array: np.ndarray) -> int:
    """Rows of the stack that ``array`` is a table of row numbers for; 0 if it is none.

    A table is made only where rows repeat, and names every row. Numbers that do not are data:
    the steps 0, 1, 2 of a step embedding, say, whose lookup is part of the layer.
    """
    if array.dtype != np.int64 or array.ndim != 1:
        return 0
    rows = sorted(set(array.tolist()))
    repeated = len(rows) < len(array) and rows == list(range(len(rows)))
    return len(rows) if repeated else 0


def _constant_number(value: ir.Value | None) -> int | None:
    tensor = None if value is None else constant_tensor(value)
    if tensor is None or tuple(tensor.shape):
        return None
    return int(tensor.numpy().item())


def _dead_ends(condition: ir.Value, outputs: Sequence[ir.Value]) -> set[ir.Node]:
    """Nodes that only pass the condition on; they are detached from their inputs."""
    dead: set[ir.Node] = set()
    value: ir.Value | None = condition
    while value is not None and value not in outputs and not value.uses():
        node = value.producer()
        if node is None or len(node.outputs) > 1 or len(node.inputs) > 1:
            break
        dead.add(node)
        value = node.inputs[0] if node.inputs else None
        if node.inputs:
            node.replace_input_with(0, None)
    return dead


def _without_identity(value: ir.Value, dead: set[ir.Node]) -> ir.Value:
    """Look behind the ``Identity`` that a body needs to return one value twice."""
    node = value.producer()
    if node is None or node.op_type != "Identity" or node.domain != "" or value.uses():
        return value
    source = node.inputs[0]
    assert source is not None, "Identity has one input"
    node.replace_input_with(0, None)
    dead.add(node)
    return source
