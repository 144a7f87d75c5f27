"""``albert-export calibrate``: when a model that can leave early should."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporter.cli.console import (
    FiniteFloat,
    clear_errors,
    output_console,
    progress_bar,
    progress_steps,
)
from exporter.cli.labelled_text import labelled_text_options
from exporter.cli.lists import CommaList

if TYPE_CHECKING:
    from exporter.calibration import Calibrated

__all__ = ["calibrate"]


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@labelled_text_options
@click.option(
    "--max-loss",
    type=FiniteFloat(min=0),
    default=0.5,
    show_default=True,
    help="Accuracy that may be lost against all layers, in points.",
)
@click.option(
    "--variant",
    "variants",
    type=CommaList(click.STRING, "NAMES"),
    help="Models, such as fp32,int8.  [default: all but the baselines]",
)
@click.option(
    "--values",
    type=CommaList(click.FLOAT, "NUMBERS"),
    help="Settings to try, such as 0.7,0.8,0.9.  [default: about 15, by the rule]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the curves as JSON.")
@clear_errors
def calibrate(
    artifact: Path,
    data: Path,
    variants: tuple[str, ...] | None,
    values: tuple[float, ...] | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Choose the cheapest setting at which the models of ARTIFACT stay accurate.

    ARTIFACT was exported with --early-exit. Each model is run on every text at every setting;
    the one that uses the fewest layers and loses at most --max-loss points goes into the
    manifest, with the whole curve. Take data that the model was not trained on, and report
    accuracy on other data than this: the choice fits the data it was made on. A note says when
    the loss may well be larger than --max-loss on more data.
    """
    from exporter.artifact import Artifact
    from exporter.calibration import CalibrationOptions, calibrate_artifact

    chosen = CalibrationOptions(variants=variants or (), values=values or (), **options)
    with _progress() as progress:
        loaded = Artifact.load(artifact, check_hashes=True)
        written, results = calibrate_artifact(loaded, data, chosen, progress)
    if as_json:
        models = written.manifest["models"]
        curves = {m["variant"]: m["calibration"] for m in models if m.get("calibration")}
        click.echo(json.dumps(curves, indent=2, ensure_ascii=False))
    else:
        _print_curves(results, written.manifest["early_exit"], chosen.max_loss)
        _print_notes(results, chosen.max_loss)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar; where no terminal is, a line for each model."""
    if sys.stderr.isatty():
        with progress_bar() as bar:
            yield lambda place, total, done: bar(f"calibrating {place}", total, done)
    else:
        with progress_steps() as step:
            yield lambda place, total, done: step(f"calibrating {place}")


def _print_curves(
    results: Sequence[Calibrated], early_exit: Mapping[str, Any], max_loss: float
) -> None:
    from rich.table import Table

    console = output_console()
    for result in results:
        table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
        for heading in (
            early_exit["input"],
            "accuracy",
            "points lost",
            "layers",
            "p90",
            "mean ms",
            "÷ all",
            "",
        ):
            table.add_column(heading, justify="right")
        for point in result.points:
            row = point.to_dict()
            table.add_row(
                "never" if point.value == early_exit["never"] else f"{point.value:g}",
                f"{row['accuracy']:.1%}",
                f"{point.loss:+.2f}",
                f"{point.mean_layers:.2f}",
                f"{point.p90_layers:.0f}",
                f"{point.mean_ms:.2f}",
                f"{point.relative_ms:.2f}",
                "chosen" if point is result.chosen else "",
            )
        console.print(f"{result.variant}: at most {max_loss:g} points lost", markup=False)
        console.print(table)


def _print_notes(results: Sequence[Calibrated], max_loss: float) -> None:
    """Print each note once, with the models it is about where others have none or another."""
    console = output_console()
    noted: dict[str, list[str]] = {}
    for result in results:
        for note in _notes(result, max_loss):
            noted.setdefault(note, []).append(result.variant)
    for note, variants in noted.items():
        names = "" if len(variants) == len(results) else f"{', '.join(variants)}: "
        console.print(f"note: {names}{note}", markup=False)


def _notes(result: Calibrated, max_loss: float) -> Iterator[str]:
    point = result.chosen
    if point is result.points[-1]:  # all layers
        return
    if point.same_layers is not None:
        yield (
            f"every text leaves after pass {point.same_layers}: with this data a model of that "
            "depth would do"
        )
    loss, (low, high) = point.loss, point.loss_interval
    if high > max_loss:
        change = f"loss of {loss:.2f}"
        if loss < 0:
            change, low, high = f"gain of {-loss:.2f}", -high, -low
        yield (
            f"{point.comparison.rows:,} examples cannot tell: the {change} points is known to "
            f"within {low:+.1f} to {high:+.1f} only (95 %)"
        )
