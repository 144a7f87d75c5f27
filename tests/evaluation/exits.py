"""A classifier that leaves early, as an artifact written by hand."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from exporter.artifact import Artifact
from exporter.early_exit import RULES, RuleName
from exporter.passes.exit_early import ExitEarlyPass
from tests.evaluation.helpers import IDS, MASK, make_artifact

__all__ = ["LAYERS", "calibrated", "leaving_artifact"]

LAYERS = 3


def doubling(film: float) -> ir.Model:
    """Logits start as the numbers of bad and of good words; each pass doubles them.

    A pass also adds ``film`` to the bad ones for each "film": later passes know more.
    """
    text = f"""
        <ir_version: 10, opset_import: ["": 20]>
        counter (int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask)
            => (float[batch, 2] logits)
        <float[6, 2] table = {{0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0}},
         float[6, 2] films = {{0, 0, 0, 0, 0, 0, 0, 0, {film}, 0, 0, 0}},
         int64[1] words = {{1}}, int64[1] last = {{2}}, int64 trip_count = {{{LAYERS}}}>
        {{
            column = Unsqueeze (attention_mask, last)
            present = Cast <to = 1> (column)
            values = Gather (table, input_ids)
            counted = Mul (values, present)
            start = ReduceSum <keepdims = 0> (counted, words)
            shown = Gather (films, input_ids)
            seen = Mul (shown, present)
            more = ReduceSum <keepdims = 0> (seen, words)
            x = Loop (trip_count, , start) <body = layer (int64 i, bool go, float[batch, 2] a)
                => (bool on, float[batch, 2] b)
                {{ on = Identity (go) d = Add (a, a) b = Add (d, more) }}>
            logits = Identity (x)
        }}
    """
    return ir.from_onnx_text(text)


def leaving_artifact(folder: Path, rule: RuleName = "confidence") -> Artifact:
    """Write an artifact whose ``fp32`` and ``int8`` (another one) leave early."""
    models = {}
    for variant, film in (("fp32", 1.0), ("int8", 3.0)):
        model = doubling(film)
        ExitEarlyPass(rule)(model)
        models[variant] = ir.to_proto(model)
    made = make_artifact(folder, models, specs=(IDS, MASK, *RULES[rule].inputs))
    exit_ = {"rule": rule, "input": RULES[rule].setting.name, "never": RULES[rule].never}
    return made.with_manifest({**made.manifest, "early_exit": {**exit_, "layers": LAYERS}})


def calibrated(artifact: Artifact, value: float) -> Artifact:
    """Write ``value`` into the manifest as what was chosen for every model, on made-up figures."""
    point = {
        "value": value,
        "accuracy": 0.9,
        "accuracy_95": [0.8, 0.95],
        "loss": 0.0,
        "mean_layers": 2.0,
        "p90_layers": 3.0,
        "relative_ms": 0.7,
    }
    chosen = {"value": value, "max_loss": 0.5, "data": "d.csv", "rows": 4, "curve": [point]}
    models = [{**model, "calibration": chosen} for model in artifact.manifest["models"]]
    return artifact.with_manifest({**artifact.manifest, "models": models})
