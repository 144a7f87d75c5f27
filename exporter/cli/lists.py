"""Option values that are lists: ``16,64,128``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

__all__ = ["CommaList"]


class CommaList(click.ParamType[tuple[Any, ...]]):
    """Values separated by commas, each converted by another type; repeated ones count once.

    Args:
        item: the type of one value.
        name: what help texts call the list.
    """

    def __init__(self, item: click.ParamType[Any], name: str) -> None:
        self._item = item
        self.name = name

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Split, convert each value, and refuse an empty one."""
        parts: Sequence[Any] = value.split(",") if isinstance(value, str) else value
        parts = [part.strip() if isinstance(part, str) else part for part in parts]
        if not parts or "" in parts:
            self.fail(f"{value!r} is not a list like a,b,c.", param, ctx)
        return tuple(dict.fromkeys(self._item.convert(part, param, ctx) for part in parts))
