"""What every command shares: consoles, error translation, progress, number formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import click
from rich.console import Console

from exporter.errors import ExportError

__all__ = ["clear_errors", "megabytes", "output_console", "progress_steps"]


def output_console() -> Console:
    """Return a console for results, on standard output."""
    return Console(highlight=False, soft_wrap=True)


def clear_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the package's errors into one line on standard error and exit code 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except ExportError as error:
            raise click.ClickException(str(error)) from error

    return run


@contextmanager
def progress_steps() -> Iterator[Callable[[str], None]]:
    """Show the running step and its time on standard error; a line each where no terminal is."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda step: console.print(f"{step} …")
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda step: progress.update(task, description=f"{step} …")


def megabytes(count: int) -> str:
    """Format bytes for people: ``46.73 MB`` (10⁶ bytes), small counts in bytes."""
    return f"{count / 1e6:,.2f} MB" if count >= 100_000 else f"{count:,} bytes"
