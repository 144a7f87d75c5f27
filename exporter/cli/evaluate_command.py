"""``albert-export evaluate``: how often the models of an artifact are right."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from exporter.cli.console import clear_errors, megabytes, output_console, progress_bar
from exporter.cli.labelled_text import labelled_text_options
from exporter.cli.lists import CommaList

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from exporter.evaluation import EvaluationReport

__all__ = ["evaluate"]

_WIDTH = 120  # a terminal wraps what it must; a pipe has no width
_IN_COMMAND = {"text_column", "label_column", "variants", "batch", "limit", "threads"}


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@labelled_text_options
@click.option(
    "--variant",
    "variants",
    type=CommaList(click.STRING, "NAMES"),
    help="Models, such as fp32,int8; fp32 is always run.  [default: all but the baselines]",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Texts per run. In int8, the others in its batch have a small influence on a text.",
)
@click.option(
    "--runtime",
    type=click.Choice(["cpu"]),
    default="cpu",
    show_default=True,
    help="What runs the models.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="Add the records to this file."
)
@click.option("--json", "as_json", is_flag=True, help="Print records and summary as JSON.")
@clear_errors
def evaluate(
    artifact: Path,
    data: Path,
    variants: tuple[str, ...] | None,
    runtime: str,
    out: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure how often the models of ARTIFACT label text right.

    Each row of the data file is a text and its label: a name from the model's config.json
    (letter case aside) or its index. Texts are cut to the model's length.

    All models see the same texts, so the difference to fp32 is known more precisely than
    either accuracy: it is in the examples that only one of the two labels right, which the
    last columns count.

    A model that was calibrated (albert-export calibrate) is run twice: through all layers, and
    leaving early as it was calibrated, which is called fp32-exit, int8-exit, …
    """
    from exporter.artifact import Artifact
    from exporter.benchmark import ResultsWriter
    from exporter.evaluation import EvaluationOptions, evaluate_artifact

    with ResultsWriter(out, add=True) if out else nullcontext() as writer:
        with progress_bar() as progress:
            loaded = Artifact.load(artifact, check_hashes=True)
            command = _command_line(loaded.folder.resolve().name, data.name)
            chosen = EvaluationOptions(variants=variants or (), command=command, **options)
            report = evaluate_artifact(loaded, data, chosen, progress)
        if as_json:
            click.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
        else:
            _print_report(report, options["batch"])
        if writer is not None:  # last: what cannot be written was shown
            for model in report.models:
                writer.write(model.record)


def _command_line(artifact: str, data: str) -> str:
    """What was asked for, less folders, which are nobody else's business, and the output."""
    context = click.get_current_context()
    parts = ["albert-export", "evaluate", artifact, "--data", data]
    for parameter in context.command.params:
        given = context.get_parameter_source(str(parameter.name))
        if given is ParameterSource.COMMANDLINE and parameter.name in _IN_COMMAND:
            value = context.params[parameter.name]
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            parts += [parameter.opts[0], text]
    return shlex.join(parts)


def _print_report(report: EvaluationReport, batch: int) -> None:
    from rich.table import Table

    first = report.models[0].record
    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    headings = ["model", "file", "accuracy", "95 %\ninterval"]
    if any(model.comparison for model in report.models):
        headings += ["points\nto fp32", "95 %\ninterval", "same\nlabel", "only\nfp32", "only\nthis"]
    leaves_early = any(model.record.layers for model in report.models)
    if leaves_early:
        headings.append("layers\nmean, p90")
    for heading in headings:
        justify: JustifyMethod = "left" if heading == "model" else "right"
        table.add_column(heading, justify=justify)
    for model in report.models:
        record = model.record
        row = [
            record.variant,
            megabytes(record.model.file_bytes),
            f"{record.accuracy:.1%}",
            _range(record.interval_95, "{:.1%}"),
        ]
        if (paired := model.comparison) is not None:
            row += [
                f"{100 * paired.difference:+.2f}",
                _range([100 * bound for bound in paired.interval], "{:+.1f}"),
                f"{paired.agreement:.1%}",
                f"{paired.only_reference:,}",
                f"{paired.only_this:,}",
            ]
        if leaves_early:
            row += [""] * (len(headings) - 1 - len(row))
            row.append(f"{used.mean:.2f}, {used.p90:g}" if (used := record.layers) else "all")
        table.add_row(*row)
    console = output_console()
    console.width = max(console.width, _WIDTH)
    console.print(table)
    labels = zip(report.truth.names, report.truth.counts, strict=True)
    console.print(
        f"{first.rows:,} examples of {first.data}: "
        + ", ".join(f"{count:,} {name}" for name, count in labels)
        + f"; always the most frequent label: {first.majority:.1%}; batch {batch}",
        markup=False,
    )
    for notice in report.notices:
        console.print(f"note: {notice}", markup=False)


def _range(bounds: Sequence[float], form: str) -> str:
    low, high = (form.format(bound) for bound in bounds)
    return f"{low} to {high}"
