"""Options of the commands that run models on labelled text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

__all__ = ["labelled_text_options"]

_OPTIONS = (
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        required=True,
        help="Labelled text: JSON lines, or CSV with a header; UTF-8.",
    ),
    click.option("--text-column", default="text", show_default=True, help="Column of the text."),
    click.option("--label-column", default="label", show_default=True, help="Column of the label."),
    click.option("--limit", type=click.IntRange(1), help="Only so many examples, evenly spread."),
    click.option(
        "--threads", type=click.IntRange(1), default=1, show_default=True, help="Compute threads."
    ),
)


def labelled_text_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the data, its columns, how much of it to use, and threads."""
    decorated: Any = command
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
