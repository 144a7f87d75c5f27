"""Train the demo model, measure the committed one, or write what it is measured on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from exporter.errors import ExportError
from exporter.packages import cache_folder
from exporter.training.card import check_figures, write_figures
from exporter.training.data import load_corpus
from exporter.training.demo import DEMO_FOLDER, load_demo, save_demo
from exporter.training.evaluate import Score, evaluate
from exporter.training.labelled_files import write_labelled
from exporter.training.train import Progress as Step
from exporter.training.train import TrainingPlan, train_demo_model


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
    help="Where the two data archives are kept; they are fetched once.",
)
@click.option("--epochs", type=click.IntRange(1), default=TrainingPlan.epochs, show_default=True)
@click.option("--seed", type=int, default=TrainingPlan.seed, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=TrainingPlan.threads, show_default=True)
def main(
    evaluate_only: bool,
    check: bool,
    write_data: Path | None,
    output: Path,
    data_dir: Path,
    epochs: int,
    seed: int,
    threads: int,
) -> None:
    """Train the demo model: a sentence-sentiment classifier with one shared layer.

    Seeds are fixed: the same machine with the same libraries and threads gives the same
    weights.
    """
    if check and not evaluate_only:
        raise click.UsageError("--check needs --evaluate: training writes the figures itself")
    console = Console()
    try:
        with console.status("Reading the sentences"):
            corpus = load_corpus(data_dir)
        if write_data is not None:
            for path, count in write_labelled(corpus, write_data).items():
                console.print(f"{count:,} sentences: {path}", soft_wrap=True)
            return
        if not evaluate_only:
            plan = dataclasses.replace(TrainingPlan(), epochs=epochs, seed=seed, threads=threads)
            with _progress_bar(console) as bar:
                task = bar.add_task("Training", total=None, loss="", development="")
                model, tokenizer = train_demo_model(
                    corpus, plan, lambda step: _show(bar, task, step)
                )
            save_demo(model, tokenizer, output)
        with console.status("Measuring"):
            scores = evaluate(*load_demo(output), corpus)
        console.print(_table(scores))
        if check:
            check_figures(output, scores)
            console.print("The model card states these figures.")
        elif not evaluate_only:
            write_figures(output, scores)
            console.print(f"Written: {output}")
    except ExportError as error:
        raise click.ClickException(str(error)) from error


def _progress_bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]}  development {task.fields[development]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )


def _show(bar: Progress, task: TaskID, step: Step) -> None:
    bar.update(task, total=step.steps, completed=step.step, loss=f"{step.loss:.3f}")
    if step.development is not None:
        bar.update(task, development=f"{step.development:.1%}")


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
