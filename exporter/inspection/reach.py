"""How far a quantizer would get: operations and bytes, and what it would miss."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["QuantizerReach", "Status", "WeightOperation"]

Status = Literal["reached", "missed", "reduced"]


@dataclass(frozen=True)
class WeightOperation:
    """One operation that reads a weight: a stored tensor of two dimensions or more.

    Args:
        name: the node's.
        operator: such as ``MatMul``, ``com.microsoft.Attention``.
        graph: where the node is.
        weights: names of the stored tensors that the weight is made of.
        weight_bytes: their bytes.
        status: ``reduced`` already, ``reached`` or ``missed`` by a quantizer.
        reason: why it is missed.
        hidden: it is missed because of how the weight is written (behind aliases, in
            a ``Constant``), which de-duplication repairs.
    """

    name: str
    operator: str
    graph: str
    weights: tuple[str, ...]
    weight_bytes: int
    status: Status
    reason: str | None
    hidden: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "operator": self.operator,
            "graph": self.graph,
            "weights": list(self.weights),
            "weight_bytes": self.weight_bytes,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class QuantizerReach:
    """What a quantizer would reach.

    Args:
        operations: every operation that reads a weight.
        weight_bytes: bytes of all weights, each tensor once.
        reached_bytes: of those whose every operation is reached; of others a float copy
            would stay.
        reduced_bytes: of those that are stored in fewer bits already.
    """

    operations: tuple[WeightOperation, ...]
    weight_bytes: int
    reached_bytes: int
    reduced_bytes: int

    def count(self, status: Status) -> int:
        """Return the number of operations of this status."""
        return sum(operation.status == status for operation in self.operations)

    @property
    def missed(self) -> tuple[WeightOperation, ...]:
        """The operations a quantizer would miss."""
        return tuple(o for o in self.operations if o.status == "missed")

    @property
    def reasons(self) -> dict[str, int]:
        """How many operations are missed for which reason, the commonest first."""
        counts = Counter(str(operation.reason) for operation in self.missed)
        return dict(counts.most_common())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        by_operator: dict[str, dict[str, int]] = {}
        for operation in self.operations:
            counts = by_operator.setdefault(
                operation.operator, {"reached": 0, "missed": 0, "reduced": 0}
            )
            counts[operation.status] += 1
        return {
            "operations": len(self.operations),
            "reached_operations": self.count("reached"),
            "reduced_operations": self.count("reduced"),
            "weight_bytes": self.weight_bytes,
            "reached_bytes": self.reached_bytes,
            "reduced_bytes": self.reduced_bytes,
            "by_operator": dict(sorted(by_operator.items())),
            "missed_reasons": self.reasons,
            "missed": [operation.to_dict() for operation in self.missed],
        }
