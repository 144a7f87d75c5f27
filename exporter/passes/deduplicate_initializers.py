"""Store equal initializers once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator

import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names, lineage, owner, parent_graphs
from exporter.passes.tensors import same_content, type_and_shape

__all__ = ["DeduplicateInitializersPass"]

Parents = dict[ir.Graph, ir.Graph | None]


class DeduplicateInitializersPass(ReportingPass):
    """Replace initializers of equal type, shape and bits by one of them.

    ::

        W1 = [1, 2]; W2 = [1, 2]           W1 = [1, 2]
        y = Add(x, W1)              ->     y = Add(x, W1)
        z = Add(y, W2)                     z = Add(y, W1)

    1. Of any size: a threshold would only hide what it leaves behind.
    2. Bits decide: ``0.0`` and ``-0.0`` stay apart, a NaN equals the same NaN.
    3. An initializer of an inner graph is replaced by an equal one of a graph around it.
    4. Equal ones in sibling graphs (the branches of an ``If``) become one copy in the
       innermost graph around both, under a name that is free in the whole model.
    5. An initializer that is a graph output stays, under its name; others that can see it
       may be replaced by it. Two equal outputs keep a copy each.
    6. An initializer that is also a graph input is left alone: a caller may override it.
    7. Functions cannot hold initializers, so graphs inside a function share only where a
       common graph around them, still inside the function, can hold the copy.

    Memory: a digest per candidate; the bits of two tensors at a time.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Merge in the main graph, its inner graphs, and those inside functions."""
        parents = parent_graphs(model)
        names = Names(model)
        for group in self._equal_groups(parents):
            self._merge(group, parents, names)

    def _equal_groups(self, parents: Parents) -> Iterator[list[ir.Value]]:
        """Yield lists of two or more equal initializers that share an outermost graph."""
        buckets: dict[Hashable, list[ir.Value]] = defaultdict(list)
        for graph in parents:
            outermost = lineage(graph, parents)[-1]
            for value in graph.initializers.values():
                if value.const_value is None:
                    self.skipped.append(Skip(str(value.name), "holds no tensor"))
                elif value.is_graph_input():
                    self.skipped.append(Skip(str(value.name), "is an input: callers may override"))
                else:
                    buckets[id(outermost), type_and_shape(value.const_value)].append(value)
        for bucket in buckets.values():
            if len(bucket) > 1:
                yield from (group for group in _split_by_content(bucket) if len(group) > 1)

    def _merge(self, group: list[ir.Value], parents: Parents, names: Names) -> None:
        outputs = [value for value in group if value.is_graph_output()]
        rest: list[ir.Value] = []
        for value in group:
            if value in outputs:
                continue
            visible = lineage(owner(value), parents)
            keeper = next((output for output in outputs if owner(output) in visible), None)
            if keeper is None:
                rest.append(value)
            else:
                self._replace(value, keeper)
        for value in outputs if len(outputs) > 1 or rest else ():
            self.skipped.append(Skip(str(value.name), "is a graph output: keeps its own copy"))
        if len(rest) < 2:
            return
        home = _common_graph((owner(value) for value in rest), parents)
        keeper = next((value for value in rest if owner(value) is home), None)
        if keeper is None:
            keeper = rest[0]
            _move(keeper, home, names)
        for value in rest:
            if value is not keeper:
                self._replace(value, keeper)

    def _replace(self, value: ir.Value, keeper: ir.Value) -> None:
        assert value.const_value is not None and value.name is not None
        value.replace_all_uses_with(keeper)
        del owner(value).initializers[value.name]
        detail = f"replaced by equal {keeper.name!r}"
        self.matches.append(Match(value.name, detail, value.const_value.nbytes))


def _split_by_content(values: Iterable[ir.Value]) -> Iterator[list[ir.Value]]:
    by_digest: dict[str, list[list[ir.Value]]] = defaultdict(list)
    for value in values:
        assert value.const_value is not None
        groups = by_digest[tensor_digest(value.const_value)]
        for group in groups:
            first = group[0].const_value
            # A digest is evidence; the bits are proof.
            if first is not None and same_content(first, value.const_value):
                group.append(value)
                break
        else:
            groups.append([value])
    for groups in by_digest.values():
        yield from groups


def _common_graph(graphs: Iterable[ir.Graph], parents: Parents) -> ir.Graph:
    lineages = [lineage(graph, parents) for graph in graphs]
    return next(graph for graph in lineages[0] if all(graph in other for other in lineages))


def _move(value: ir.Value, graph: ir.Graph, names: Names) -> None:
    assert value.name is not None
    del owner(value).initializers[value.name]
    # Sibling graphs may use one name for different things, so even its own name may clash.
    value.name = names.fresh(value.name)
    graph.register_initializer(value)
