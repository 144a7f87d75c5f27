"""What an early exit saves and costs, on the demo model and real sentences.

    python -m benchmarks.early_exit.run --data held-out.jsonl [--data more.jsonl]

1. The data is divided: odd lines choose the threshold, even lines give every figure below.
2. Accuracy through all layers and leaving early, with 95 % intervals.
3. Exit layers and answers in onnxruntime against PyTorch's, sentence by sentence.
4. Latency on the CPU and in Node's WebAssembly, one sentence at a time, all files in turns
   for each sentence: the model without an exit, with one that never fires (by default, and at
   a threshold that no sentence meets, where the head runs after every pass), and as calibrated.

Writes ``results.json`` and ``results.md`` beside this file; takes about 15 minutes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx_ir as ir
import torch

from benchmarks.early_exit.table import document
from exporter.artifact import Artifact
from exporter.calibration import CalibrationOptions, calibrate_artifact
from exporter.checkpoint import load_checkpoint
from exporter.early_exit import LAYERS_USED, calibrated_setting
from exporter.evaluation import EvaluationOptions, evaluate_artifact
from exporter.evaluation.examples import read_examples
from exporter.evaluation.texts import TextEncoder
from exporter.inputs import Feeds
from exporter.models.early_exit import EarlyExit, exit_signals
from exporter.onnx_files import read_model, write_model
from exporter.pipeline import ExportOptions, export_model
from exporter.ratios import student_quantile
from exporter.records import Device
from exporter.runtimes.cpu import CpuSession
from exporter.runtimes.cpu_worker import CpuWorker
from exporter.runtimes.device import describe_python
from exporter.runtimes.node_worker import NodeWorker
from exporter.runtimes.worker import MessageWorker, Task
from exporter.source_model import run_source

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / "exporter" / "demo_model" / "model.pt"
PRECISIONS = ("fp32", "int8")
RUNTIMES = {"cpu": CpuWorker, "node": NodeWorker}
ALMOST_NEVER = float(np.nextafter(np.float32(1), np.float32(0)))
"""The largest threshold below 1: the rule looks after every pass, and is met by none."""
WARM_UP = 20


@click.command()
@click.option("--data", "files", type=click.Path(path_type=Path), multiple=True, required=True)
@click.option("--model", type=click.Path(path_type=Path), default=MODEL)
@click.option("--max-loss", type=float, default=0.5, show_default=True)
@click.option("--sentences", type=int, default=200, show_default=True, help="Timed, per session.")
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
        choosing, reporting = _halves(files, work)
        plain = export_model(model, work / "plain", ExportOptions(precisions=PRECISIONS))
        leaving = export_model(
            model, work / "exit", ExportOptions(precisions=PRECISIONS, early_exit="confidence")
        )
        leaving, curves = calibrate_artifact(leaving, choosing, CalibrationOptions(max_loss))
        report = evaluate_artifact(leaving, reporting, EvaluationOptions())
        texts = _texts(leaving, reporting)
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
            "evaluation": report.to_dict(),
            "agreement": _agreement(model, leaving, texts[:compared]),
            "latency": [
                _latency(runtime, precision, plain, leaving, texts[:sentences], sessions, work)
                for runtime in RUNTIMES
                for precision in PRECISIONS
            ],
        }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = document(results)
    (HERE / "results.md").write_text(text, encoding="utf-8")
    print(text)


def _described(device: Device) -> dict[str, Any]:
    return {"cpu": device.cpu, "system": device.system, "cores": device.usable_cores}


def _halves(files: Sequence[Path], work: Path) -> tuple[Path, Path]:
    """Write odd and even lines of all files to a file each."""
    lines = [
        json.dumps({"text": row.text, "label": row.label})
        for path in files
        for row in read_examples(path).rows
    ]
    halves = work / "choosing.jsonl", work / "reporting.jsonl"
    for start, path in enumerate(halves):
        path.write_text("\n".join(lines[start::2]) + "\n", encoding="utf-8")
    return halves


def _texts(artifact: Artifact, data: Path) -> list[Feeds]:
    encoder = TextEncoder.load(artifact)
    texts = encoder.encode(read_examples(data))
    return [batch.feeds for batch in encoder.batches(texts, 1)]


def _agreement(model: Path, artifact: Artifact, texts: Sequence[Feeds]) -> dict[str, Any]:
    """Compare exit layers and answers with PyTorch's, at thresholds spread over the signals."""
    loaded = load_checkpoint(model)
    plan = loaded.depth_plan
    assert plan is not None
    layers = artifact.manifest["early_exit"]["layers"]
    passes = []
    for text in texts:
        outputs = []
        for number in range(1, layers + 1):
            with plan.at(number):
                outputs.append(torch.from_numpy(run_source(loaded, text)["logits"]))
        passes.append(outputs)
    session = CpuSession(artifact.models()["fp32"], threads=1)
    setting = calibrated_setting(artifact, "fp32")
    assert setting is not None
    rows = []
    for threshold in dict.fromkeys((setting.value, 0.6, 0.8, 0.95)):
        exit_ = EarlyExit("confidence", threshold)
        differing, worst, used = [], 0.0, []
        for text, outputs in zip(texts, passes, strict=True):
            expected = exit_.layers_used(outputs)
            given = session.run(text | setting.rule.feeds(threshold))
            used.append(int(given[LAYERS_USED][0]))
            if used[-1] != int(expected):
                gaps = (exit_signals("confidence", outputs) - np.float32(threshold)).abs()
                differing.append(float(gaps.min()))
                continue
            answer = exit_.answers(outputs, expected).numpy()
            worst = max(worst, float(np.abs(given["logits"] - answer).max()))
        rows.append(
            {
                "threshold": threshold,
                "equal": len(texts) - len(differing),
                "distances_of_others": differing,
                "largest_difference": worst,
                "layers": np.bincount(used, minlength=layers + 1)[1:].tolist(),
            }
        )
    return {"sentences": len(texts), "thresholds": rows}


def _latency(
    runtime: str,
    precision: str,
    plain: Artifact,
    leaving: Artifact,
    texts: Sequence[Feeds],
    sessions: int,
    work: Path,
) -> dict[str, Any]:
    """Time all arms in turns for each sentence, in fresh processes for each session."""
    setting = calibrated_setting(leaving, precision)
    assert setting is not None
    source = leaving.models()[precision]
    arms = {
        "without an exit": plain.models()[precision],
        "never leaves": source,
        "looks, never leaves": _pinned(source, ALMOST_NEVER, work / f"looks-{precision}.onnx"),
        "calibrated": _pinned(source, setting.value, work / f"calibrated-{precision}.onnx"),
    }
    times = np.empty((sessions, len(arms), len(texts)))
    layers = np.empty(len(texts))
    for session in range(sessions):
        with ExitStack() as stack:
            workers = [
                stack.enter_context(_open(runtime, path, plain, texts[0])) for path in arms.values()
            ]
            for text in texts[:WARM_UP]:
                for worker in workers:
                    worker.compute(text)
            for row, text in enumerate(texts):
                for number, worker in enumerate(workers):
                    times[session, number, row], outputs = worker.compute(text)
                layers[row] = outputs[LAYERS_USED][0]
    means = times.mean(axis=2)  # [sessions, arms]
    return {
        "runtime": runtime,
        "precision": precision,
        "sentences": len(texts),
        "mean_tokens": float(np.mean([text["input_ids"].shape[1] for text in texts])),
        "threshold": setting.value,
        "mean_layers": float(layers.mean()),
        "p90_layers": float(np.percentile(layers, 90)),
        "arms": [
            {
                "arm": name,
                "mean_ms": float(means[:, number].mean()),
                "p90_ms": float(np.percentile(times[:, number], 90)),
                "ratio": _ratio(means[:, number] / means[:, 0]),
            }
            for number, name in enumerate(arms)
        ],
    }


def _open(runtime: str, path: Path, plain: Artifact, text: Feeds) -> MessageWorker:
    sizes = {"batch": 1, "sequence": text["input_ids"].shape[1]}
    return RUNTIMES[runtime](Task(path=path, inputs=plain.inputs, sizes=sizes, warm_first=False))


def _pinned(source: Path, threshold: float, target: Path) -> Path:
    """Copy a model with another default: no runtime needs to be fed with it then."""
    model = read_model(source)
    default = model.graph.initializers["exit_threshold"]
    default.const_value = ir.tensor(np.array(threshold, np.float32), name="exit_threshold")
    write_model(model, target)
    return target


def _ratio(ratios: np.ndarray) -> dict[str, float]:
    """Geometric mean over sessions, with Student's 95 % interval."""
    logs = np.log(ratios)
    spread = 0.0
    if len(logs) > 1:
        spread = student_quantile(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
    low, value, high = np.exp([logs.mean() - spread, logs.mean(), logs.mean() + spread])
    return {"value": float(value), "low": float(low), "high": float(high)}


if __name__ == "__main__":
    main()
