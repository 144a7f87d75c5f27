"""One run, from training to its file of results; done before, it is read again."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from benchmarks.sharing_tradeoff import classify, generate
from benchmarks.sharing_tradeoff.places import Places
from benchmarks.sharing_tradeoff.pruning import pruned
from benchmarks.sharing_tradeoff.settings import Run, Study, TaskName
from exporter.artifact import Artifact
from exporter.atomic_writing import write_atomically
from exporter.errors import VerificationError
from exporter.json_files import read_json
from exporter.models import SharedEncoder, count_parameters
from exporter.pipeline import ExportOptions, export_model
from exporter.transfer import measure_transfer

__all__ = ["TASKS", "Task", "finished", "missing", "perform", "prepare"]


class Task(Protocol):
    """What the modules of the tasks have in common."""

    def prepare(self, study: Study, places: Places) -> None:
        """Make what all runs need; what is there already stays."""
        ...

    def learn(self, study: Study, run: Run, places: Places) -> SharedEncoder:
        """Train one model; an interrupted training goes on from its snapshot."""
        ...

    def write_source(self, model: SharedEncoder, places: Places, folder: Path) -> Path:
        """Write into ``folder`` what is exported, and return its path."""
        ...

    def evaluate(
        self, artifact: Artifact, study: Study, places: Places
    ) -> dict[str, dict[str, Any]]:
        """Return per variant what it gets right (``correct``), of how many (``of``), and more."""
        ...


TASKS: dict[TaskName, Task] = {"classify": classify, "generate": generate}

_ALONE = threading.Lock()
"""Held by whoever trains or exports: the random generator, the kind of attention and the tracer
are the process's own, so that two at a time would change each other's results."""


def prepare(task: TaskName, study: Study, folder: Path) -> None:
    """Make what all runs of a task need; what is there already stays."""
    with _ALONE:
        TASKS[task].prepare(study, Places.of(task, study, folder))


def perform(run: Run, study: Study, folder: Path, results: Path, ready: None = None) -> Path:
    """Train, prune, export and evaluate; return the file that then says how it went.

    Where that file is there, and only the artifact to be timed is not, the file stays.

    Args:
        run: which one.
        study: sizes and budgets.
        folder: texts, teachers and snapshots; the same for all workers.
        results: where the file goes.
        ready: what :func:`prepare` returned, so that an engine runs that first.
    """
    path = results / f"{run.name}.json"
    places = Places.of(run.task, study, folder)
    with _ALONE:
        if _complete(run, study, places, results):
            return path
        start = time.process_time()
        model = TASKS[run.task].learn(study, run, places)
        if finished(run, study, results):
            _export(model, run, study, places, places.artifact(run))
            places.snapshot(run).unlink(missing_ok=True)
            return path
        trained = time.process_time()
        count = count_parameters(model)
        content = {
            "run": vars(run),
            "study": study.digest(run.task),
            "parameters": {"unique": count.unique, "unshared": count.total},
            "variants": list(_variants(model, run, study, places)),
            # Of this call: less than the whole where an earlier one was interrupted.
            "cpu_s": {
                "training": round(trained - start, 1),
                "evaluation": round(time.process_time() - trained, 1),
            },
        }
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
        places.snapshot(run).unlink(missing_ok=True)
    return path


def missing(study: Study, folder: Path, results: Path) -> list[Run]:
    """List the runs whose results are not there, or whose artifact to be timed is not."""
    return [
        run
        for run in study.runs()
        if not _complete(run, study, Places.of(run.task, study, folder), results)
    ]


def finished(run: Run, study: Study, results: Path) -> bool:
    """Tell whether this run of this very study has its results."""
    path = results / f"{run.name}.json"
    if not path.is_file():
        return False
    return bool(read_json(path).get("study") == study.digest(run.task))


def _complete(run: Run, study: Study, places: Places, results: Path) -> bool:
    kept = not study.keeps(run) or places.artifact(run).is_dir()
    return kept and finished(run, study, results)


def _variants(
    model: SharedEncoder, run: Run, study: Study, places: Places
) -> Iterator[dict[str, Any]]:
    for share in study.prunings:
        with tempfile.TemporaryDirectory() as temporary:
            kept = study.keeps(run) and not share
            destination = places.artifact(run) if kept else Path(temporary) / "artifact"
            artifact = _export(pruned(model, share), run, study, places, destination)
            scores = TASKS[run.task].evaluate(artifact, study, places)
            for record in artifact.manifest["models"]:
                yield {
                    "pruned": share,
                    "precision": record["variant"],
                    **_sizes(artifact, record),
                    **scores[record["variant"]],
                }


def _export(
    model: SharedEncoder, run: Run, study: Study, places: Places, destination: Path
) -> Artifact:
    options = ExportOptions(precisions=study.precisions, keep_failed=True, replace=True)
    with tempfile.TemporaryDirectory() as temporary:
        source = TASKS[run.task].write_source(model, places, Path(temporary))
        artifact = export_model(source, destination, options)
    for record in artifact.manifest["models"]:
        if record["variant"] == "fp32" and record["verification"]["verdict"] != "passed":
            shutil.rmtree(destination)  # what is there counts as done
            raise VerificationError(f"{run.name}: the fp32 file is another model")
    return artifact


def _sizes(artifact: Artifact, record: dict[str, Any]) -> dict[str, Any]:
    verification = record["verification"]
    files = [artifact.folder / name for name in artifact.files_of(record["path"])]
    return {
        "file_bytes": record["file_bytes"],
        "brotli_bytes": measure_transfer(files).brotli_bytes,
        "relative_error": verification.get("relative_error"),
        "verdict": verification["verdict"],
    }
