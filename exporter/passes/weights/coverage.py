"""What every pass does that stores weights in fewer bits: choose, store once, reach all uses."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import onnx_ir as ir

from exporter.errors import PassError
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import all_graphs, owner
from exporter.passes.weights.emit import Emitter
from exporter.passes.weights.find import Weight, WeightUse, find_weights
from exporter.precision import OPERATORS, Keep, Operator

__all__ = ["Coverage", "RewriteUsesPass", "StoreWeightsPass", "StoredWeight", "replace_node"]

FIRST_OPSET = 13
"""The first opset in which ``Unsqueeze`` takes axes as an input, as the forms here do."""


@dataclass(frozen=True)
class Coverage:
    """How far a precision reached.

    Args:
        operations_reached: operations whose weight is now stored in it.
        operations_total: all operations on weights.
        bytes_reached: bytes that the reached weights took before, each counted once.
        bytes_total: bytes of all weights before.
        skipped: each weight that was left, with the reason.
    """

    operations_reached: int
    operations_total: int
    bytes_reached: int
    bytes_total: int
    skipped: tuple[Skip, ...]

    @property
    def bytes_share(self) -> float:
        """Reached bytes in proportion to all, 0 to 1; 1 where there are no weights."""
        return self.bytes_reached / self.bytes_total if self.bytes_total else 1.0

    def then(self, later: Coverage) -> Coverage:
        """Return the coverage of this rule and one applied to what it left."""
        return Coverage(
            operations_reached=self.operations_reached + later.operations_reached,
            operations_total=self.operations_total,
            bytes_reached=self.bytes_reached + later.bytes_reached,
            bytes_total=self.bytes_total,
            skipped=later.skipped,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.operations_reached} of {self.operations_total} operations, "
            f"{self.bytes_share:.1%} of the bytes of weights"
        )


@dataclass(frozen=True)
class StoredWeight(Match):
    """One weight that is stored otherwise; ``value`` is its name, ``detail`` the form.

    Args:
        relative_error: root mean square of the change, in proportion to that of the weight.
        largest_error: largest change of one number, in the weight's own unit.
        operations: names of the operations that use it.
        notice: what a person should know: numbers that were clipped, rescaled, lost.
    """

    relative_error: float = 0.0
    largest_error: float = 0.0
    operations: tuple[str, ...] = ()
    notice: str | None = None


Stored = TypeVar("Stored")


class StoreWeightsPass(ReportingPass, Generic[Stored]):
    """Stores each chosen weight once in another form, and makes every use read that.

    A weight is stored otherwise if *all* its uses can read the new form, else left as it is
    with the reason: a float copy beside the new one would cost more than it saves.

    Args:
        operators: weights that other operators use as well are left.
        keep: weights to leave, by name.

    Attributes:
        coverage: how far the latest call reached.

    Raises:
        PassError: the model's opset is below 13.
    """

    def __init__(
        self, operators: frozenset[Operator] = OPERATORS, keep: Sequence[Keep] = ()
    ) -> None:
        super().__init__()
        self._operators, self._keep = operators, tuple(keep)
        self.coverage = Coverage(0, 0, 0, 0, ())

    @property
    def stored(self) -> list[StoredWeight]:
        """The weights that the latest call stored."""
        return [match for match in self.matches if isinstance(match, StoredWeight)]

    @abc.abstractmethod
    def convert(self, weight: Weight, emitter: Emitter) -> tuple[Stored, StoredWeight] | str:
        """Store ``weight`` in its new form, changing no use, or say why not."""

    @abc.abstractmethod
    def apply(
        self, model: ir.Model, chosen: Sequence[tuple[Weight, Stored]], emitter: Emitter
    ) -> None:
        """Make every use of the weights read what is stored."""

    def rewrite(self, model: ir.Model) -> None:
        """Store all weights that can be."""
        weights = find_weights(model)
        if weights and (version := model.graph.opset_imports.get("", 1)) < FIRST_OPSET:
            raise PassError(
                f"storing weights in fewer bits needs opset {FIRST_OPSET}, this graph is in "
                f"opset {version}; convert it with onnx.version_converter first"
            )
        emitter = Emitter(model)
        chosen: list[tuple[Weight, Stored]] = []
        for weight in weights:
            answer = self._left(weight) or self.convert(weight, emitter)
            if isinstance(answer, str):
                self.skipped.append(Skip(weight.name, answer))
            else:
                chosen.append((weight, answer[0]))
                self.matches.append(answer[1])
        self.apply(model, chosen, emitter)
        reached = [weight for weight, _ in chosen]
        for weight in reached:
            _remove(weight, emitter)
        self.coverage = Coverage(
            operations_reached=sum(len(weight.uses) for weight in reached),
            operations_total=sum(len(weight.uses) for weight in weights),
            bytes_reached=sum(weight.tensor.nbytes for weight in reached),
            bytes_total=sum(weight.tensor.nbytes for weight in weights),
            skipped=tuple(self.skipped),
        )

    def obstacles(self, weight: Weight) -> Sequence[str]:
        """Say why the uses of ``weight`` cannot read this form."""
        return weight.obstacles

    def _left(self, weight: Weight) -> str | None:
        """Say why ``weight`` stays as it is."""
        for keep in self._keep:
            for name in (weight.name, *(use.name for use in weight.uses)):
                if keep.matches(name):
                    return f"kept: {name} matches {keep.pattern!r} ({keep.why})"
        if reasons := [*weight.fixed, *self.obstacles(weight)]:
            return "; ".join(reasons)
        if others := weight.operators - self._operators:
            return f"used by {', '.join(sorted(others))}, which this precision leaves"
        array = weight.tensor.numpy()
        if not np.isfinite(array).all():
            return f"holds {np.count_nonzero(~np.isfinite(array))} infinities or NaN"
        return None


class RewriteUsesPass(StoreWeightsPass[Stored]):
    """Stores weights in a form that each use reads in its own way."""

    @abc.abstractmethod
    def rewrite_use(self, use: WeightUse, stored: Stored, emitter: Emitter) -> ir.Value:
        """Add nodes before ``use.node`` that compute its output from ``stored``."""

    def apply(
        self, model: ir.Model, chosen: Sequence[tuple[Weight, Stored]], emitter: Emitter
    ) -> None:
        """Replace the uses in the order of the nodes: the first makes what they share."""
        uses = {use.node: (use, stored) for weight, stored in chosen for use in weight.uses}
        for graph in list(all_graphs(model)):
            for node in list(graph):
                if node in uses:
                    replace_node(node, self.rewrite_use(*uses[node], emitter))


def replace_node(node: ir.Node, result: ir.Value) -> None:
    """Let ``result``, made before ``node``, take the place of its only output."""
    graph, output = node.graph, node.outputs[0]
    assert graph is not None
    ir.convenience.replace_nodes_and_values(graph, node, [node], [], [output], [result])


def _remove(weight: Weight, emitter: Emitter) -> None:
    """Remove the weight and what stands between it and its uses, all without users now."""
    shape = np.array(tuple(weight.tensor.shape), np.int64)
    for use in weight.sizes:
        start, end = use.node.attributes.get_int("start", 0), use.node.attributes.get("end")
        asked = (shape[::-1] if use.transposed else shape)[start : end.as_int() if end else None]
        use.node.outputs[0].replace_all_uses_with(emitter.constant("sizes", asked))
        _remove_node(use.node)
    for path in [*(use.path for use in weight.uses), *(use.path for use in weight.sizes)]:
        for node in reversed(path):
            if node.graph is not None and not node.outputs[0].uses():
                _remove_node(node)
    assert not weight.value.uses(), f"{weight.name} still has users"
    del owner(weight.value).initializers[weight.name]


def _remove_node(node: ir.Node) -> None:
    """Remove a node whose output nothing uses."""
    assert node.graph is not None
    node.graph.remove(node, safe=True)
