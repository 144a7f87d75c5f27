"""Prove that aligned blocks compute the same thing, each from what the one before gave.

This is the only place that decides; it trusts nothing that the search found out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from exporter.passes.blocks.annotations import Annotations
from exporter.passes.blocks.graph_index import GraphIndex

__all__ = [
    "BlockRun",
    "Carried",
    "CarriedValue",
    "Conflict",
    "Inner",
    "Outer",
    "Source",
    "Stacked",
    "Tap",
    "verify_blocks",
]


@dataclass(frozen=True)
class Inner:
    """Output ``output`` of the node at ``column`` of the same block."""

    column: int
    output: int


@dataclass(frozen=True)
class Carried:
    """Entry ``number`` of :attr:`BlockRun.carried`, as the block before left it."""

    number: int


@dataclass(frozen=True)
class Outer:
    """A value from outside the blocks, the same for all."""

    value: ir.Value


@dataclass(frozen=True)
class Stacked:
    """Entry ``number`` of :attr:`BlockRun.stacked`: a constant of its own per block."""

    number: int


Source = Inner | Carried | Outer | Stacked


@dataclass(frozen=True)
class CarriedValue:
    """What each block gives to the next: output ``output`` of ``column``; first ``initial``."""

    initial: ir.Value
    column: int
    output: int


@dataclass(frozen=True)
class Tap:
    """A value inside a block that something outside needs, from these ``blocks``."""

    column: int
    output: int
    blocks: tuple[int, ...]


@dataclass(frozen=True)
class BlockRun:
    """Consecutive equal blocks.

    Args:
        blocks: nodes of each block, corresponding ones at equal positions ("columns").
        sources: per column, where each input comes from; None for an omitted input.
        carried: values passed from block to block.
        stacked: per differing constant, its value in each block.
        taps: values needed outside, but for carried ones of the last block.
        stacked_bytes: bytes of the differing constants of one block.
        shared_bytes: bytes of the constants that every block uses.
    """

    blocks: tuple[tuple[ir.Node, ...], ...]
    sources: tuple[tuple[Source | None, ...], ...]
    carried: tuple[CarriedValue, ...]
    stacked: tuple[tuple[ir.Value, ...], ...]
    taps: tuple[Tap, ...]
    stacked_bytes: int
    shared_bytes: int

    @property
    def count(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @property
    def width(self) -> int:
        """Nodes per block."""
        return len(self.sources)

    @property
    def shared(self) -> tuple[ir.Value, ...]:
        """Outer values that every block uses, each once."""
        return _shared(self.sources)

    def produced(self, column: int, output: int, block: int) -> ir.Value:
        """Return one value of one block."""
        return self.blocks[block][column].outputs[output]


@dataclass(frozen=True)
class Conflict:
    """A run of equal blocks whose types or shapes forbid a loop."""

    run: BlockRun
    reason: str


def verify_blocks(
    index: GraphIndex, blocks: Sequence[Sequence[int]], annotations: Annotations
) -> BlockRun | Conflict | str:
    """Check every claim that one loop over ``blocks`` rests on.

    1. No node is in two places; corresponding nodes have equal signatures.
    2. Each input is, in all blocks alike: omitted; the same output in the same block; the
       same output of the block before (in the first block: one value from outside); one value
       from outside; or a constant of one type and shape.
    3. Nothing outside lies between blocks: no path leaves one and comes back.
    4. Types are known and agree, ranks and fixed sizes agree, between blocks and between a
       carried value and its start. A value needed outside must have one shape in all blocks.

    Returns:
        The run; the run and what contradicts 4; or what contradicts the rest.
    """
    nodes = [node for block in blocks for node in block]
    if len(set(nodes)) < len(nodes):
        return "blocks overlap"
    for column in zip(*blocks, strict=True):
        if len({index.signature[node] for node in column}) > 1:
            return f"nodes at {_name(index, column[0])} differ"
    if (between := _between(index, nodes)) is not None:
        return f"{_name(index, between)} lies between blocks"
    reader = _Reader(index, blocks)
    sources = []
    for column in zip(*blocks, strict=True):
        inputs = []
        for values in zip(*(index.nodes[node].inputs for node in column), strict=True):
            source = reader.source(values)
            if isinstance(source, str):
                return f"an input of {_name(index, column[0])} {source}"
            inputs.append(source)
        sources.append(tuple(inputs))
    run = BlockRun(
        blocks=tuple(tuple(index.nodes[node] for node in block) for block in blocks),
        sources=tuple(sources),
        carried=tuple(reader.carried),
        stacked=tuple(reader.stacked),
        taps=_taps(index, blocks, reader.carried),
        stacked_bytes=sum(index.nbytes(values[0]) for values in reader.stacked),
        shared_bytes=sum(index.nbytes(value) for value in _shared(sources)),
    )
    reason = _annotation_conflict(run, annotations)
    return run if reason is None else Conflict(run, reason)


class _Reader:
    """Classifies inputs, and numbers the carried and the stacked among them."""

    def __init__(self, index: GraphIndex, blocks: Sequence[Sequence[int]]) -> None:
        self.index = index
        self.place = {n: (b, c) for b, block in enumerate(blocks) for c, n in enumerate(block)}
        self.carried: dict[CarriedValue, int] = {}
        self.stacked: dict[tuple[ir.Value, ...], int] = {}

    def source(self, values: Sequence[ir.Value | None]) -> Source | str | None:
        """Classify the values that one input has in each block; a text says why not."""
        present = [value for value in values if value is not None]
        if len(present) < len(values):
            return "is omitted in some blocks" if present else None
        places = [self._place(value) for value in present]
        first, second = places[0], places[1]
        if first is not None:
            _, column, output = first
            if all(place == (b, column, output) for b, place in enumerate(places)):
                return Inner(column, output)
        elif second is not None:
            _, column, output = second
            if all(p == (b, column, output) for b, p in enumerate(places[1:])):
                entry = CarriedValue(present[0], column, output)
                return Carried(self.carried.setdefault(entry, len(self.carried)))
        elif all(self.index.same_constant(present[0], value) for value in present):
            return Outer(present[0])
        elif all(self._may_stack(present[0], value) for value in present):
            key = tuple(present)
            return Stacked(self.stacked.setdefault(key, len(self.stacked)))
        return f"is not alike in all blocks: {', '.join(str(v.name) for v in present[:3])}"

    def _may_stack(self, one: ir.Value, other: ir.Value) -> bool:
        if not self.index.stackable(one, other):
            return False
        # Neither strings nor packed elements can be gathered by every runtime.
        dtype = self.index.constants[one].dtype
        return dtype != ir.DataType.STRING and dtype.itemsize >= 1

    def _place(self, value: ir.Value) -> tuple[int, int, int] | None:
        producer = self.index.producer(value)
        place = None if producer is None else self.place.get(producer)
        return None if place is None else (*place, value.index() or 0)


def _between(index: GraphIndex, nodes: Sequence[int]) -> int | None:
    inside = sum(1 << node for node in nodes)
    needed = 0
    for node in nodes:
        needed |= index.ancestors[node]
    for node in range(len(index.nodes)):
        if (needed & ~inside) >> node & 1 and index.ancestors[node] & inside:
            return node
    return None


def _taps(
    index: GraphIndex, blocks: Sequence[Sequence[int]], carried: dict[CarriedValue, int]
) -> tuple[Tap, ...]:
    inside = {node for block in blocks for node in block}
    outputs = set(index.graph.outputs)
    passed_on = {(entry.column, entry.output) for entry in carried}
    taps = []
    for column, members in enumerate(zip(*blocks, strict=True)):
        for output in range(len(index.nodes[members[0]].outputs)):
            needed = []
            for block, node in enumerate(members):
                if block == len(blocks) - 1 and (column, output) in passed_on:
                    continue
                value = index.nodes[node].outputs[output]
                if value in outputs or any(n not in inside for n in index.users.get(value, ())):
                    needed.append(block)
            if needed:
                taps.append(Tap(column, output, tuple(needed)))
    return tuple(taps)


def _annotation_conflict(run: BlockRun, annotations: Annotations) -> str | None:
    tapped = {(tap.column, tap.output) for tap in run.taps}
    for column, members in enumerate(zip(*run.blocks, strict=True)):
        for output in range(len(members[0].outputs)):
            values = [node.outputs[output] for node in members]
            if not annotations.compatible(values):
                return f"{values[0].name} has another type or shape in another block"
            if (column, output) in tapped and not annotations.one_shape(values):
                return (
                    f"{values[0].name} is needed outside, and is not known to have one "
                    "shape in all blocks"
                )
    for entry in run.carried:
        carried = run.produced(entry.column, entry.output, 0)
        if annotations.dtype(carried) is None:
            return f"the type of {carried.name} is not known"
        if not annotations.compatible([entry.initial, carried]):
            return f"{entry.initial.name} and {carried.name} differ in type or shape"
    return None


def _shared(sources: Iterable[Iterable[Source | None]]) -> tuple[ir.Value, ...]:
    values = (s.value for inputs in sources for s in inputs if isinstance(s, Outer))
    return tuple(dict.fromkeys(values))


def _name(index: GraphIndex, node: int) -> str:
    return f"{index.nodes[node].op_type} {index.nodes[node].outputs[0].name!r}"
