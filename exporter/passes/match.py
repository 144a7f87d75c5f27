"""What a pass did and what it left alone, with the reason."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import onnx_ir as ir

from exporter.passes.scopes import check_names

__all__ = ["Match", "ReportingPass", "Skip"]

_NAMED = 5
"""How many wrong names an error lists."""


@dataclass(frozen=True)
class Match:
    """One rewrite that happened.

    ``Match("wq", "replaced by equal 'wk'", saved_bytes=2_359_296)``.

    Args:
        value: name of the value or node that was rewritten.
        detail: what became of it.
        saved_bytes: stored bytes it saves; negative where the rewrite adds some.
    """

    value: str
    detail: str
    saved_bytes: int = 0


@dataclass(frozen=True)
class Skip:
    """One candidate that was left alone, and why."""

    value: str
    reason: str


class ReportingPass(ir.passes.InPlacePass):
    """An in-place pass that records each rewrite, so ``modified`` cannot be untruthful.

    Attributes:
        matches: rewrites of the latest call.
        skipped: candidates of the latest call that stayed as they were.
    """

    def __init__(self) -> None:
        super().__init__()
        self.matches: list[Match] = []
        self.skipped: list[Skip] = []
        self._wrong_before: frozenset[str] = frozenset()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite ``model`` in place."""
        self.matches, self.skipped = [], []
        self._wrong_before = frozenset(check_names(model))
        self.rewrite(model)
        return ir.passes.PassResult(model, modified=bool(self.matches))

    def ensures(self, model: ir.Model) -> None:
        """Check that names which were valid before the latest call still are.

        Raises:
            PostconditionError: a name is now used twice where it may not be, or is missing.
        """
        if not self.matches:
            return
        wrong = [text for text in check_names(model) if text not in self._wrong_before]
        if wrong:
            more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
            raise ir.passes.PostconditionError(
                f"{type(self).__name__} made names invalid: {', '.join(wrong[:_NAMED])}{more}"
            )

    @abc.abstractmethod
    def rewrite(self, model: ir.Model) -> None:
        """Change ``model``, adding to ``matches`` for every change and to ``skipped``."""

    @property
    def saved_bytes(self) -> int:
        """Stored bytes the latest call saved."""
        return sum(match.saved_bytes for match in self.matches)
