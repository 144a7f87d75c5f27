"""``albert-export MODEL``: checkpoint in, verified artifact out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from exporter.cli.console import (
    FiniteFloat,
    clear_errors,
    megabytes,
    output_console,
    progress_steps,
)

__all__ = ["export"]


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Artifact folder.  [MODEL-onnx]"
)
@click.option(
    "--dedupe/--no-dedupe",
    default=True,
    show_default=True,
    help="Store each shared weight once, or keep what torch's exporter gave.",
)
@click.option(
    "--layout",
    type=click.Choice(["auto", "rolled", "unrolled"]),
    default="auto",
    show_default=True,
    help="Repeated layers as one loop, or written out; auto rolls whatever repeats.",
)
@click.option(
    "--elastic-depth",
    is_flag=True,
    help="Make the number of passes through the layers an optional input, 'depth'.",
)
@click.option("--with-baseline", is_flag=True, help="Also write the unshared baseline.")
@click.option("--opset", type=click.IntRange(18, 23), help="ONNX opset of a captured model.  [18]")
@click.option(
    "--atol",
    type=FiniteFloat(min=0, min_open=True),
    default=1e-5,
    show_default=True,
    help="Largest absolute difference from PyTorch that passes.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SPEC",
    help="An input as NAME:DTYPE[DIM,…], such as 'input_ids:int64[batch,sequence<=512]<30000', "
    "or only its NAME; repeat for each. By default inputs follow from the model.",
)
@click.option(
    "--trust-pickle",
    is_flag=True,
    help="Load a pickled module. It can run any code on this machine: only for files you made.",
)
@click.option(
    "--import-path",
    "import_paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with the classes of a pickled module; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifest instead of a table.")
@click.option("--force", is_flag=True, help="Replace an artifact that is already there.")
@click.option("--keep-failed", is_flag=True, help="Keep an artifact that fails, marked as failed.")
@clear_errors
def export(model: Path, output: Path | None, as_json: bool, force: bool, **options: Any) -> None:
    """Export MODEL to a verified ONNX artifact.

    MODEL is a reference checkpoint (.pt), a Hugging Face folder (ALBERT, BERT), an
    exported program (.pt2), a pickled module (.pt, with --trust-pickle), or an ONNX file,
    which keeps its opset and is compared with itself. The exit code is 0 only if the
    artifact was written and computes what the source computes.
    """
    from exporter.pipeline import ExportOptions, as_record, export_model

    name = model.resolve().name if model.name in ("", "..") or model.is_dir() else model.stem
    destination = output or Path(f"{name}-onnx")
    with progress_steps() as progress:
        chosen = ExportOptions(replace=force, **options)
        artifact = export_model(model, destination, chosen, progress)
    if as_json:
        click.echo(json.dumps(as_record(artifact), indent=2, ensure_ascii=False))
    else:
        _print_summary(as_record(artifact))
    if artifact.manifest["verdict"] != "passed":
        raise click.exceptions.Exit(1)


def _print_summary(record: dict[str, Any]) -> None:
    from rich.table import Table

    console = output_console()
    for notice in record["notices"]:
        console.print(f"note: {notice}", markup=False)
    error = record["worst_abs_error"]
    checked = record["models"][0]["verification"]
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    if (given := record["source"].get("stored_bytes")) is not None:
        table.add_row("source", megabytes(given), "tensors in the input file")
    table.add_row("unique", megabytes(record["unique_bytes"]), "distinct weights")
    table.add_row("stored", megabytes(record["stored_bytes"]), "tensors in the ONNX file")
    table.add_row("file", megabytes(record["file_bytes"]), record["models"][0]["path"])
    if (layout := record["layout"]) is not None:
        loops = ", ".join(f"{loop['iterations']} × {loop['nodes']}" for loop in layout["loops"])
        nodes = f"{record['models'][0]['nodes']} nodes"
        detail = f"{nodes}, loops of passes × nodes: {loops}" if loops else nodes
        table.add_row("layout", layout["chosen"], detail)
    table.add_row("unshared", megabytes(record["unshared_bytes"]), "the same model without sharing")
    ratio = "-" if record["ratio"] is None else f"{record['ratio']:.2f}×"
    table.add_row("ratio", ratio, f"unshared / stored; scheme {record['scheme']}")
    table.add_row(
        "worst error",
        "not finite" if error is None else f"{error:.1e}",
        f"{record['verdict']}: against {checked['reference']}, {len(checked['cases'])} inputs",
    )
    console.print(table)
    console.print(f"artifact: {record['artifact']}", markup=False)
