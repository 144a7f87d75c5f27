"""``albert-export bench``: measure the models of an artifact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporter.cli.console import clear_errors, megabytes, output_console, progress_steps

if TYPE_CHECKING:
    from exporter.records import Measurement

__all__ = ["bench"]


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Compute threads."
)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Rows per run.")
@click.option(
    "--seq", "sequence", type=click.IntRange(1), help="Tokens per row.  [the maximum, at most 128]"
)
@click.option(
    "--min-runs", type=click.IntRange(2), default=20, show_default=True, help="Runs per model."
)
@click.option(
    "--min-seconds", type=click.FloatRange(0), default=3.0, show_default=True, help="And so long."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per model and line.")
@clear_errors
def bench(artifact: Path, as_json: bool, **options: Any) -> None:
    """Measure the models of ARTIFACT on this machine's CPU, taking turns run by run.

    With an unshared baseline in the artifact (export with --with-baseline) each model is
    also given as a ratio to it.
    """
    from exporter.artifact import Artifact
    from exporter.benchmark import BenchmarkOptions, measure_artifact

    with progress_steps() as progress:
        loaded = Artifact.load(artifact)
        measurements = measure_artifact(loaded, BenchmarkOptions(**options), progress)
    if as_json:
        for measurement in measurements:
            click.echo(measurement.to_json())
    else:
        _print_table(measurements)


def _print_table(measurements: Sequence[Measurement]) -> None:
    from rich.table import Table

    from exporter.benchmark import paired_ratio

    first = measurements[0]
    baseline = next((m for m in measurements if m.variant == "baseline"), None)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("model", "file", "load", "memory", "first", "median", "p90", "time ratio"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for m in measurements:
        ratio = f"{paired_ratio(m, baseline):.2f}×" if baseline is not None else "-"
        memory = "-" if m.added_rss_bytes is None else f"{m.added_rss_bytes / 1e6:,.0f} MB"
        table.add_row(
            m.variant,
            megabytes(m.file_bytes),
            f"{m.load_ms:,.0f} ms",
            memory,
            f"{m.first_ms:,.1f} ms",
            f"{m.median_ms:,.2f} ms",
            f"{m.p90_ms:,.2f} ms",
            ratio,
        )
    console = output_console()
    console.print(table)
    console.print(
        f"{first.device.cpu}, {first.threads} thread(s), batch {first.batch}, sequence "
        f"{first.sequence}, {len(first.samples_ms)} interleaved runs each, "
        f"{first.device.runtime} {first.device.runtime_version}",
        markup=False,
    )
