"""Which layers of an encoder use the same weights.

A scheme maps a layer's position to the block of weights it uses, separately for
the attention half and the feed-forward half of the layer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["SharingKind", "SharingScheme"]

SharingKind = Literal["all", "attention_only", "ffn_only", "grouped", "none"]

_GROUPED = re.compile(r"grouped\((\d+)\)")


@dataclass(frozen=True)
class SharingScheme:
    """A sharing scheme, applicable to any depth.

    Block index used by each layer, for a depth of 6 (attention | feed-forward):

    ==================  =============  =============
    ``all``             0 0 0 0 0 0    0 0 0 0 0 0
    ``attention_only``  0 0 0 0 0 0    0 1 2 3 4 5
    ``ffn_only``        0 1 2 3 4 5    0 0 0 0 0 0
    ``grouped(3)``      0 0 1 1 2 2    0 0 1 1 2 2
    ``none``            0 1 2 3 4 5    0 1 2 3 4 5
    ==================  =============  =============

    A half's LayerNorm belongs to that half. Groups are runs of consecutive
    layers; where the depth is no multiple of ``groups`` the first ones are longer.

    Raises:
        ValueError: unknown kind, or ``groups`` missing, below 1, or given for
            another kind than ``grouped``.
    """

    kind: SharingKind = "all"
    groups: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(SharingKind):
            raise ValueError(f"unknown sharing scheme {self.kind!r}; one of: {_CHOICES}")
        if self.kind == "grouped":
            if self.groups is None or self.groups < 1:
                raise ValueError("sharing scheme 'grouped' needs a group count of at least 1")
        elif self.groups is not None:
            raise ValueError(f"sharing scheme {self.kind!r} takes no group count")

    @classmethod
    def parse(cls, text: str) -> SharingScheme:
        """Read ``all``, ``attention_only``, ``ffn_only``, ``grouped(3)`` or ``none``."""
        if match := _GROUPED.fullmatch(text.strip()):
            return cls("grouped", int(match[1]))
        return cls(text.strip())  # type: ignore[arg-type]  # checked in __post_init__

    def __str__(self) -> str:
        return f"grouped({self.groups})" if self.kind == "grouped" else self.kind

    def attention_block(self, layer: int, depth: int) -> int:
        """Index of the attention block that ``layer`` (0-based) of ``depth`` layers uses."""
        return self._block(layer, depth, shared=self.kind in ("all", "attention_only"))

    def ffn_block(self, layer: int, depth: int) -> int:
        """Index of the feed-forward block that ``layer`` (0-based) of ``depth`` layers uses."""
        return self._block(layer, depth, shared=self.kind in ("all", "ffn_only"))

    def _block(self, layer: int, depth: int, *, shared: bool) -> int:
        if not 0 <= layer < depth:
            raise ValueError(f"layer {layer} is outside a depth of {depth}")
        if self.groups is not None:
            if self.groups > depth:
                raise ValueError(f"{self.groups} groups need at least as many layers, not {depth}")
            return layer * self.groups // depth
        return 0 if shared else layer


_CHOICES = "all, attention_only, ffn_only, grouped(N), none"
