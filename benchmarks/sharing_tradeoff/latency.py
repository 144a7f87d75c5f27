"""How long the exported schemes take, all in turns; run it when nothing else runs.

    python -m benchmarks.sharing_tradeoff.latency [--work-dir DIR]

Needs the artifacts that ``benchmarks.sharing_tradeoff.run`` leaves in its work folder; that
command makes what is missing of them. Writes ``latency.json`` beside this file: per task, scheme
and precision the median of one row of the longest sequence in ms, and its ratio to that of
``none`` in the same precision, with the 95 % interval.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.commands import CommandError, albert_export
from benchmarks.sharing_tradeoff.places import Places
from benchmarks.sharing_tradeoff.settings import FULL, Run, TaskName
from benchmarks.sharing_tradeoff.table import HERE, LATENCY


@click.command()
@click.option(
    "--work-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default="sharing-tradeoff",
    show_default=True,
)
def main(work_dir: Path) -> None:
    """Measure all schemes of each task against ``none``."""
    artifacts = {task: _artifacts(task, work_dir.resolve()) for task in FULL.tasks}
    for path in (path for folders in artifacts.values() for path in folders):
        if not path.is_dir():
            command = f"python -m benchmarks.sharing_tradeoff.run --work-dir {work_dir}"
            raise click.ClickException(f"{path} is missing: {command} makes it")
    content = {}
    for task, folders in artifacts.items():
        try:
            output = albert_export(
                "bench",
                *folders,
                "--seq",
                FULL.max_length,
                "--no-transfer",
                "--precision",
                ",".join(FULL.precisions),
            ).output
        except CommandError as error:
            raise click.ClickException(str(error)) from error
        schemes = by_scheme(output, {path.name: scheme for path, scheme in folders.items()})
        content[task] = {"study": FULL.digest(task), "schemes": schemes}
    (HERE / LATENCY).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _artifacts(task: TaskName, work_dir: Path) -> dict[Path, str]:
    """Return the schemes by the folder of the artifact that is timed."""
    places, seed = Places.of(task, FULL, work_dir), FULL.seeds[0]
    return {places.artifact(Run(task, s, seed, distilled=False)): s for s in FULL.schemes}


def by_scheme(output: dict[str, Any], schemes: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return per scheme and precision ``[median ms, ratio to none, low, high]``.

    Args:
        output: of ``bench --json``, ``none`` first.
        schemes: by name of their artifact.
    """
    found: dict[str, dict[str, Any]] = {}
    first = output["records"][0]["case"]["artifact"]
    itself = {"value": 1.0, "low": 1.0, "high": 1.0}
    for record, summary in zip(output["records"], output["summary"], strict=True):
        case = record["case"]
        other = f"{first} {case['variant']}"
        ratio = itself if case["artifact"] == first else summary["ratios"][other]
        figures = (summary["median_ms"], *(ratio[name] for name in ("value", "low", "high")))
        own = found.setdefault(schemes[case["artifact"]], {})
        own[case["variant"]] = [round(figure, 4) for figure in figures]
    return found


if __name__ == "__main__":
    main()
