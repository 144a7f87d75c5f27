"""What sharing layers costs and saves: every scheme, trained, distilled, quantized, pruned.

    python -m benchmarks.sharing_tradeoff.run [--workers 2] [--address tcp://…]
    python -m benchmarks.sharing_tradeoff.run --study other-start

Writes one file a run to ``raw``; the same command goes on where it was interrupted. Where all
files are there, as in a clone, the first one still makes the artifacts that
``benchmarks.sharing_tradeoff.latency`` measures, from twelve trainings: 35 CPU minutes. The second
one trains both ends again from other random weights, into ``raw-other-start``. Then

    python -m benchmarks.sharing_tradeoff.table

makes the tables and drawings of them.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from benchmarks.sharing_tradeoff.classify import make_teacher
from benchmarks.sharing_tradeoff.engine import StudyError, connect, perform_all
from benchmarks.sharing_tradeoff.performing import missing
from benchmarks.sharing_tradeoff.places import Places
from benchmarks.sharing_tradeoff.settings import FULL, OTHER_START, SMOKE
from benchmarks.sharing_tradeoff.texts import collect
from exporter.cli.training_progress import training_progress
from exporter.errors import ExportError
from exporter.packages import cache_folder

HERE = Path(__file__).parent
STUDIES = {"full": FULL, "other-start": OTHER_START, "smoke": SMOKE}
RESULTS = {"full": HERE / "raw", "other-start": HERE / "raw-other-start"}
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--workers",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Processes on this machine, of one thread each.",
)
@click.option("--address", help="Of a Dask scheduler, whose workers then take the runs instead.")
@click.option(
    "--work-dir",
    type=_FOLDER,
    default="sharing-tradeoff",
    show_default=True,
    help="Texts, teachers, snapshots and artifacts; a cluster's machines must all see it.",
)
@click.option(
    "--study",
    type=click.Choice(list(STUDIES)),
    default="full",
    show_default=True,
    help="full: six schemes, two tasks, three seeds; other-start: both ends of sharing again, from "
    "other random weights; smoke: tiny models, to see that it works, with --results.",
)
@click.option(
    "--results",
    type=_FOLDER,
    show_default="raw or raw-other-start, beside this script",
    help="Folder of the results, one file a run.",
)
@click.option(
    "--data-dir",
    type=_FOLDER,
    default=cache_folder,
    show_default="~/.cache/albert-export",
    help="Where archives are kept; they are fetched once.",
)
def main(
    workers: int,
    address: str | None,
    work_dir: Path,
    study: str,
    results: Path | None,
    data_dir: Path,
) -> None:
    """Train the same small encoders under every sharing scheme, and measure what that costs.

    Each run trains one, with or without a teacher, prunes it, exports it in three precisions
    and evaluates the files. The full study has 72 runs and takes about 4 CPU hours; what was
    interrupted goes on with the same command, and what is there stays. Texts and, for distilled
    runs, a BERT encoder, 97 MB in all, are fetched once.
    """
    results = results or RESULTS.get(study)
    if results is None:
        raise click.UsageError(f"--study {study} needs --results: its figures are not for keeping")
    chosen, folder, results = STUDIES[study], work_dir.resolve(), results.resolve()
    try:
        wanted = missing(chosen, folder, results)
        if not wanted:
            click.echo("Nothing is missing.", err=True)
            return
        if address is not None:
            with connect(address, workers, folder):
                pass  # what can be refused is, but no worker waits for texts and a teacher
        collect(data_dir, folder)
        if any(run.task == "classify" and run.distilled for run in wanted):
            with training_progress() as progress:
                places = Places.of("classify", chosen, folder)
                make_teacher(data_dir, chosen, places, progress)
        with connect(address, workers, folder) as client:
            perform_all(client, chosen, folder, results, _tell, partial(click.echo, err=True))
    except (ExportError, StudyError) as error:
        raise click.ClickException(str(error)) from error


def _tell(done: int, total: int, name: str) -> None:
    print(f"{done} of {total} runs {name}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
