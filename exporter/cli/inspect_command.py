"""``albert-export inspect``: what is in a model file, and what of it is waste."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from exporter.cli.console import clear_errors, progress_steps

__all__ = ["inspect"]


class ByteSize(click.ParamType[int]):
    """A number of bytes, with or without a unit."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the size, or say how to write one."""
        from exporter.inspection import parse_bytes

        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("path", metavar="FILE_OR_ARTIFACT", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--transfer/--no-transfer",
    default=True,
    show_default=True,
    help="Also compress the file (brotli 5, gzip 6) to tell what a download takes; "
    "takes about 15 seconds for 350 MB.",
)
@click.option(
    "--max-bytes",
    type=ByteSize(),
    help="Fail if a model file with its external data is larger: 12000000, 12MB, 12MiB. "
    "An artifact's unshared baseline is exempt.",
)
@click.option(
    "--require-shared",
    is_flag=True,
    help="Fail if copies take more than 0.1 % of the stored bytes and 16 KiB.",
)
@clear_errors
def inspect(
    path: Path, as_json: bool, transfer: bool, max_bytes: int | None, require_shared: bool
) -> None:
    """Say what is in an ONNX file or an artifact, and what of it is waste.

    Counts unique, stored, file and transfer bytes; names the tensors stored more than once
    and the bytes that wastes; counts operators and loops; and tells which weights a
    quantizer would miss. Of an artifact, the files are compared with their hashes. Reads
    only, needs no PyTorch. The exit code is 0, or 1 if the file cannot be read or a limit
    does not hold.
    """
    from exporter.cli.inspect_view import print_inspection
    from exporter.inspection import failed_gates, inspect_path

    with progress_steps() as progress:
        inspection = inspect_path(path, transfer=transfer, progress=progress)
    failures = failed_gates(inspection, max_bytes=max_bytes, require_shared=require_shared)
    if as_json:
        limits = max_bytes is not None or require_shared
        status = ("failed" if failures else "passed") if limits else "not run"
        gate = {"status": status, "failures": list(failures)}
        click.echo(json.dumps({**inspection.to_dict(), "gate": gate}, indent=2))
    else:
        print_inspection(inspection)
    if failures:
        raise click.ClickException("\n".join(failures))
