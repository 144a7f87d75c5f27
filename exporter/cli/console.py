"""What every command shares: consoles, error translation, progress, number formats."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from exporter.errors import ExportError

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = [
    "FiniteFloat",
    "clear_errors",
    "counting_bar",
    "megabytes",
    "output_console",
    "print_table",
    "progress_bar",
    "progress_steps",
]

_SHOW_AFTER_S = 2.0


class FiniteFloat(click.FloatRange):
    """A range that ``inf`` and ``nan`` are not in."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Convert as the range does, then refuse what is no number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def output_console() -> Console:
    """Return a console for results, on standard output."""
    return Console(highlight=False, soft_wrap=True)


def print_table(console: Console, table: Table) -> None:
    """Print every column whole, on lines as long as that takes.

    Where no terminal is, rich would fit a table into 80 columns and leave names out.
    """
    natural = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    before, console.width = console.width, max(console.width, natural)
    console.print(table)
    console.width = before


def clear_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn every error into one line and exit code 1.

    What is neither ours nor the system's is a fault of this program: its line says where.
    """

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except (ExportError, OSError) as error:
            raise click.ClickException(str(error)) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            raise click.ClickException(_internal(error)) from error

    return run


def _internal(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    package = Path(__file__).parents[1]
    ours = [frame for frame in frames if package in Path(frame.filename).parents]
    place = f"{Path(ours[-1].filename).relative_to(package.parent)}:{ours[-1].lineno}"
    text = " ".join(str(error).split())[:300]
    return f"a fault of albert-export at {place}: {type(error).__name__}: {text}; please report it"


@contextmanager
def progress_steps() -> Iterator[Callable[[str], None]]:
    """Show the running step and its time on standard error; a line each where no terminal is."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield _line_per_step(console)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda step: progress.update(task, description=f"{step} …")


def _line_per_step(console: Console) -> Callable[[str], None]:
    """Print each step once, whatever percentages follow its first comma."""
    seen = ""

    def show(step: str) -> None:
        nonlocal seen
        if (name := step.partition(",")[0]) != seen:
            seen = name
            console.print(f"{name} …")

    return show


def counting_bar(console: Console) -> Progress:
    """Return a bar of how many are done, of how many; each task has a ``remark`` beside it."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[remark]}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar on standard error once it takes over two seconds; without a terminal, none."""
    bar = counting_bar(Console(stderr=True, highlight=False))
    task, start = bar.add_task("", remark=""), time.monotonic()

    def show(description: str, total: int, done: int) -> None:
        if time.monotonic() - start > _SHOW_AFTER_S:
            bar.start()  # has no effect on one that runs
        bar.update(task, description=description, completed=done, total=total)

    try:
        yield show
    finally:
        bar.stop()


def megabytes(count: int) -> str:
    """Format bytes for people: ``46.73 MB`` (10⁶ bytes), small counts in bytes."""
    return f"{count / 1e6:,.2f} MB" if count >= 100_000 else f"{count:,} bytes"
