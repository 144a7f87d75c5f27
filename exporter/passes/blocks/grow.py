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

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from exporter.passes.blocks.graph_index import GraphIndex
from exporter.passes.blocks.levels import Edge, Levels, SameConstant

__all__ = ["propose_blocks"]


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
    levels = Levels(index, anchors, same)
    if not levels.align():
        return
    head = _match_head(levels)
    tail = _match_tail(levels, head)
    if tail is not None:
        yield from _cuts(levels, head, tail)


def _match_head(levels: Levels) -> dict[int, int]:
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


def _head_fits(levels: Levels, edge: Edge, own: ir.Value | None, other: ir.Value | None) -> bool:
    if own is None or other is None:
        return own is other
    if edge.kind == "same":
        return own is other
    if edge.kind == "constant":
        return levels.same(other, own)
    return True


def _match_tail(levels: Levels, head: dict[int, int]) -> dict[int, int] | None:
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
    levels: Levels,
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


def _cuts(levels: Levels, head: dict[int, int], tail: dict[int, int]) -> Iterator[list[list[int]]]:
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
    ranked = [
        (_count_carried(levels, ends.union(free[:size])), -size) for size in range(len(free) + 1)
    ]
    for _, size in sorted(ranked):
        yield _blocks(levels, head, tail, ends.union(free[:-size] if size else ()))


def _count_carried(levels: Levels, ending: set[int]) -> int:
    carried = set()
    for column, edges in enumerate(levels.edges):
        for edge in edges:
            crosses = edge.column in ending and column not in ending
            if edge.kind == "previous":
                crosses = (edge.column in ending) == (column in ending)
            if crosses and edge.kind in ("inner", "previous"):
                carried.add((edge.column, edge.output))
    return len(carried)


def _blocks(
    levels: Levels, head: dict[int, int], tail: dict[int, int], ending: set[int]
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
