"""Leaving the loop early: the rules, the inputs that set them, and what each value means.

A model of shared layers has an answer after every pass through its layer. A rule looks at
these answers and says, row by row, after which pass the answer is good enough:

- ``confidence``: the largest probability of the logits ``[batch, labels]`` is above
  ``exit_threshold``. 0 leaves after the first pass; 1, the default, never: no probability is
  above it.
- ``patience``: the label has stayed the same for the last ``patience`` passes in a row, so
  that a row leaves after pass ``patience + 1`` at the earliest. 0 leaves after the first pass;
  a number not below the number of passes never does. The default is larger than any.
- ``change``: the output ``[batch, width]``, or the sum ``[batch, width]`` of the output
  ``[batch, sequence, width]`` over the tokens, differs from that of the pass before by less
  than ``exit_threshold`` times its length. The first pass has none before it, so that a row
  leaves after the second at the earliest. 0, the default, never leaves.

Two more inputs bound every rule: it looks at no pass before ``min_layers``, as if that were
the first, and all rows leave at pass ``max_layers``, which decides where ``min_layers`` is
above it. Numbers below 1 count as 1. A ``max_layers`` above the model's own number of passes
makes it deeper.

A row that has left keeps its answer while the others go on: each row gets the answer that it
gets alone, but for what a batch changes without an exit too (int8 products scale all rows of a
batch alike).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from exporter.errors import BenchmarkError
from exporter.inputs import Feeds, InputSpec

__all__ = [
    "LAYERS_USED",
    "MAX_LAYERS",
    "MIN_LAYERS",
    "NEVER_PATIENT",
    "RULES",
    "ExitRule",
    "RuleName",
]

RuleName = Literal["confidence", "patience", "change"]

LAYERS_USED = "layers_used"
"""Output, ``int64 [batch]``: how many passes each row's answer took."""

MIN_LAYERS = InputSpec("min_layers", "int64", (), optional=True)
MAX_LAYERS = InputSpec("max_layers", "int64", (), optional=True)
_THRESHOLD = InputSpec("exit_threshold", "float32", (), optional=True)
_PATIENCE = InputSpec("patience", "int64", (), optional=True)

NEVER_PATIENT = 2**31 - 1
"""More passes than any model makes, and still a number that JavaScript holds exactly."""


@dataclass(frozen=True)
class ExitRule:
    """One rule, and the input that sets it.

    Args:
        name: of the rule.
        setting: the input.
        never: the value that never leaves, which is the default.
        values: values worth trying, the earliest to leave first.
        largest: the largest value that says something; the smallest is 0.
    """

    name: RuleName
    setting: InputSpec
    never: float
    values: tuple[float, ...]
    largest: float

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """The optional inputs of a graph with this rule."""
        return (self.setting, MIN_LAYERS, MAX_LAYERS)

    def check(self, value: float) -> None:
        """Refuse a value that says nothing, or that the input cannot hold.

        Raises:
            BenchmarkError: it is out of range, or no whole number where that is needed.
        """
        whole = self.setting.dtype == "int64"
        if not 0 <= value <= self.largest or (whole and value != int(value)):
            raise BenchmarkError(
                f"{self.setting.name} is a {'whole ' if whole else ''}number from 0 to "
                f"{self.largest:.10g}, not {value:g}"
            )

    def feeds(self, value: float) -> Feeds:
        """Return the input that sets the rule to ``value``."""
        return {self.setting.name: np.array(value, self.setting.dtype)}


_STEPS = (
    0.5,
    0.55,
    0.6,
    0.65,
    0.7,
    0.75,
    0.8,
    0.85,
    0.9,
    0.93,
    0.95,
    0.97,
    0.98,
    0.99,
    0.995,
    0.999,
)
_LARGEST = float(np.finfo(np.float32).max)
_CHANGES = (1.0, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)

RULES: Mapping[RuleName, ExitRule] = {
    "confidence": ExitRule("confidence", _THRESHOLD, 1.0, (0.0, *_STEPS), 1.0),
    "patience": ExitRule("patience", _PATIENCE, NEVER_PATIENT, tuple(range(12)), NEVER_PATIENT),
    "change": ExitRule("change", _THRESHOLD, 0.0, _CHANGES, _LARGEST),
}
