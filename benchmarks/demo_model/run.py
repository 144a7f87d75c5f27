"""How often the exported demo model, and its teacher, label text right.

    python scripts/train_demo_model.py --output DIR     # leaves the teacher in demo-training
    python -m benchmarks.demo_model.run [--teacher demo-training/teacher]

Exports both, evaluates each file with ``albert-export evaluate`` on the held-out sentences
and on those of the other collections, and the demo model also after each number of passes.
Writes ``results.json`` beside this file, and the figures in the model card. Everything but
the last digits comes out the same on every machine.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.commands import albert_export
from exporter.artifact import Artifact
from exporter.evaluation.examples import read_examples
from exporter.evaluation.texts import TextEncoder
from exporter.packages import cache_folder
from exporter.runtimes.cpu import CpuSession
from exporter.scores import wilson_interval
from exporter.training.card import write_part
from exporter.training.data import load_corpus
from exporter.training.demo import DEMO_FOLDER
from exporter.training.labelled_files import FOREIGN_FILE, HELD_OUT_FILE, write_labelled

HERE = Path(__file__).parent
BEGIN = "<!-- exports: begin, written by benchmarks/demo_model/run.py -->"
END = "<!-- exports: end -->"
DATA = (HELD_OUT_FILE, FOREIGN_FILE)
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
    work = work_dir or Path(tempfile.mkdtemp(prefix="demo-model-"))
    write_labelled(load_corpus(data_dir), work / "data")
    sources = {
        "teacher": (teacher, "--precision", "fp32,int8"),
        "student": (model / "model.pt", "--precision", "all", "--elastic-depth"),
    }
    rows: list[Row] = []
    for who, (source, *options) in sources.items():
        print(f"{who} …", file=sys.stderr)
        albert_export("export", source, "-o", work / who, "--force", *options)
        for data in DATA:
            output = albert_export("evaluate", work / who, "--data", work / "data" / data).output
            rows += [{"who": who, **record} for record in output["records"]]
    results = {
        "files": [
            {
                **{name: row[name] for name in ("who", "variant", "data", "correct", "rows")},
                "file_bytes": row["model"]["file_bytes"],
            }
            for row in rows
        ],
        "depths": depths(Artifact.load(work / "student"), [work / "data" / name for name in DATA]),
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    write_part(model, BEGIN, END, tables(results))


def depths(artifact: Artifact, files: Sequence[Path]) -> list[Row]:
    """Count what each file labels right after 1, 2, … passes, one text at a time."""
    layers = json.loads((artifact.folder / "config.json").read_text())["num_hidden_layers"]
    encoder = TextEncoder.load(artifact)
    found = []
    for variant, path in artifact.models().items():
        print(f"{variant}, every depth …", file=sys.stderr)
        session = CpuSession(path, threads=1, inputs=artifact.inputs)
        for file in files:
            examples = read_examples(file)
            correct = [0] * layers
            for batch in encoder.batches(encoder.encode(examples), 1):
                positive = examples.rows[batch.rows[0]].label == "positive"
                for passes in range(1, layers + 1):
                    logits = session.run({**batch.feeds, "depth": np.array(passes)})["logits"]
                    correct[passes - 1] += int((logits.argmax() == 1) == positive)
            row = {"variant": variant, "data": file.name, "rows": len(examples.rows)}
            found.append({**row, "correct": correct})
    return found


def tables(results: dict[str, Any]) -> str:
    """Write the figures as Markdown."""
    by_file = {(row["who"], row["variant"], row["data"]): row for row in results["files"]}
    sizes = {row["data"]: row["rows"] for row in results["files"]}
    heads = [f"{words} (n = {sizes[d]:,})" for d, words in zip(DATA, _WORDS, strict=True)]
    lines = [f"| model | file | {' | '.join(heads)} |", "|---|---:|---:|---:|"]
    for (who, variant, data), row in by_file.items():
        if data == DATA[0]:
            cells = [_accuracy(by_file[who, variant, data]) for data in DATA]
            size = f"{row['file_bytes'] / 1e6:.2f} MB"
            lines.append(f"| {who}, {variant} | {size} | {' | '.join(cells)} |")
    kept = [
        _share(by_file["student", "int8", data]) / _share(by_file["teacher", "fp32", data])
        for data in DATA
    ]
    lines += [
        "",
        f"The student in int8 keeps {kept[0]:.1%} of the accuracy of its teacher in fp32 on the "
        f"held-out sentences, and {kept[1]:.1%} on those of the other collections.",
        "",
        "After each number of passes:",
        "",
    ]
    columns = [(row["variant"], row["data"]) for row in results["depths"]]
    names = [f"{variant}: {_SHORT[DATA.index(data)]}" for variant, data in columns]
    lines += [f"| passes | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for index in range(len(results["depths"][0]["correct"])):
        shares = [f"{row['correct'][index] / row['rows']:.1%}" for row in results["depths"]]
        lines.append(f"| {index + 1} | {' | '.join(shares)} |")
    return "\n".join(lines)


_WORDS = ("held-out, at least 1.0", "amazon, imdb and yelp")
_SHORT = ("held-out", "other")


def _share(row: Row) -> float:
    return float(row["correct"] / row["rows"])


def _accuracy(row: Row) -> str:
    low, high = wilson_interval(row["correct"], row["rows"])
    return f"{_share(row):.1%} ({low:.1%} to {high:.1%})"


if __name__ == "__main__":
    main()
