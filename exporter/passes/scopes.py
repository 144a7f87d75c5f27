"""Scopes of ONNX names: graphs inside graphs, and names nobody has taken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

__all__ = [
    "Names",
    "all_graphs",
    "check_names",
    "inner_graphs",
    "lineage",
    "move_to_front",
    "owner",
    "parent_graphs",
]


def inner_graphs(nodes: Iterable[ir.Node]) -> Iterator[ir.Graph]:
    """Yield the graphs that ``nodes`` hold themselves (branches, loop bodies)."""
    for node in nodes:
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.GRAPH:
                yield attribute.as_graph()
            elif attribute.type == ir.AttributeType.GRAPHS:
                yield from attribute.as_graphs()


def parent_graphs(model: ir.Model) -> dict[ir.Graph, ir.Graph | None]:
    """Map each graph that may hold initializers to the next such graph around it.

    The main graph and the outermost graphs inside functions map to ``None``: a function's
    own body can hold no initializers.
    """
    parents: dict[ir.Graph, ir.Graph | None] = {}

    def enter(graph: ir.Graph, parent: ir.Graph | None) -> None:
        parents[graph] = parent
        for inner in inner_graphs(graph):
            enter(inner, graph)

    enter(model.graph, None)
    for function in model.functions.values():
        for inner in inner_graphs(function):
            enter(inner, None)
    return parents


def all_graphs(model: ir.Model) -> Iterator[ir.Graph | ir.Function]:
    """Yield the main graph, every function, and every graph inside them."""
    pending: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    while pending:
        graph = pending.pop(0)
        yield graph
        pending.extend(inner_graphs(graph))


def lineage(graph: ir.Graph, parents: dict[ir.Graph, ir.Graph | None]) -> list[ir.Graph]:
    """Return ``graph`` and the graphs around it, innermost first."""
    graphs = [graph]
    while (parent := parents[graphs[-1]]) is not None:
        graphs.append(parent)
    return graphs


def owner(initializer: ir.Value) -> ir.Graph:
    """Return the graph that holds ``initializer``."""
    assert isinstance(initializer.graph, ir.Graph), "an initializer belongs to a graph"
    return initializer.graph


class Names:
    """Every value name of a model, in whatever scope, to find free ones."""

    def __init__(self, model: ir.Model) -> None:
        self._taken: set[str] = set()
        for graph in all_graphs(model):
            self._taken.update(value.name for value in graph.inputs if value.name)
            if isinstance(graph, ir.Graph):
                self._taken.update(graph.initializers)
            for node in graph:
                self._taken.update(value.name for value in node.outputs if value.name)

    def fresh(self, base: str) -> str:
        """Return ``base``, or ``base_2``, ``base_3``, …: the first that is free, now taken."""
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name


def check_names(model: ir.Model) -> tuple[str, ...]:
    """Say what is wrong with the names of ``model``, each name once; nothing if all are valid.

    1. Names of values are unique in a graph, and differ from those of the graphs around it.
       Graphs side by side, such as the branches of an ``If``, may use the same names, and
       functions any.
    2. A value that is read has a name. ``onnx_ir`` gives one where there is none, but knows
       the names of that one graph only, so it may take one that the graph around it uses.
    3. Names of nodes are unique in a graph; a node may have none.
    """
    wrong: dict[str, None] = {}
    roots: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for root in roots:
        _check_scope(root, set(), wrong)
    return tuple(wrong)


def _check_scope(graph: ir.Graph | ir.Function, taken: set[str], wrong: dict[str, None]) -> None:
    """Check ``graph``, where ``taken`` are the names of the graphs around it."""
    own: list[str] = []
    values = list(graph.inputs)
    if isinstance(graph, ir.Graph):
        values += [value for value in graph.initializers.values() if not value.is_graph_input()]
    node_names: set[str] = set()
    nested: list[ir.Node] = []
    for node in graph:
        values += node.outputs
        if node.attributes:
            nested.append(node)
        if node.name in node_names:
            wrong[f"node name {node.name!r} is taken"] = None
        elif node.name:
            node_names.add(node.name)
    for value in values:
        name = value.name
        if name in taken:
            wrong[f"value name {name!r} is taken"] = None
        elif name:
            taken.add(name)
            own.append(name)
        elif name is None or value.uses() or value.is_graph_output():
            wrong["a value has no name"] = None
    for inner in inner_graphs(nested):
        _check_scope(inner, taken, wrong)
    taken.difference_update(own)


def move_to_front(node: ir.Node, graph: ir.Graph, names: Names, node_names: Names) -> None:
    """Move ``node``, all of whose inputs are initializers, before all nodes of ``graph``."""
    assert node.graph is not None
    if node.graph is not graph:
        # Other graphs may use the same names for different things, so its own may clash.
        node.name = node_names.fresh(node.name or node.op_type)
        for value in node.outputs:
            value.name = names.fresh(str(value.name))
    first = next(iter(graph), None)
    if first is node:
        return
    node.graph.remove(node)
    if first is None:
        graph.append(node)
    else:
        graph.insert_before(first, node)
