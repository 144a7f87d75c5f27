"""Grow aligned blocks around equal nodes of a chain.

Let ``a0, a1, …`` be *anchors*: nodes of equal signature, each depending on the one before.
What ``a(i)`` needs and ``a(i-1)`` does not is *level* ``i``: the end of block ``i-1`` and
the start of block ``i``. Levels follow from dependencies alone, so neither the file order
nor the shape of a block matters. Equal blocks make equal levels; then only three things are
left to find: the start of the first block, the end of the last one, and where to cut the
levels between.

Everything here proposes; ``verify`` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import onnx_ir as ir

from exporter.passes.blocks.graph_index import GraphIndex

__all__ = ["SameConstant", "levels_match", "propose_blocks"]

SameConstant = Callable[[ir.Value, ir.Value], bool]
"""Whether two constants may stand at one position of two blocks."""

Kind = Literal["none", "same", "constant", "inner", "previous", "outer"]


@dataclass(frozen=True)
class _Edge:
    """Where one input of a column comes from, relative to the column's own level.

    ``same``: one value for all levels; ``inner``: output ``output`` of ``column`` in the same
    level; ``previous``: in the level before; ``outer``: not known, as there is one level only.
    """

    kind: Kind
    column: int = -1
    output: int = 0


_Column = tuple[int, ...]  # the corresponding node in each level


class _Levels:
    """Columns of corresponding nodes over the levels of ``anchors``, producers first.

    Args:
        static: with one level only, whether nodes that no anchor feeds belong to it.
    """

    def __init__(
        self, index: GraphIndex, anchors: Sequence[int], same: SameConstant, *, static: bool
    ) -> None:
        self.index, self.anchors, self.same = index, anchors, same
        self.columns: list[_Column] = []
        self.edges: list[list[_Edge]] = []
        self.column_of: dict[int, int] = {}
        self._members = []
        for before, anchor in pairwise(anchors):
            above = index.ancestors[anchor] & ~index.ancestors[before] & ~(1 << before)
            self._members.append(above | 1 << anchor)
        self._below = index.descendants(anchors[0])
        if not static:
            self._members = [level & self._below for level in self._members]

    def align(self) -> bool:
        """Fill the columns; False if the levels differ."""
        raw: dict[_Column, list[tuple[Kind, _Column, int]]] = {}
        stack = [tuple(self.anchors[1:])]
        while stack:
            column = stack[-1]
            if column not in raw:
                found = self._inputs(column)
                if found is None or any(node in self.column_of for node in column):
                    return False
                raw[column] = found
                self.column_of.update((node, -1) for node in column)
            above = [c for kind, c, _ in raw[column] if kind == "inner" and c not in raw]
            if above:
                stack.append(above[0])
                continue
            stack.pop()
            if self.column_of[column[0]] < 0:
                self.column_of.update((node, len(self.columns)) for node in column)
                self.columns.append(column)
        for column in self.columns:
            edges = [self._edge(*entry) for entry in raw[column]]
            if None in edges:
                return False
            self.edges.append([edge for edge in edges if edge is not None])
        return True

    def _inputs(self, column: _Column) -> list[tuple[Kind, _Column, int]] | None:
        index = self.index
        if len({index.signature[node] for node in column}) > 1:
            return None
        found: list[tuple[Kind, _Column, int]] = []
        for values in zip(*(index.nodes[node].inputs for node in column), strict=True):
            present = [value for value in values if value is not None]
            if not present:
                found.append(("none", (), 0))
                continue
            if len(present) < len(values):
                return None
            first = present[0]
            if len(present) > 1 and all(value is first for value in present):
                found.append(("same", (), 0))
                continue
            if all(value in index.constants for value in present):
                if not all(self.same(first, value) for value in present):
                    return None
                found.append(("constant", (), 0))
                continue
            producers = [index.producer(value) for value in present]
            inside = [
                producer is not None and bool(level >> producer & 1)
                for producer, level in zip(producers, self._members, strict=True)
            ]
            outputs = {value.index() for value in present}
            if inside[0] and len(present) > 1 and not any(inside[1:]):
                # What the first level starts from may first be needed within it.
                inside[0] = bool(self._below >> (producers[0] or 0) & 1)
            if any(inside) and not all(inside):
                return None
            above = tuple(-1 if producer is None else producer for producer in producers)
            if all(inside) and len(outputs) == 1:
                found.append(("inner", above, first.index() or 0))
            elif all(inside):
                return None
            elif len(present) == 1:
                found.append(("outer", above, 0))
            elif len({value.index() for value in present[1:]}) == 1:
                found.append(("previous", above, present[1].index() or 0))
            else:
                return None
        return found

    def _edge(self, kind: Kind, producers: _Column, output: int) -> _Edge | None:
        if kind == "inner":
            return _Edge(kind, self.column_of[producers[0]], output)
        if kind == "previous":
            # The first level's producer lies in what is not aligned yet.
            columns = {self.column_of.get(producer, -1) for producer in producers[1:]}
            column = columns.pop()
            if columns or column < 0 or self.columns[column][:-1] != producers[1:]:
                return None
            return _Edge(kind, column, output)
        return _Edge(kind)


def levels_match(index: GraphIndex, anchors: Sequence[int], same: SameConstant) -> bool:
    """Whether the levels between ``anchors`` (three or more) are all alike."""
    return _Levels(index, anchors, same, static=True).align()


def propose_blocks(
    index: GraphIndex, anchors: Sequence[int], same: SameConstant
) -> Iterator[list[list[int]]]:
    """Yield ways to cut one block per anchor, those with the fewest carried values first.

    Args:
        index: the graph.
        anchors: two or more nodes, each depending on the one before.
        same: whether two constants may stand at one position.

    Yields:
        Per block its nodes, corresponding ones at equal positions, producers first.
    """
    for static in (True, False) if len(anchors) == 2 else (True,):
        levels = _Levels(index, anchors, same, static=static)
        if not levels.align():
            continue
        head = _match_head(levels)
        tail = _match_tail(levels, head)
        if tail is not None:
            yield from _cuts(levels, head, tail)


def _match_head(levels: _Levels) -> dict[int, int]:
    """Columns that have a counterpart before the first anchor → that node."""
    index = levels.index
    head: dict[int, int] = {}
    pending = [(len(levels.columns) - 1, levels.anchors[0])]
    while pending:
        column, node = pending.pop()
        if column in head or node in head.values():
            continue
        first = levels.columns[column][0]
        if index.signature[node] != index.signature[first]:
            continue
        inputs = list(
            zip(
                levels.edges[column],
                index.nodes[node].inputs,
                index.nodes[first].inputs,
                strict=True,
            )
        )
        if not all(_head_fits(levels, edge, own, other) for edge, own, other in inputs):
            continue
        head[column] = node
        for edge, own, _ in inputs:
            if edge.kind == "inner" and own is not None and own.index() == edge.output:
                producer = index.producer(own)
                if producer is not None:
                    pending.append((edge.column, producer))
    return head


def _head_fits(levels: _Levels, edge: _Edge, own: ir.Value | None, other: ir.Value | None) -> bool:
    if own is None or other is None:
        return own is other
    if edge.kind == "same":
        return own is other
    if edge.kind == "constant":
        return levels.same(other, own)
    return True


def _match_tail(levels: _Levels, head: dict[int, int]) -> dict[int, int] | None:
    """Columns that have a counterpart after the last anchor → that node.

    None if a column has a counterpart on neither side. A node is accepted with everything it
    needs from its own block, so a resemblance never suffices.
    """
    index, last = levels.index, levels.anchors[-1]
    before = index.ancestors[last] | 1 << last
    tail: dict[int, int] = {}
    without_head = [c for c in range(len(levels.columns)) if c not in head]
    with_head = [c for c in head if c != len(levels.columns) - 1]
    for column in [*reversed(without_head), *sorted(with_head, reverse=True)]:
        if column in tail:
            continue
        for node in index.by_signature[index.signature[levels.columns[column][0]]]:
            if not before >> node & 1:
                found = _tail_at(levels, column, node, before, head, tail)
                if found is not None:
                    tail.update(found)
                    break
        else:
            if column not in head:
                return None
    return tail


def _tail_at(
    levels: _Levels,
    column: int,
    node: int,
    before: int,
    head: dict[int, int],
    tail: dict[int, int],
) -> dict[int, int] | None:
    index = levels.index
    found: dict[int, int] = {}
    pending = [(column, node)]
    while pending:
        column, node = pending.pop()
        known = tail.get(column, found.get(column))
        if known is not None:
            if known != node:
                return None
            continue
        last = levels.columns[column][-1]
        if (
            before >> node & 1
            or node in found.values()
            or node in tail.values()
            or index.signature[node] != index.signature[last]
        ):
            return None
        found[column] = node
        for edge, own, other in zip(
            levels.edges[column], index.nodes[node].inputs, index.nodes[last].inputs, strict=True
        ):
            if own is None or other is None:
                if own is not other:
                    return None
                continue
            producer = index.producer(own)
            if edge.kind == "inner":
                if producer is None or own.index() != edge.output:
                    return None
                pending.append((edge.column, producer))
            elif edge.kind == "constant":
                if not levels.same(other, own):
                    return None
            elif edge.kind == "same" or producer is None:
                if own is not other:
                    return None
            elif edge.kind == "previous":
                if producer != levels.columns[edge.column][-1] or own.index() != edge.output:
                    return None
            elif own is not other and producer not in levels.column_of:
                return None  # else it is what the first block takes from before the run
    return found


def _cuts(levels: _Levels, head: dict[int, int], tail: dict[int, int]) -> Iterator[list[list[int]]]:
    count = len(levels.columns)
    inner = [[e.column for e in edges if e.kind == "inner"] for edges in levels.edges]
    ends = {c for c in range(count) if c not in head}  # columns that can only end a block
    for column in reversed(range(count)):
        if column in ends:
            ends.update(inner[column])
    starts = {c for c in range(count) if c not in tail}
    for column in range(count):
        if any(above in starts for above in inner[column]):
            starts.add(column)
    if ends & starts:
        return
    free = [c for c in range(count) if c not in ends and c not in starts]
    ranked = []
    for size in range(len(free) + 1):
        ending = ends.union(free[:size])
        carried = _count_carried(levels, ending)
        if carried is not None:
            ranked.append((carried, -size))
    for _, size in sorted(ranked):
        yield _blocks(levels, head, tail, ends.union(free[:-size] if size else ()))


def _count_carried(levels: _Levels, ending: set[int]) -> int | None:
    carried = set()
    for column, edges in enumerate(levels.edges):
        for edge in edges:
            if edge.kind == "inner" and edge.column in ending and column not in ending:
                carried.add((edge.column, edge.output))
            elif edge.kind == "previous":
                if edge.column in ending and column not in ending:
                    return None  # would reach back over two blocks
                if (edge.column in ending) == (column in ending):
                    carried.add((edge.column, edge.output))
    return len(carried)


def _blocks(
    levels: _Levels, head: dict[int, int], tail: dict[int, int], ending: set[int]
) -> list[list[int]]:
    order = [c for c in range(len(levels.columns)) if c not in ending] + sorted(ending)
    blocks = []
    for block in range(len(levels.anchors)):
        nodes = []
        for column in order:
            members = levels.columns[column]
            if column in ending:
                nodes.append(members[block] if block < len(members) else tail[column])
            else:
                nodes.append(members[block - 1] if block else head[column])
        blocks.append(nodes)
    return blocks
