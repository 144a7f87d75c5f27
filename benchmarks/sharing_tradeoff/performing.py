"""One run, from training to its file of results; done before, it is read again."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.sharing_tradeoff import classify, generate
from benchmarks.sharing_tradeoff.pruning import pruned
from benchmarks.sharing_tradeoff.settings import Run, Study, TaskName
from exporter.artifact import Artifact
from exporter.atomic_writing import write_atomically
from exporter.errors import VerificationError
from exporter.models import SharedEncoder, count_parameters
from exporter.pipeline import ExportOptions, export_model
from exporter.transfer import measure_transfer

__all__ = ["artifact_of", "finished", "perform", "prepare"]

TASKS: dict[TaskName, Any] = {"classify": classify, "generate": generate}


def prepare(task: TaskName, study: Study, folder: Path) -> None:
    """Make what all runs of a task need; what is there already stays."""
    TASKS[task].prepare(study, folder, _base(task, study, folder))


def perform(run: Run, study: Study, folder: Path, results: Path, ready: None = None) -> Path:
    """Train, prune, export and evaluate; return the file that then says how it went.

    An interrupted training goes on from its snapshot.

    Args:
        run: which one.
        study: sizes and budgets.
        folder: texts, teachers and snapshots; the same for all workers.
        results: where the file goes.
        ready: what :func:`prepare` returned, so that an engine runs that first.
    """
    path = results / f"{run.name}.json"
    if finished(run, study, results):
        return path
    base = _base(run.task, study, folder)
    snapshot = base / "runs" / f"{run.name}.pt"
    start = time.process_time()
    model = TASKS[run.task].learn(study, run, folder, base, snapshot)
    trained = time.process_time()
    count = count_parameters(model)
    content = {
        "run": vars(run),
        "study": study.digest(run.task),
        "parameters": {"unique": count.unique, "unshared": count.total},
        "variants": list(_variants(model, run, study, folder, base)),
        # Of this call: less than the whole where an earlier one was interrupted.
        "cpu_s": {
            "training": round(trained - start, 1),
            "evaluation": round(time.process_time() - trained, 1),
        },
    }
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    snapshot.unlink(missing_ok=True)
    return path


def finished(run: Run, study: Study, results: Path) -> bool:
    """Tell whether this run of this very study has its results."""
    path = results / f"{run.name}.json"
    if not path.is_file():
        return False
    return json.loads(path.read_text(encoding="utf-8"))["study"] == study.digest(run.task)


def artifact_of(task: TaskName, scheme: str, study: Study, folder: Path) -> Path:
    """Where the artifact of a scheme's first, plain run is kept, for measuring its speed."""
    run = Run(task, scheme, study.seeds[0], distilled=False)
    return _base(task, study, folder) / "artifacts" / run.name


def _base(task: TaskName, study: Study, folder: Path) -> Path:
    # Other settings have another folder: nothing of them can be taken for these.
    return folder / f"{task}-{study.digest(task)}"


def _variants(
    model: SharedEncoder, run: Run, study: Study, folder: Path, base: Path
) -> Iterator[dict[str, Any]]:
    task = TASKS[run.task]
    options = ExportOptions(precisions=study.precisions, keep_failed=True)
    for share in study.prunings:
        with tempfile.TemporaryDirectory() as temporary:
            source = task.write_source(pruned(model, share), base, Path(temporary))
            artifact = export_model(source, Path(temporary) / "artifact", options)
            scores = task.evaluate(artifact, study, folder, base)
            for record in artifact.manifest["models"]:
                yield {
                    "pruned": share,
                    "precision": record["variant"],
                    **_sizes(artifact, record),
                    **scores[record["variant"]],
                }
            kept = artifact_of(run.task, run.scheme, study, folder)
            if not share and run.name == kept.name:
                shutil.copytree(artifact.folder, kept, dirs_exist_ok=True)


def _sizes(artifact: Artifact, record: dict[str, Any]) -> dict[str, Any]:
    verification = record["verification"]
    if record["variant"] == "fp32" and verification["verdict"] != "passed":
        raise VerificationError(f"{artifact.folder}: the fp32 file is another model")
    files = [artifact.folder / name for name in artifact.files_of(record["path"])]
    return {
        "file_bytes": record["file_bytes"],
        "brotli_bytes": measure_transfer(files).brotli_bytes,
        "relative_error": verification.get("relative_error"),
        "verdict": verification["verdict"],
    }
