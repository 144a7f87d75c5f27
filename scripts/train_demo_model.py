"""Train the demo model, measure the committed one, or write what it is measured on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from exporter.cli.console import clear_errors
from exporter.cli.training_progress import training_progress
from exporter.packages import cache_folder

try:
    from exporter.training.card import check_figures, write_figures
    from exporter.training.data import load_corpus
    from exporter.training.demo import DEMO_FOLDER, load_demo, save_demo
    from exporter.training.distilled_demo import DemoPlan, distill_demo
    from exporter.training.evaluate import Score, evaluate
    from exporter.training.labelled_files import write_labelled
    from exporter.training.loop import is_main_process
except ModuleNotFoundError as error:
    raise SystemExit(
        f"this script needs the package {error.name}: pip install -c constraints.txt -e '.[train]'"
    ) from error

PLAN = DemoPlan()


@click.command()
@click.option(
    "--evaluate", "evaluate_only", is_flag=True, help="Measure the model in --output; do not train."
)
@click.option(
    "--check",
    is_flag=True,
    help="With --evaluate: fail unless the model card states these figures.",
)
@click.option(
    "--write-data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the labelled sentences for 'albert-export evaluate' to this folder; do not train.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEMO_FOLDER,
    show_default="exporter/demo_model",
    help="Folder of the checkpoint, tokenizer and figures.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=cache_folder,
    show_default="~/.cache/albert-export",
    help="Where the archives of data and of the teacher's encoder are kept; fetched once.",
)
@click.option(
    "--work-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-training"),
    show_default=True,
    help="Teacher, its answers, and what an interrupted training goes on from.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=PLAN.student.schedule.seed,
    show_default=True,
)
@click.option(
    "--threads", type=click.IntRange(1), default=PLAN.student.schedule.threads, show_default=True
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "bf16"]),
    default=PLAN.student.schedule.precision,
    show_default=True,
    help="Of matrix products; bf16 is the faster one only on CPUs with AMX and on GPUs.",
)
@clear_errors
def main(
    evaluate_only: bool,
    check: bool,
    write_data: Path | None,
    output: Path,
    data_dir: Path,
    work_dir: Path,
    **schedule: Any,
) -> None:
    """Train the demo model: a sentence-sentiment classifier with one shared layer.

    A sentence encoder is fine-tuned to be the teacher, and the student learns its answers.
    The same command again goes on from what --work-dir holds.
    """
    if check and not evaluate_only:
        raise click.UsageError("--check needs --evaluate: training writes the figures itself")
    if write_data is not None and evaluate_only:
        raise click.UsageError("--write-data measures nothing: give it without --evaluate")
    console = Console()
    with console.status("Reading the sentences"):
        corpus = load_corpus(data_dir)
    if write_data is not None:
        for path, count in write_labelled(corpus, write_data).items():
            console.print(f"{count:,} sentences: {path}", soft_wrap=True)
        return
    if not evaluate_only:
        with training_progress() as progress:
            run = distill_demo(data_dir, work_dir, _plan(schedule), progress)
        if not is_main_process():
            return
        save_demo(*run.result, output, half=True)
    with console.status("Measuring"):
        scores = evaluate(*load_demo(output), corpus)
    console.print(_table(scores))
    if check:
        check_figures(output, scores)
        console.print("The model card states these figures.")
    elif not evaluate_only:
        write_figures(output, scores)
        console.print(f"Written: {output}")


def _plan(schedule: dict[str, Any]) -> DemoPlan:
    """Return the plan with these settings for both trainings."""
    teacher, student = PLAN.teacher, PLAN.student
    return dataclasses.replace(
        PLAN,
        teacher=dataclasses.replace(
            teacher, schedule=dataclasses.replace(teacher.schedule, **schedule)
        ),
        student=dataclasses.replace(
            student, schedule=dataclasses.replace(student.schedule, **schedule)
        ),
    )


def _table(scores: dict[str, Score]) -> Table:
    headings = ("sentences", "n", "accuracy", "95 % interval", "majority", "points above")
    table = Table(*headings, box=None, pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for name, score in scores.items():
        low, high = score.interval
        table.add_row(
            name,
            f"{score.sentences:,}",
            f"{score.accuracy:.1%}",
            f"{low:.1%} to {high:.1%}",
            f"{score.majority:.1%}",
            f"{score.gain_points:+.1f}",
        )
    return table


if __name__ == "__main__":
    main()
