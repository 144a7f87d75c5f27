"""Add nodes and constants under names that nobody has taken."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from exporter.passes.scopes import Names, owner

__all__ = ["Emitter"]


class Emitter:
    """Adds nodes and constants to one model.

    Args:
        model: the model; every scope of it counts for names.
    """

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._names = Names(model)
        self._fronts: dict[ir.Graph, ir.Node] = {}
        self._latest: dict[ir.Node, ir.Node] = {}
        self._made: dict[Hashable, ir.Value] = {}

    def op(
        self,
        anchor: ir.Node,
        operator: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        outputs: int = 1,
    ) -> tuple[ir.Value, ...]:
        """Add a node before ``anchor`` and return its outputs, called ``name`` made fresh.

        The node itself has no name: in an unrolled model names would be a tenth of the graph.
        """
        suffixes = [f"_{number}" if number else "" for number in range(outputs)]
        values = [ir.Value(name=self._names.fresh(f"{name}{suffix}")) for suffix in suffixes]
        node = ir.Node(
            domain,
            operator,
            inputs,
            ir.convenience.convert_attributes(attributes or {}),
            outputs=values,
            name="",
        )
        assert anchor.graph is not None
        anchor.graph.insert_before(anchor, node)
        self._latest[anchor] = node
        return tuple(values)

    def front(self, value: ir.Value) -> ir.Node:
        """Return the first node of the graph that owns the initializer ``value``.

        Nodes added before it keep the order they are added in and can read initializers of
        this graph and of those around it alone. The answer stays the same until that node is
        replaced: then it is the one behind all that was added before it.
        """
        graph = owner(value)
        front = self._fronts.get(graph)
        if front is None or front.graph is not graph:
            nodes = iter(graph)
            if front is not None and (latest := self._latest.get(front)) is not None:
                next(node for node in nodes if node is latest)
            first = next(nodes, None)
            assert first is not None, "a used initializer belongs to a graph with nodes"
            self._fronts[graph] = first
        return self._fronts[graph]

    def store(self, beside: ir.Value, name: str, array: np.ndarray) -> ir.Value:
        """Add an initializer to the graph that owns the initializer ``beside``."""
        return self._register(owner(beside), name, array)

    def constant(self, name: str, array: np.ndarray) -> ir.Value:
        """Return an initializer of the main graph, one for equal arrays."""
        key = ("constant", array.dtype.str, array.shape, array.tobytes())
        if key not in self._made:
            self._made[key] = self._register(self._model.graph, name, array)
        return self._made[key]

    def once(self, key: Hashable) -> ir.Value | None:
        """Return what was remembered under ``key``."""
        return self._made.get(key)

    def remember(self, key: Hashable, value: ir.Value) -> ir.Value:
        """Return ``value`` for ``key`` from now on."""
        self._made[key] = value
        return value

    def import_domain(self, domain: str, version: int) -> None:
        """Let the model use operators of ``domain``."""
        self._model.graph.opset_imports.setdefault(domain, version)

    def _register(self, graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
        fresh = self._names.fresh(name)
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=fresh)
        value = ir.Value(
            name=fresh,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        graph.register_initializer(value)
        return value
