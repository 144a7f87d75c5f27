"""The rules of an early exit as nodes; :mod:`exporter.early_exit` says what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from exporter.early_exit import RuleName
from exporter.passes.blocks.extend import LoopExtension

__all__ = ["RULE_NODES", "Look", "RuleNodes", "State"]


@dataclass(frozen=True)
class State:
    """What a rule remembers: ``after`` of one look is ``before`` of the next.

    Args:
        before: value of the loop's body.
        after: value of the branch.
        initial: what the first look takes.
        name: in the graph.
    """

    before: ir.Value
    after: ir.Value
    initial: np.ndarray
    name: str


@dataclass
class Look:
    """A rule's look at an answer: adds nodes to the branch that is run for it.

    Args:
        extension: of the loop.
        branch: where nodes go.
        answer: ``[batch, …]``, what the rule looks at.
        setting: the rule's input.
        mask: ``[batch, sequence]``, 0 at padding, if there is one.

    Attributes:
        states: what the rule remembers.
    """

    extension: LoopExtension
    branch: ir.Graph
    answer: ir.Value
    setting: ir.Value
    mask: ir.Value | None
    states: list[State] = field(default_factory=list)

    def op(self, operator: str, inputs: list[ir.Value], name: str, **attributes: int) -> ir.Value:
        """Add a node."""
        return self.extension.op(self.branch, operator, inputs, name, attributes)

    def number(self, name: str, value: int) -> ir.Value:
        """Add a constant ``int64 []``."""
        return self.extension.constant(name, np.array(value, np.int64))

    def axis(self, number: int) -> ir.Value:
        """Add a constant that names one axis."""
        return self.extension.constant("axis", np.array([number], np.int64))

    def swap(self, name: str, initial: np.ndarray) -> tuple[ir.Value, Callable[[ir.Value], None]]:
        """Return what the look before remembered, and a function that remembers the next."""
        end = self.extension.names.fresh(f"{name}_at_end")
        before = self.extension.state(name, ir.DataType.from_numpy(initial.dtype))

        def remember(after: ir.Value) -> None:
            self.states.append(State(before, after, initial, end))

        return before, remember


@dataclass(frozen=True)
class RuleNodes:
    """How a rule becomes nodes.

    Args:
        can_fire: operator that tells from the setting whether the rule can hold at all, with
            what it is compared: a number, or ``None`` for the number of passes.
        fires: adds the nodes of a look; returns whether the rule holds, ``bool [batch, 1]``.
    """

    can_fire: tuple[str, float | None]
    fires: Callable[[Look], ir.Value]


def _confidence(look: Look) -> ir.Value:
    chances = look.op("Softmax", [look.answer], "chances", axis=-1)
    largest = look.op("ReduceMax", [chances, look.axis(1)], "confidence")
    return look.op("Greater", [largest, look.setting], "is_confident")


def _patience(look: Look) -> ir.Value:
    before, remember = look.swap("label", np.full((1, 1), -1))
    label = look.op("ArgMax", [look.answer], "label", axis=1)
    remember(label)
    same = look.op("Equal", [label, before], "same_label")
    streak_before, remember = look.swap("streak", np.zeros((1, 1), np.int64))
    longer = look.op("Add", [streak_before, look.number("one", 1)], "longer_streak")
    streak = look.op("Where", [same, longer, look.number("none", 0)], "streak")
    remember(streak)
    return look.op("GreaterOrEqual", [streak, look.setting], "is_patient")


def _change(look: Look) -> ir.Value:
    assert look.answer.dtype is not None and look.answer.shape is not None
    if look.answer.shape.rank() == 2:
        state = look.op("Identity", [look.answer], "state")  # a branch gives what is its own
    else:
        state = _sum_over_tokens(look)
    before, remember = look.swap("state", np.zeros((1, 1), look.answer.dtype.numpy()))
    remember(state)
    change = look.op("Sub", [state, before], "change")
    length = look.op("ReduceL2", [change, look.axis(1)], "change_length")
    whole = look.op("ReduceL2", [before, look.axis(1)], "state_length")
    limit = look.op("Mul", [whole, look.setting], "change_limit")
    return look.op("Less", [length, limit], "is_steady")


def _sum_over_tokens(look: Look) -> ir.Value:
    """``[batch, sequence, width]`` to ``[batch, width]``, padding left out."""
    if look.mask is None:
        return look.op("ReduceSum", [look.answer, look.axis(1)], "token_sum", keepdims=0)
    outside, dtype = look.extension.graph, {"to": look.answer.dtype}
    weights = look.extension.op(outside, "Cast", [look.mask], "token_weights", dtype)
    row = look.extension.op(outside, "Unsqueeze", [weights, look.axis(1)], "token_row")
    total = look.op("MatMul", [row, look.answer], "token_total")  # [batch, 1, width]
    return look.op("Squeeze", [total, look.axis(1)], "token_sum")


RULE_NODES: Mapping[RuleName, RuleNodes] = {
    "confidence": RuleNodes(("Less", 1.0), _confidence),
    "patience": RuleNodes(("Less", None), _patience),
    "change": RuleNodes(("Greater", 0.0), _change),
}
