"""Replace a proven run of blocks by one ``Loop``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from exporter.passes.blocks.annotations import Annotations, Dim
from exporter.passes.blocks.constants import add_constant, drop_unused_constants
from exporter.passes.blocks.graph_index import GraphIndex
from exporter.passes.blocks.node_names import NodeNames
from exporter.passes.blocks.stack import StackBuilder
from exporter.passes.blocks.verify import BlockRun, Carried, CarriedValue, Stacked
from exporter.passes.scopes import Names

__all__ = ["BuiltLoop", "build_loop"]


@dataclass(frozen=True)
class BuiltLoop:
    """What :func:`build_loop` made: the node, its stacks, and the values it scans."""

    node: ir.Node
    stacks: tuple[str, ...]
    scanned: tuple[str, ...]


def build_loop(
    index: GraphIndex,
    annotations: Annotations,
    names: Names,
    node_names: NodeNames,
    run: BlockRun,
) -> BuiltLoop:
    """Replace ``run`` in its graph; ``index`` is out of date afterwards.

    ::

        x1 = block(x0); x2 = block(x1)   ->   x2 = Loop(2, , x0) { out = block(in) }

    The body is the first block, moved: its nodes keep their names, and what all blocks take
    from outside is captured by name. A value of block ``i`` that something outside needs
    becomes row ``i`` of a scan output, ``[iterations, *shape]``, and keeps its name.
    """
    return _LoopBuilder(index, annotations, names, node_names, run).build()


class _LoopBuilder:
    def __init__(
        self,
        index: GraphIndex,
        annotations: Annotations,
        names: Names,
        node_names: NodeNames,
        run: BlockRun,
    ) -> None:
        self.graph, self.index, self.annotations = index.graph, index, annotations
        self.names, self.node_names, self.run = names, node_names, run
        self.file_order = {node: number for number, node in enumerate(self.graph)}
        self.nodes = sorted(
            (node for block in run.blocks for node in block), key=self.file_order.__getitem__
        )

    def build(self) -> BuiltLoop:
        run = self.run
        used = dict.fromkeys(v for node in self.nodes for v in node.inputs if v is not None)
        self._annotate_first_block()
        iteration = _value(self.names.fresh("iteration"), ir.DataType.INT64, ())
        initials = self._initials()
        carried = [
            self._carried_input(entry, initial)
            for entry, initial in zip(run.carried, initials, strict=True)
        ]
        stacks = StackBuilder(self.index, self.names, self.node_names, iteration)
        current = [stacks.add(values) for values in run.stacked]

        finals = self._finals()
        scans, gathers = self._scans()
        first = set(run.blocks[0])
        self.graph.remove([node for node in self.nodes if node not in first], safe=True)
        self.graph.remove(first)
        for node, sources in zip(run.blocks[0], run.sources, strict=True):
            for slot, source in enumerate(sources):
                if isinstance(source, Carried):
                    node.replace_input_with(slot, carried[source.number])
                elif isinstance(source, Stacked):
                    node.replace_input_with(slot, current[source.number])
        body = self._body(iteration, carried, stacks.nodes)
        count = np.array(run.count, np.int64)
        trip_count = add_constant(self.graph, self.names.fresh("trip_count"), count)
        loop = ir.Node(
            "",
            "Loop",
            [trip_count, None, *initials],
            [ir.AttrGraph("body", body)],
            outputs=[*finals, *scans],
            name=self.node_names.fresh("rolled_blocks"),
        )
        self.graph.extend([loop, *gathers])
        self.graph.sort()
        drop_unused_constants(self.graph, used)
        return BuiltLoop(
            node=loop,
            stacks=tuple(str(stack.name) for stack in stacks.stacks),
            scanned=tuple(str(gather.outputs[0].name) for gather in gathers),
        )

    def _annotate_first_block(self) -> None:
        """Keep of each type and shape what holds in every iteration."""
        for column, node in enumerate(self.run.blocks[0]):
            for output, value in enumerate(node.outputs):
                values = [
                    self.run.produced(column, output, block) for block in range(self.run.count)
                ]
                known = (self.annotations.type(v) for v in values)
                value.type = next((t for t in known if t is not None), None)
                value.shape = _shape(self.annotations.common_dims(values))

    def _initials(self) -> list[ir.Value]:
        """Read from the first block what it takes now.

        Another run, rolled since this one was found, may have replaced what it took then.
        """
        initials = {}
        for node, sources in zip(self.run.blocks[0], self.run.sources, strict=True):
            for value, source in zip(node.inputs, sources, strict=True):
                if isinstance(source, Carried) and value is not None:
                    initials[source.number] = value
        return [initials[number] for number in range(len(self.run.carried))]

    def _carried_input(self, entry: CarriedValue, initial: ir.Value) -> ir.Value:
        out = self.run.produced(entry.column, entry.output, 0)
        result = ir.Value(name=self.names.fresh(f"{out.name}_in"), type=out.type)
        result.shape = _shape(self.annotations.common_dims([initial, out]))
        return result

    def _finals(self) -> list[ir.Value]:
        """Outputs for the carried values, in the place of those of the last block."""
        finals: list[ir.Value] = []
        replaced: set[ir.Value] = set()
        for entry in self.run.carried:
            old = self.run.produced(entry.column, entry.output, self.run.count - 1)
            if old in replaced:  # one value carried twice, from two different starts
                finals.append(_like(old, self.names.fresh(f"{old.name}_out")))
                continue
            replaced.add(old)
            finals.append(_like(old, old.name))
            self._redirect(old, finals[-1])
        return finals

    def _scans(self) -> tuple[list[ir.Value], list[ir.Node]]:
        scans, gathers = [], []
        rows: dict[int, ir.Value] = {}
        for tap in self.run.taps:
            inside = self.run.produced(tap.column, tap.output, 0)
            dims = self.annotations.dims(inside) or ()
            scan = ir.Value(
                name=self.names.fresh(f"{inside.name}_all"),
                type=inside.type,
                shape=ir.Shape((self.run.count, *dims)),
            )
            scans.append(scan)
            for block in tap.blocks:
                if block not in rows:
                    name, number = self.names.fresh(f"row_{block}"), np.array(block, np.int64)
                    rows[block] = add_constant(self.graph, name, number)
                old = self.run.produced(tap.column, tap.output, block)
                new = _like(old, old.name)
                self._redirect(old, new)
                axis = ir.AttrInt64("axis", 0)
                gathers.append(self._node("Gather", [scan, rows[block]], new, [axis]))
            if 0 in tap.blocks:  # the name now belongs to the gathered row
                inside.name = self.names.fresh(f"{inside.name}_body")
        return scans, gathers

    def _redirect(self, old: ir.Value, new: ir.Value) -> None:
        """Let everything outside the blocks use ``new``."""
        inside = set(self.nodes)
        for use in tuple(old.uses()):
            if use.node not in inside:
                use.node.replace_input_with(use.idx, new)
        for position, output in enumerate(self.graph.outputs):
            if output is old:
                self.graph.outputs[position] = new

    def _body(
        self, iteration: ir.Value, carried: Sequence[ir.Value], gathers: Sequence[ir.Node]
    ) -> ir.Graph:
        condition = _value(self.names.fresh("condition"), ir.DataType.BOOL, ())
        condition_out = _value(self.names.fresh("condition_out"), ir.DataType.BOOL, ())
        nodes = [self._node("Identity", [condition], condition_out), *gathers]
        nodes += [node for node in self.nodes if node in set(self.run.blocks[0])]
        outputs = [condition_out]
        placed: set[ir.Value] = set()
        places = [(entry.column, entry.output) for entry in self.run.carried]
        places += [(tap.column, tap.output) for tap in self.run.taps]
        for column, output in places:
            value = self.run.produced(column, output, 0)
            if value in placed:  # an output can be listed only once
                copy = _like(value, self.names.fresh(f"{value.name}_out"))
                nodes.append(self._node("Identity", [value], copy))
                value = copy
            placed.add(value)
            outputs.append(value)
        return ir.Graph(
            [iteration, condition, *carried],
            outputs,
            nodes=nodes,
            opset_imports=self.graph.opset_imports.copy(),
            name=self.names.fresh("block"),
        )

    def _node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value],
        output: ir.Value,
        attributes: Iterable[ir.Attr] = (),
    ) -> ir.Node:
        name = self.node_names.fresh(f"{op_type}_{output.name}")
        return ir.Node("", op_type, inputs, attributes, outputs=[output], name=name)


def _value(name: str, dtype: ir.DataType, dims: tuple[int, ...]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(dims))


def _like(value: ir.Value, name: str | None) -> ir.Value:
    shape = None if value.shape is None else value.shape.copy()
    return ir.Value(name=name, type=value.type, shape=shape, doc_string=value.doc_string)


def _shape(dims: tuple[Dim, ...] | None) -> ir.Shape | None:
    return None if dims is None else ir.Shape(dims)
