"""``albert-export distill``: train a small encoder with shared layers on a teacher's answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporter.cli.console import FiniteFloat, clear_errors, output_console
from exporter.cli.stop_signals import stop_between_steps
from exporter.cli.training_progress import training_progress

if TYPE_CHECKING:
    from exporter.training.distill import NewStudent
    from exporter.training.runs import DistillationResult

__all__ = ["distill"]

_OF_SCHEDULE = ("epochs", "batch_size", "learning_rate", "seed", "threads", "precision")
_GOES_ON = "the same command goes on from there"
_FEWEST_THAT_TELL = 50  # the interval of a share is then at most 27 points wide


@click.command()
@click.option(
    "--teacher",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder of a Hugging Face BERT classifier of sequences.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    required=True,
    help="Texts, whose labels are not read: JSON lines, CSV with a header, or one a line; UTF-8.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder of the student, its log, and the snapshot while it is not finished.",
)
@click.option("--text-column", default="text", show_default=True, help="Column of the text.")
@click.option(
    "--scheme",
    default="all",
    show_default=True,
    help="What layers share: all, attention_only, ffn_only, grouped(N), none.",
)
@click.option(
    "--layers", type=click.IntRange(1), default=6, show_default=True, help="Layers, shared or not."
)
@click.option(
    "--vocab-size",
    type=click.IntRange(100),
    default=12_000,
    show_default=True,
    help="Most pieces kept of the teacher's vocabulary.",
)
@click.option(
    "--embedding-size",
    type=click.IntRange(1),
    default=192,
    show_default=True,
    help="Width of the token table.",
)
@click.option(
    "--hidden-size",
    type=click.IntRange(1),
    default=384,
    show_default=True,
    help="Width of a layer.",
)
@click.option(
    "--intermediate-size",
    type=click.IntRange(1),
    default=768,
    show_default=True,
    help="Width of its feed-forward part.",
)
@click.option(
    "--heads",
    type=click.IntRange(1),
    default=12,
    show_default=True,
    help="Attention heads.",
)
@click.option(
    "--max-length",
    type=click.IntRange(2),
    default=128,
    show_default=True,
    help="Longest text, in tokens.",
)
@click.option(
    "--start",
    type=click.Choice(["teacher", "random"]),
    default="teacher",
    show_default=True,
    help="Begin with what has the teacher's sizes: its layers, averaged into the scheme's "
    "groups, and its embeddings; or begin with random weights.",
)
@click.option(
    "--epochs", type=click.IntRange(1), default=6, show_default=True, help="Passes over the texts."
)
@click.option(
    "--batch-size", type=click.IntRange(1), default=64, show_default=True, help="Texts a step."
)
@click.option(
    "--learning-rate",
    type=FiniteFloat(0, min_open=True),
    default=1e-3,
    show_default=True,
    help="The highest, after warming up.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of all chance."
)
@click.option(
    "--threads",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Compute threads; more only pay on cores that nobody else uses.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default="fp32",
    show_default=True,
    help="Of matrix products in training; bf16 is faster on GPUs and on CPUs with AMX.",
)
@click.option(
    "--time-budget",
    type=FiniteFloat(0, min_open=True),
    help="Minutes after which to stop training; the same command then goes on.  "
    "[until all is done]",
)
@clear_errors
def distill(
    teacher: Path,
    data: Path,
    output: Path,
    text_column: str,
    scheme: str,
    time_budget: float | None,
    **options: Any,
) -> None:
    """Train a small encoder, whose layers share weights, on what a TEACHER says of texts.

    The teacher labels the texts of the data file, and the student learns its probabilities
    and its sentence embeddings, after every layer: it can be used at any depth. Texts set
    aside, one in 50, tell how often both agree. 'albert-export OUTPUT' exports the student.

    An interrupted run, given the same command again, goes on from its last snapshot, which
    is written every two minutes. OUTPUT/log.jsonl holds settings, losses and agreement.
    Ctrl-C finishes the running step and writes a snapshot, too; a second one stops at once.

    The exit code is 0; 1 if something is wrong; 130 after Ctrl-C, 143 after SIGTERM.
    """
    from exporter.models import SharingScheme
    from exporter.training.distill import DistillationPlan
    from exporter.training.judging import AskingStoppedError
    from exporter.training.loop import is_main_process
    from exporter.training.runs import run_distillation
    from exporter.training.texts import read_texts

    chosen = {name: options.pop(name) for name in _OF_SCHEDULE}
    try:
        sharing = SharingScheme.parse(scheme)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--scheme") from error
    schedule = replace(DistillationPlan().schedule, **chosen)
    plan = DistillationPlan(sharing=sharing, schedule=schedule, **options)
    console = output_console()
    with stop_between_steps() as stop:
        try:
            with training_progress() as progress:
                result = run_distillation(
                    teacher,
                    read_texts(data, text_column),
                    plan,
                    output,
                    time_budget_s=60 * time_budget if time_budget else float("inf"),
                    stop=stop,
                    started=_tell_start if plan.start == "teacher" else lambda student: None,
                    progress=progress,
                )
        except AskingStoppedError as stopped:
            if is_main_process():
                console.print(f"{stopped}; {_GOES_ON}", markup=False)
            click.get_current_context().exit(stop.exit_code)
    if not is_main_process():
        return
    console.print(_agreement(result), markup=False)
    unfinished = result.step < result.steps
    if unfinished:
        steps = f"{result.step:,} of {result.steps:,} steps"
        console.print(f"Stopped after {steps}; {_GOES_ON}", markup=False)
    done = "Already finished" if result.already_finished else "Written"
    console.print(f"{done}: {output}", markup=False)
    if unfinished and stop():
        click.get_current_context().exit(stop.exit_code)


def _tell_start(student: NewStudent) -> None:
    """Say how much of the student begins as the teacher's, and how it would be more."""
    options = (f"--{name.replace('_', '-')} {size}" for name, size in student.fitting.items())
    more = f"; more would with {' '.join(options)}" if student.fitting else ""
    text = f"{student.taken_over:.0%} of the student's weights begin as the teacher's{more}"
    click.echo(text, err=True)


def _agreement(result: DistillationResult) -> str:
    """Say on which share of the texts set aside both agree, and how sure that is."""
    from exporter.scores import wilson_interval

    texts = f"{result.aside:,} text{'s' if result.aside > 1 else ''}"
    shares = ", ".join(f"{depth}: {share:.1%}" for depth, share in enumerate(result.agreement, 1))
    if result.aside < _FEWEST_THAT_TELL:
        sure = f"{texts} {'are' if result.aside > 1 else 'is'} too few to tell"
    else:
        equal = round(result.agreement[-1] * result.aside)
        low, high = wilson_interval(equal, result.aside)
        sure = f"95 % interval of the last: {low:.1%} to {high:.1%}"
    return (
        f"Same label as the teacher on {texts} set aside, after layer {shares} ({sure}); "
        f"always its most frequent label: {result.most_frequent:.1%}"
    )
