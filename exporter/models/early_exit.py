"""Leaving after any pass through the layers, in PyTorch: what the exported loop must do.

See :mod:`exporter.early_exit` for what the rules mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from exporter.early_exit import RULES, RuleName

__all__ = ["EarlyExit", "exit_passes", "exit_signals"]


@dataclass(frozen=True)
class EarlyExit:
    """A rule and its settings.

    Args:
        rule: what decides.
        setting: ``exit_threshold`` or ``patience``; ``None``: never leaves.
        min_layers: the first pass that the rule looks at.
        max_layers: all rows leave at this pass; ``None``: at the last there is.
    """

    rule: RuleName
    setting: float | None = None
    min_layers: int = 1
    max_layers: int | None = None

    def layers_used(self, outputs: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
        """Return after which pass each row leaves, counted from 1: ``int64 [B]``.

        Args:
            outputs: what the model answers after each pass: logits ``[B, labels]``, or for
                ``change`` ``[B, W]`` or ``[B, S, W]``.
            mask: ``[B, S]``, 0 at padding, which ``change`` leaves out.
        """
        last = len(outputs) if self.max_layers is None else max(self.max_layers, 1)
        first = min(max(self.min_layers, 1), last)
        signals = exit_signals(self.rule, outputs[first - 1 : last], mask)
        setting = RULES[self.rule].never if self.setting is None else self.setting
        return exit_passes(self.rule, signals, setting) + first - 1

    @staticmethod
    def answers(outputs: Sequence[Tensor], used: Tensor) -> Tensor:
        """Return each row's answer, ``[B, …]``, of the pass that ``used`` names."""
        return torch.stack(list(outputs))[used - 1, torch.arange(len(used))]


def exit_signals(rule: RuleName, outputs: Sequence[Tensor], mask: Tensor | None = None) -> Tensor:
    """Return what the rule compares with its setting after each pass, ``[passes, B]``.

    For ``confidence`` the largest probability, for ``patience`` the length of the streak, for
    ``change`` the relative change, which is infinite after the first pass.
    """
    return torch.stack(_SIGNALS[rule](outputs, mask))


def exit_passes(rule: RuleName, signals: Tensor, setting: float) -> Tensor:
    """Return the first of the passes ``[passes, B]`` at which the rule holds, or the last.

    Counted from 1: ``int64 [B]``.
    """
    fires = _COMPARE[rule](signals, torch.tensor(setting).to(signals.dtype))
    fires[-1] = True  # the last pass there is
    return fires.int().argmax(dim=0) + 1  # the first of the largest


def _confidence(outputs: Sequence[Tensor], mask: Tensor | None) -> list[Tensor]:
    return [F.softmax(logits, dim=-1).amax(dim=-1) for logits in outputs]


def _patience(outputs: Sequence[Tensor], mask: Tensor | None) -> list[Tensor]:
    labels = [logits.argmax(dim=-1) for logits in outputs]
    streaks = [torch.zeros_like(labels[0])]
    for before, label in pairwise(labels):
        streaks.append(torch.where(label == before, streaks[-1] + 1, 0))
    return streaks


def _change(outputs: Sequence[Tensor], mask: Tensor | None) -> list[Tensor]:
    states = [_sum_over_tokens(output, mask) if output.ndim == 3 else output for output in outputs]
    changes = [torch.full((len(states[0]),), torch.inf)]
    for before, state in pairwise(states):
        changes.append((state - before).norm(dim=-1) / before.norm(dim=-1))
    return changes


def _sum_over_tokens(output: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return output.sum(dim=1)
    return (output * mask.to(output.dtype).unsqueeze(-1)).sum(dim=1)


_SIGNALS: Mapping[RuleName, Callable[[Sequence[Tensor], Tensor | None], list[Tensor]]] = {
    "confidence": _confidence,
    "patience": _patience,
    "change": _change,
}

_COMPARE: Mapping[RuleName, Callable[[Tensor, Tensor], Tensor]] = {
    "confidence": torch.gt,
    "patience": torch.ge,
    "change": torch.lt,
}
