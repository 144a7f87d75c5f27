"""The tensors of a file with where they are and how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import onnx_ir as ir

from exporter.accounting import StoredTensor, iter_stored
from exporter.errors import CheckpointError

__all__ = ["VIEWS", "TensorEntry", "graph_labels", "read_entries"]

VIEWS = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that only present a tensor in another way: aliases, in a report."""


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a file.

    Args:
        name: the initializer's, or ``node/attribute``.
        graph: where it is; see :func:`graph_labels`.
        place: what holds it: ``attribute`` is one of another operator than ``Constant``.
        stored_bytes: bytes it takes; 0 where external data of an earlier tensor is used again.
        behind: operators of :data:`VIEWS` that stand between it and *all* its users.
        uses: how many node inputs read it, graph outputs included.
        overridable: it is also a graph input, so a caller may give another value.
    """

    name: str
    graph: str
    place: Literal["initializer", "constant", "attribute"]
    stored_bytes: int
    behind: tuple[str, ...]
    uses: int
    overridable: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "graph": self.graph,
            "place": self.place,
            "stored_bytes": self.stored_bytes,
            "behind": list(self.behind),
            "uses": self.uses,
            "overridable": self.overridable,
        }


def graph_labels(model: ir.Model) -> dict[ir.Graph, str]:
    """Name every graph: ``main``, ``function own.layer``, ``main/loop_3.body`` for inner ones."""
    labels: dict[ir.Graph, str] = {}

    def enter(graph: ir.Graph, label: str) -> None:
        labels[graph] = label
        for node in graph:
            for key, attribute in node.attributes.items():
                if attribute.is_ref():
                    continue
                where = f"{label}/{node.name or node.op_type}.{key}"
                if attribute.type == ir.AttributeType.GRAPH:
                    enter(attribute.as_graph(), where)
                elif attribute.type == ir.AttributeType.GRAPHS:
                    for index, inner in enumerate(attribute.as_graphs()):
                        enter(inner, f"{where}[{index}]")

    enter(model.graph, "main")
    for function in model.functions.values():
        enter(function.graph, f"function {function.domain}.{function.name}")
    return labels


def read_entries(
    model: ir.Model, labels: dict[ir.Graph, str]
) -> Iterator[tuple[TensorEntry, ir.TensorProtocol]]:
    """Yield every tensor with what is known of it without reading its content.

    Raises:
        CheckpointError: a tensor without a data type.
    """
    places: set[tuple[str, int, int]] = set()
    for stored in iter_stored(model):
        tensor = stored.tensor
        if tensor.dtype == ir.DataType.UNDEFINED:
            raise CheckpointError(f"tensor {stored.name!r} has no data type: the file is damaged")
        again = False
        if isinstance(tensor, ir.ExternalTensor):
            place = (str(tensor.path), tensor.offset or 0, tensor.nbytes)
            again = place in places
            places.add(place)
        yield _entry(stored, labels, 0 if again else tensor.nbytes), tensor


def _entry(stored: StoredTensor, labels: dict[ir.Graph, str], stored_bytes: int) -> TensorEntry:
    value = stored.value
    place: Literal["initializer", "constant", "attribute"] = "attribute"
    if value is not None:
        place = "initializer" if value.is_initializer() else "constant"
    return TensorEntry(
        name=stored.name,
        graph=labels[stored.graph],
        place=place,
        stored_bytes=stored_bytes,
        behind=() if value is None else _views(value),
        uses=1 if value is None else len(value.uses()) + value.is_graph_output(),
        overridable=value is not None and value.is_graph_input(),
    )


def _views(value: ir.Value) -> tuple[str, ...]:
    """Return the operators of the chains of views behind which all users of ``value`` are."""
    found: dict[str, None] = {}
    users = value.consumers()
    if value.is_graph_output() or not all(_is_view(node) for node in users):
        return ()
    pending = list(users)
    while pending:
        node = pending.pop()
        if _is_view(node):
            found[node.op_type] = None
            pending.extend(node.outputs[0].consumers())
    return tuple(sorted(found))


def _is_view(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type in VIEWS
