"""How often the exported demo model, and its teacher, label text right.

    python scripts/train_demo_model.py --output DIR     # leaves the teacher in demo-training
    python -m benchmarks.demo_model.run [--teacher demo-training/teacher]

Exports both, evaluates each file with ``albert-export evaluate`` on the held-out sentences
and on those of the other collections, and the demo model also after each number of passes.
Student and teacher, and one pass and all, are compared sentence by sentence. Writes
``results.json`` beside this file, and the figures in the model card. Everything but the last
digits comes out the same on every machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.commands import CommandError, albert_export
from benchmarks.demo_model.table import BEGIN, DATA, END, tables
from exporter.artifact import Artifact
from exporter.errors import ExportError
from exporter.evaluation.classifying import artifact_labels, classes_of, logits_of
from exporter.evaluation.examples import read_examples
from exporter.evaluation.labels import resolve_labels
from exporter.evaluation.texts import TextEncoder
from exporter.packages import cache_folder
from exporter.runtimes.cpu import CpuSession
from exporter.training.card import read_part, write_part
from exporter.training.data import load_corpus
from exporter.training.demo import DEMO_FOLDER
from exporter.training.labelled_files import write_labelled

HERE = Path(__file__).parent
_FOLDER = click.Path(file_okay=False, path_type=Path)

Row = dict[str, Any]


@click.command()
@click.option("--teacher", type=_FOLDER, default="demo-training/teacher", show_default=True)
@click.option("--model", type=_FOLDER, default=DEMO_FOLDER, show_default="exporter/demo_model")
@click.option("--work-dir", type=_FOLDER, help="Where files are made and kept.")
@click.option(
    "--data-dir", type=_FOLDER, default=cache_folder, show_default="~/.cache/albert-export"
)
def main(teacher: Path, model: Path, work_dir: Path | None, data_dir: Path) -> None:
    """Export, evaluate, write the figures."""
    try:
        read_part(model, BEGIN, END)  # refused now, not after minutes of measuring
        with ExitStack() as stack:
            work = work_dir or Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="demo-model-"))
            )
            results = measure(teacher, model, work, data_dir)
        write_part(model, BEGIN, END, tables(results))
    except (CommandError, ExportError) as error:
        raise click.ClickException(str(error)) from error
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def measure(teacher: Path, model: Path, work: Path, data_dir: Path) -> dict[str, Any]:
    """Export both into ``work``, and count what each file labels right."""
    write_labelled(load_corpus(data_dir), work / "data")
    sources = {
        "teacher": (teacher, "--precision", "fp32,int8"),
        "student": (model / "model.pt", "--precision", "all", "--elastic-depth"),
    }
    files: list[Row] = []
    for who, (source, *options) in sources.items():
        print(f"{who} …", file=sys.stderr)
        albert_export("export", source, "-o", work / who, "--force", *options)
        for data in DATA:
            output = albert_export("evaluate", work / who, "--data", work / "data" / data).output
            files += [_file(who, record) for record in output["records"]]
    artifacts = {who: Artifact.load(work / who) for who in sources}
    return {
        "source_sha256": {
            who: made.manifest["source"]["sha256"] for who, made in artifacts.items()
        },
        "files": files,
        **_sentence_by_sentence(artifacts["teacher"], artifacts["student"], work / "data"),
    }


def _file(who: str, record: Row) -> Row:
    names = ("variant", "data", "correct", "rows", "majority")
    figures = {name: record[name] for name in names}
    return {"who": who, **figures, "file_bytes": record["model"]["file_bytes"]}


def _sentence_by_sentence(teacher: Artifact, student: Artifact, folder: Path) -> dict[str, Any]:
    layers = json.loads((student.folder / "config.json").read_text())["num_hidden_layers"]
    depths: list[Row] = []
    teacher_and_student: list[Row] = []
    all_passes_and_one: list[Row] = []
    for variant in student.models():
        print(f"{variant}, every depth …", file=sys.stderr)
        for data in DATA:
            after = [
                right(student, variant, folder / data, depth) for depth in range(1, layers + 1)
            ]
            correct = [int(rows.sum()) for rows in after]
            depths.append(
                {"variant": variant, "data": data, "rows": len(after[0]), "correct": correct}
            )
            if variant == "fp32":
                all_passes_and_one.append({"data": data, **_only(after[-1], after[0])})
            if variant == "int8":
                taught = right(teacher, "fp32", folder / data)
                teacher_and_student.append({"data": data, **_only(taught, after[-1])})
    return {
        "teacher_fp32_and_student_int8": teacher_and_student,
        "depths": depths,
        "fp32_all_passes_and_one": all_passes_and_one,
    }


def _only(first: np.ndarray, second: np.ndarray) -> Row:
    """Count the rows that one alone labels right."""
    return {
        "rows": len(first),
        "only_first": int(np.sum(first & ~second)),
        "only_second": int(np.sum(second & ~first)),
    }


def right(artifact: Artifact, variant: str, data: Path, depth: int | None = None) -> np.ndarray:
    """Return which texts a file labels right, bool ``[rows]``, each run alone.

    Args:
        artifact: that holds the file.
        variant: of the file.
        data: labelled texts.
        depth: number of passes; ``None``: all.
    """
    session = CpuSession(artifact.models()[variant], threads=1, inputs=artifact.inputs)
    encoder = TextEncoder.load(artifact)
    examples = read_examples(data)
    setting = {} if depth is None else {"depth": np.array(depth)}
    logits = [
        logits_of(session.run({**batch.feeds, **setting}))
        for batch in encoder.batches(encoder.encode(examples), 1)
    ]
    found = np.concatenate(logits)
    truth = resolve_labels(examples, artifact_labels(artifact), found.shape[1])
    return np.asarray(classes_of(found) == truth.classes)


if __name__ == "__main__":
    main()
