"""Levels: what lies between equal nodes of a chain, aligned node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import onnx_ir as ir

from exporter.passes.blocks.graph_index import GraphIndex

__all__ = ["Edge", "Levels", "SameConstant", "levels_match"]

SameConstant = Callable[[ir.Value, ir.Value], bool]
"""Whether two constants may stand at one position of two blocks."""

Kind = Literal["none", "same", "constant", "inner", "previous", "outer"]


@dataclass(frozen=True)
class Edge:
    """Where one input of a column comes from, relative to the column's own level.

    ``same``: one value for all levels; ``inner``: output ``output`` of ``column`` in the same
    level; ``previous``: in the level before; ``outer``: not known, as there is one level only.
    """

    kind: Kind
    column: int = -1
    output: int = 0


Column = tuple[int, ...]  # the corresponding node in each level


class Levels:
    """Columns of corresponding nodes over the levels of ``anchors``, producers first."""

    def __init__(self, index: GraphIndex, anchors: Sequence[int], same: SameConstant) -> None:
        self.index, self.anchors, self.same = index, anchors, same
        self.columns: list[Column] = []
        self.edges: list[list[Edge]] = []
        self.column_of: dict[int, int] = {}
        self._members = []
        for before, anchor in pairwise(anchors):
            above = index.ancestors[anchor] & ~index.ancestors[before] & ~(1 << before)
            self._members.append(above | 1 << anchor)
        self._below = index.descendants(anchors[0])

    def align(self) -> bool:
        """Fill the columns; False if the levels differ."""
        raw: dict[Column, list[tuple[Kind, Column, int]]] = {}
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

    def _inputs(self, column: Column) -> list[tuple[Kind, Column, int]] | None:
        index = self.index
        if len({index.signature[node] for node in column}) > 1:
            return None
        found: list[tuple[Kind, Column, int]] = []
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

    def _edge(self, kind: Kind, producers: Column, output: int) -> Edge | None:
        if kind == "inner":
            return Edge(kind, self.column_of[producers[0]], output)
        if kind == "previous":
            # The first level's producer lies in what is not aligned yet.
            columns = {self.column_of.get(producer, -1) for producer in producers[1:]}
            column = columns.pop()
            if columns or column < 0 or self.columns[column][:-1] != producers[1:]:
                return None
            return Edge(kind, column, output)
        return Edge(kind)


def levels_match(index: GraphIndex, anchors: Sequence[int], same: SameConstant) -> bool:
    """Whether the levels between ``anchors`` (three or more) are all alike."""
    return Levels(index, anchors, same).align()
