"""What an early exit saves and costs, on the demo model and real sentences.

    python -m benchmarks.early_exit.run --data held-out.jsonl [--data more.jsonl]

1. The data is divided: odd lines choose the threshold and give its curve; even lines give
   every figure below.
2. Accuracy through all layers and leaving early, with 95 % intervals.
3. Exit layers and answers in onnxruntime against PyTorch's, sentence by sentence.
4. Batches: how many passes they take, and what a row's answer is worth when it keeps the one it
   left with, or goes on with the others.
5. Latency on the CPU and in Node's WebAssembly, one sentence at a time, all files in turns
   for each sentence: the model without an exit, with one that never fires (by default, and at
   a threshold that no sentence meets, where the head runs after every pass), and as calibrated.

Writes ``results.json`` and ``results.md`` beside this file; takes about 9 minutes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.early_exit.every_depth import agreement, answers_of_passes, batches
from benchmarks.early_exit.table import document
from exporter.artifact import Artifact
from exporter.benchmark import (
    Bench,
    BenchmarkOptions,
    InstalledRuntimes,
    choose_subjects,
    plan_runs,
    ratio,
)
from exporter.benchmark.leaving_early import leaving_subject
from exporter.benchmark.text_sample import sample_texts
from exporter.calibration import CalibrationOptions, calibrate_artifact
from exporter.evaluation import EvaluationOptions, evaluate_artifact
from exporter.evaluation.classifying import artifact_labels
from exporter.evaluation.examples import read_examples
from exporter.evaluation.labels import resolve_labels
from exporter.evaluation.texts import TextEncoder
from exporter.exit_setting import calibrated_setting
from exporter.inputs import Feeds
from exporter.pipeline import ExportOptions, export_model
from exporter.records import Device, Measurement, Runtime
from exporter.runtimes.device import describe_python

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / "exporter" / "demo_model" / "model.pt"
PRECISIONS = ("fp32", "int8")
RUNTIMES: tuple[Runtime, ...] = ("cpu", "node")
ALMOST_NEVER = float(np.nextafter(np.float32(1), np.float32(0)))
"""The largest threshold below 1: the rule looks after every pass, and is met by none."""
OTHERS = (0.6, 0.8, 0.95)
"""Thresholds beside the calibrated one at which layers and batches are looked at."""
WARM_UP = 20


@click.command()
@click.option("--data", "files", type=click.Path(path_type=Path), multiple=True, required=True)
@click.option("--model", type=click.Path(path_type=Path), default=MODEL)
@click.option("--max-loss", type=float, default=0.5, show_default=True)
@click.option("--sentences", type=int, default=1000, show_default=True, help="Timed, in all.")
@click.option("--sessions", type=int, default=5, show_default=True, help="Fresh processes of each.")
@click.option("--compared", type=int, default=1000, show_default=True, help="With PyTorch.")
def main(
    files: Sequence[Path],
    model: Path,
    max_loss: float,
    sentences: int,
    sessions: int,
    compared: int,
) -> None:
    """Calibrate, evaluate, compare with PyTorch, and time."""
    with tempfile.TemporaryDirectory(prefix="albert-export-") as name:
        work = Path(name)
        choosing, reporting, parts = _halves(files, work)
        plain = export_model(model, work / "plain", ExportOptions(precisions=PRECISIONS))
        leaving = export_model(
            model, work / "exit", ExportOptions(precisions=PRECISIONS, early_exit="confidence")
        )
        leaving, curves = calibrate_artifact(leaving, choosing, CalibrationOptions(max_loss))
        evaluations = {
            path.stem: evaluate_artifact(leaving, path, EvaluationOptions()).to_dict()
            for path in ((reporting, *parts) if len(parts) > 1 else parts)
        }
        examples = read_examples(reporting)
        texts = _texts(leaving, reporting)
        outputs = answers_of_passes(model, leaving, texts)
        truth = resolve_labels(examples, artifact_labels(leaving), outputs.shape[-1]).classes
        setting = calibrated_setting(leaving, "fp32")
        assert setting is not None
        thresholds = list(dict.fromkeys((setting.value, *OTHERS)))
        results = {
            "device": _described(describe_python()),
            "data": [path.name for path in files],
            "max_loss": max_loss,
            "sessions": sessions,
            "calibration": {
                one.variant: {
                    "value": one.chosen.value,
                    "curve": [point.to_dict() for point in one.points],
                }
                for one in curves
            },
            "evaluations": evaluations,
            "agreement": agreement(leaving, texts[:compared], outputs[:, :compared], thresholds),
            "batches": batches(outputs, truth, thresholds),
            "latency": _latency(plain, leaving, reporting, sentences, sessions, work),
        }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = document(results)
    (HERE / "results.md").write_text(text, encoding="utf-8")
    print(text)


def _described(device: Device) -> dict[str, Any]:
    return {"cpu": device.cpu, "system": device.system, "cores": device.usable_cores}


def _halves(files: Sequence[Path], work: Path) -> tuple[Path, Path, Sequence[Path]]:
    """Write odd and even lines of all files to a file each, and the even ones of each file."""
    halves: tuple[list[str], list[str]] = [], []
    parts = []
    for path in files:
        rows = read_examples(path).rows
        lines = [json.dumps({"text": row.text, "label": row.label}) + "\n" for row in rows]
        halves[0].extend(lines[::2])
        halves[1].extend(lines[1::2])
        parts.append(_write(work / f"{path.stem}.jsonl", lines[1::2]))
    choosing = _write(work / "choosing.jsonl", halves[0])
    return choosing, _write(work / "all.jsonl", halves[1]), parts


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _texts(artifact: Artifact, data: Path) -> list[Feeds]:
    """Return the texts in the order of the file."""
    encoder = TextEncoder.load(artifact)
    texts = encoder.encode(read_examples(data))
    return [batch.feeds for batch in encoder.batches(texts, 1)]


def _latency(
    plain: Artifact, leaving: Artifact, data: Path, sentences: int, sessions: int, work: Path
) -> list[dict[str, Any]]:
    """Time all arms in turns for each sentence, as ``bench --data`` does, with one arm more."""
    options = BenchmarkOptions(
        runtimes=RUNTIMES, sessions=sessions, min_runs=sentences, min_seconds=0, warm_up=WARM_UP
    )
    samples = sample_texts([plain, leaving], data, sentences)
    subjects = choose_subjects([plain, leaving], samples=samples, work=work)
    cases = []
    for precision in PRECISIONS:
        without, never, calibrated = (one for one in subjects if one.variant.startswith(precision))
        assert calibrated.leaves is not None
        looking = replace(calibrated.leaves, value=ALMOST_NEVER)
        looks = leaving_subject(never, looking, work / f"looks-{precision}")
        arms = {  # in one run, each needs a variant of its own
            "without an exit": replace(without, variant="none"),
            "never leaves": replace(never, variant="never"),
            "looks, never leaves": replace(looks, variant="looks"),
            "calibrated": calibrated,
        }
        for run in plan_runs([*arms.values()], options):
            records = Bench([run], InstalledRuntimes(), options).records()
            found = {record.case.variant: record for record in records}
            cases.append(_case(precision, {name: found[arms[name].variant] for name in arms}))
    return cases


def _case(precision: str, records: Mapping[str, Measurement]) -> dict[str, Any]:
    first, used = records["without an exit"], records["calibrated"].layers
    assert used is not None
    return {
        "runtime": first.case.runtime,
        "precision": precision,
        "sentences": len(first.samples_ms),
        "mean_tokens": first.case.sequence,
        "threshold": used.value,
        "mean_layers": used.mean,
        "p90_layers": used.p90,
        "arms": [
            {
                "arm": name,
                "mean_ms": record.mean_ms,
                "p90_ms": record.p90_ms,
                "ratio": asdict(ratio(record, first)),
            }
            for name, record in records.items()
        ],
    }


if __name__ == "__main__":
    main()
