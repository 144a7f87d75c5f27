"""How far a training is, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from exporter.cli.console import counting_bar

if TYPE_CHECKING:
    from exporter.training.runs import ProgressReport

__all__ = ["training_progress"]


@contextmanager
def training_progress() -> Iterator[ProgressReport]:
    """Show a bar on standard error; without a terminal, a line per kind of work."""
    console = Console(stderr=True, highlight=False)
    bar = counting_bar(console)
    task, shown = bar.add_task("reading", total=None, remark=""), ""

    def show(what: str, done: int, total: int, remark: str) -> None:
        nonlocal shown
        if what != shown and not console.is_terminal:
            console.print(f"{what} …")
        shown = what
        bar.update(task, description=what, completed=done, total=total, remark=remark)

    with bar:
        yield show
