"""``albert-export MODEL``: checkpoint in, verified artifact out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from exporter.cli.console import FiniteFloat, clear_errors, progress_steps
from exporter.precision import TARGETS

__all__ = ["export"]


class _Tolerance(click.ParamType[tuple[str, float]]):
    """``NAME=NUMBER``: the relative error that a precision may have."""

    name = "NAME=NUMBER"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """Split and read the number."""
        name, equals, number = (part.strip() for part in str(value).partition("="))
        if not (equals and name):
            self.fail(f"{value!r} is not NAME=NUMBER, such as int4=0.2.", param, ctx)
        return name, FiniteFloat(min=0, min_open=True).convert(number, param, ctx)


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
    "--precision",
    "precisions",
    multiple=True,
    default=("fp32",),
    metavar="NAMES",
    help="Precisions to write, with commas between; 'all' is fp32,fp16,int8,int4. Others: "
    "int8-unsigned, int8-reduced, int8-full, int8-int4-tables, int4-float, int4-int8, "
    "int4-nbits, int4-dequantize.  [fp32]",
)
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="web",
    show_default=True,
    help="Where it will run: decides how int4 computes.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="PATTERN",
    help="Weights that stay in float32 in every precision, by a shell pattern for their names or "
    "those of the nodes that use them, such as '*classifier*'; repeatable.",
)
@click.option(
    "--require-full-coverage",
    is_flag=True,
    help="Fail where a precision misses a weight that was not kept.",
)
@click.option(
    "--tolerance",
    "tolerances",
    type=_Tolerance(),
    multiple=True,
    help="Largest relative error of a precision that passes; repeatable.  [fp16 0.01, int8 0.15, "
    "int4 0.5]",
)
@click.option(
    "--fuse/--no-fuse",
    default=True,
    show_default=True,
    help="Compute products of one input, such as Q, K and V, as one.",
)
@click.option(
    "--elastic-depth",
    is_flag=True,
    help="Make the number of passes through the layers an optional input, 'depth'.",
)
@click.option(
    "--early-exit",
    type=click.Choice(["confidence", "patience", "change"]),
    help="Leave the loop as soon as the answer is good enough, by this rule: set by optional "
    "inputs, which by default never leave; 'change' is for encoders without a head.",
)
@click.option(
    "--with-baseline",
    is_flag=True,
    help="Also write the unshared baseline, in the same precisions.",
)
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
def export(
    model: Path,
    output: Path | None,
    as_json: bool,
    force: bool,
    tolerances: tuple[tuple[str, float], ...],
    **options: Any,
) -> None:
    """Export MODEL to a verified ONNX artifact.

    MODEL is a reference checkpoint (.pt), a Hugging Face folder (ALBERT, BERT), an
    exported program (.pt2), a pickled module (.pt, with --trust-pickle), or an ONNX file,
    which keeps its opset and is compared with itself. The exit code is 0 only if the
    artifact was written and computes what the source computes.
    """
    from exporter.cli.export_view import print_summary
    from exporter.pipeline import ExportOptions, as_record, export_model

    name = model.resolve().name if model.name in ("", "..") or model.is_dir() else model.stem
    destination = output or Path(f"{name}-onnx")
    with progress_steps() as progress:
        chosen = ExportOptions(replace=force, tolerances=dict(tolerances), **options)
        artifact = export_model(model, destination, chosen, progress)
    if as_json:
        click.echo(json.dumps(as_record(artifact), indent=2, ensure_ascii=False))
    else:
        print_summary(as_record(artifact))
    if artifact.manifest["verdict"] != "passed":
        raise click.exceptions.Exit(1)
