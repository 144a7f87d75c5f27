"""``albert-export serve``: the demo and the benchmark in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from exporter.cli.console import clear_errors, output_console, progress_steps
from exporter.errors import BenchmarkError

if TYPE_CHECKING:
    from rich.console import Console

    from exporter.records import Measurement
    from exporter.server.serving import Started
    from exporter.server.transfers import Transfer

__all__ = ["serve"]


@click.command()
@click.argument("artifacts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free."
)
@click.option("--lan", is_flag=True, help="Let other devices of this network in.")
@click.option(
    "--https/--http", default=None, help="With a certificate made on the fly.  [https with --lan]"
)
@click.option("--no-isolation", is_flag=True, help="One thread only, for browsers that need it.")
@click.option(
    "--results", type=click.Path(path_type=Path, file_okay=False), help="Folder for measurements."
)
@click.option("--log", type=click.Path(path_type=Path, dir_okay=False), help="Log each answer.")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in the browser.")
@clear_errors
def serve(
    artifacts: tuple[Path, ...],
    no_isolation: bool,
    log: Path | None,
    open_browser: bool,
    **options: Any,
) -> None:
    """Serve a demo and a benchmark of ARTIFACTS to browsers, until Ctrl-C.

    Phones measure with --lan: scan the code that is printed. Whoever is in the same network
    can then read the models; only devices that scanned it can send results.
    """
    try:
        from exporter.server.serving import Events, ServeOptions, serve
    except ImportError as error:
        raise BenchmarkError(
            f"{error.name} is missing: pip install 'albert-export[web]'"
        ) from error

    console = output_console()
    with ExitStack() as stack:
        progress = _Closing(progress_steps())
        stack.callback(progress.close)
        transfer = _logger(stack.enter_context(log.open("a", encoding="utf-8"))) if log else None

        def started(start: Started) -> None:
            progress.close()
            _announce(console, start, kept=options["results"] is not None)
            if open_browser:
                click.launch(start.urls[-1])

        events = Events(
            progress=progress.step,
            started=started,
            result=lambda record: console.print(_line(record), markup=False),
            notice=lambda line: click.echo(f"Warning: {_printable(line)}", err=True),
            transfer=transfer,
        )
        serve(ServeOptions(artifacts=artifacts, isolated=not no_isolation, **options), events)
    console.print("stopped")


class _Closing:
    """Progress that ends before the server starts, and not with it."""

    def __init__(self, steps: AbstractContextManager[Callable[[str], None]]) -> None:
        self._stack = ExitStack()
        self.step = self._stack.enter_context(steps)

    def close(self) -> None:
        self._stack.close()


def _logger(stream: TextIO) -> Callable[[Transfer], None]:
    def log(transfer: Transfer) -> None:
        stream.write(json.dumps(transfer.to_dict()) + "\n")
        stream.flush()

    return log


def _announce(console: Console, start: Started, *, kept: bool) -> None:
    from exporter.server.lan import qr_code

    for url in start.urls:
        console.print(f"serving on {url}", markup=False)
    models = [f"{name} ({', '.join(variants)})" for name, variants in start.models.items()]
    console.print(f"models: {_printable(', '.join(models))}", markup=False)
    console.print("pages: /demo/ to try them, /bench/ to measure them", markup=False)
    if start.plain_url:
        console.print(f"plain http at {start.plain_url} says what is missing there", markup=False)
    if start.scan_url:
        console.print(f"scan this, or open {start.scan_url}", markup=False)
        console.print(qr_code(start.scan_url), markup=False)
        if start.scan_url.startswith("https:"):
            console.print("The browser will warn: the certificate was made a moment ago, here.")
        else:
            console.print("Without https the token can be read by others, and threads are missing.")
    if not kept:
        console.print("Measurements are kept until the end only; --results FOLDER keeps them.")
    console.print("Ctrl-C ends it.")


def _line(record: Measurement) -> str:
    """Return what the terminal shows of a measurement."""
    case, device = record.case, record.device
    figure = f"{record.median_ms:,.1f} ms (p90 {record.p90_ms:,.1f})"
    threads = record.threads_used or case.threads
    parts = (
        device.label,
        device.engine,
        f"{case.artifact} {case.variant}",
        f"{case.batch}×{case.sequence}",
        f"{threads} thread{'s' if threads > 1 else ''}",
        figure if record.status == "measured" else f"{record.status}: {record.error}",
        f"check {record.check.status}",
        *record.flags,
    )
    return " · ".join(_printable(part)[:80] for part in parts)


def _printable(text: str) -> str:
    """Take out what could move the cursor, recolour, or turn the reading direction."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
