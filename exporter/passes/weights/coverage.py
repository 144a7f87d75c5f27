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

__all__ = [
    "Coverage",
    "LeftWeight",
    "RewriteUsesPass",
    "StoreWeightsPass",
    "StoredWeight",
    "replace_node",
]

FIRST_OPSET = 13
"""The first opset in which ``Unsqueeze`` takes axes as an input, as the forms here do."""


@dataclass(frozen=True)
class LeftWeight(Skip):
    """One weight that stays as it is; ``value`` is its name.

    Args:
        nbytes: bytes it takes.
        on_purpose: it was to stay, by its name or operator, or has nothing to gain.
    """

    nbytes: int = 0
    on_purpose: bool = False


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
    skipped: tuple[LeftWeight, ...]

    @property
    def bytes_share(self) -> float:
        """Reached bytes in proportion to all, 0 to 1; 1 where there are no weights."""
        return self.bytes_reached / self.bytes_total if self.bytes_total else 1.0

    @property
    def missed(self) -> tuple[LeftWeight, ...]:
        """Weights that were eligible and could not be reached: the rest of ``skipped`` was
        to stay."""
        return tuple(left for left in self.skipped if not left.on_purpose)

    @property
    def is_full(self) -> bool:
        """Whether every eligible byte was reached."""
        return not self.missed

    def then(self, later: Coverage) -> Coverage:
        """Return the coverage of this rule and one applied to what it left.

        What this one stored as float16 is no weight that the later one missed.
        """
        left = {weight.value for weight in self.skipped}
        return Coverage(
            operations_reached=self.operations_reached + later.operations_reached,
            operations_total=self.operations_total,
            bytes_reached=self.bytes_reached + later.bytes_reached,
            bytes_total=self.bytes_total,
            skipped=tuple(weight for weight in later.skipped if weight.value in left),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "bytes_share": round(self.bytes_share, 6), "full": self.is_full}

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
        idle: those of ``keep`` that match no weight there was.

    Raises:
        PassError: the model's opset is below 13.
    """

    def __init__(
        self, operators: frozenset[Operator] = OPERATORS, keep: Sequence[Keep] = ()
    ) -> None:
        super().__init__()
        self._operators, self._keep = operators, tuple(keep)
        self.coverage = Coverage(0, 0, 0, 0, ())
        self.idle: tuple[Keep, ...] = ()

    @property
    def stored(self) -> list[StoredWeight]:
        """The weights that the latest call stored."""
        return [match for match in self.matches if isinstance(match, StoredWeight)]

    @abc.abstractmethod
    def convert(self, weight: Weight, emitter: Emitter) -> tuple[Stored, StoredWeight] | str:
        """Store ``weight`` in its new form, changing no use, or say why it would not gain."""

    @abc.abstractmethod
    def apply(
        self, model: ir.Model, chosen: Sequence[tuple[Weight, Stored]], emitter: Emitter
    ) -> None:
        """Make every use of the weights read what is stored."""

    def rewrite(self, model: ir.Model) -> None:
        """Store all weights that can be."""
        weights = find_weights(model)
        names = [name for weight in weights for name in _names(weight)]
        self.idle = tuple(keep for keep in self._keep if not any(map(keep.matches, names)))
        if weights and (version := model.graph.opset_imports.get("", 1)) < FIRST_OPSET:
            raise PassError(
                f"storing weights in fewer bits needs opset {FIRST_OPSET}, this graph is in "
                f"opset {version}; convert it with onnx.version_converter first"
            )
        emitter = Emitter(model)
        chosen: list[tuple[Weight, Stored]] = []
        left: list[LeftWeight] = []
        for weight in weights:
            answer: LeftWeight | tuple[Stored, StoredWeight] | str | None = self._left(weight)
            answer = answer or self.convert(weight, emitter)
            if isinstance(answer, str):
                answer = _leave(weight, answer, on_purpose=True)
            if isinstance(answer, LeftWeight):
                left.append(answer)
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
            skipped=tuple(left),
        )
        self.skipped.extend(left)

    def obstacles(self, weight: Weight) -> Sequence[str]:
        """Say why the uses of ``weight`` cannot read this form."""
        return weight.obstacles

    def _left(self, weight: Weight) -> LeftWeight | None:
        """Say why ``weight`` stays as it is, if it does."""
        for keep in self._keep:
            for name in _names(weight):
                if keep.matches(name):
                    why = f"kept: {name} matches {keep.pattern!r} ({keep.why})"
                    return _leave(weight, why, on_purpose=True)
        if reasons := [*weight.fixed, *self.obstacles(weight)]:
            return _leave(weight, "; ".join(reasons))
        if others := weight.operators - self._operators:
            why = f"used by {', '.join(sorted(others))}, which this precision leaves"
            return _leave(weight, why, on_purpose=True)
        array = weight.tensor.numpy()
        if not np.isfinite(array).all():
            why = f"holds {np.count_nonzero(~np.isfinite(array))} infinities or NaN"
            return _leave(weight, why)
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


def _names(weight: Weight) -> list[str]:
    """Return what a weight can be kept by: its name and those of the nodes that use it."""
    return [weight.name, *(use.name for use in weight.uses)]


def _leave(weight: Weight, reason: str, *, on_purpose: bool = False) -> LeftWeight:
    return LeftWeight(weight.name, reason, weight.tensor.nbytes, on_purpose)


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
