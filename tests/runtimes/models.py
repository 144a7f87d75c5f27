"""Small models for workers to open, and what they take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from exporter.inputs import InputSpec, ModelInputs

VOCABULARY, WIDTH, LIMIT = 40, 16, 32
SIZES = {"batch": 2, "sequence": 7}
INPUTS = ModelInputs(
    specs=(
        InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", upper=VOCABULARY),
        InputSpec("attention_mask", "int64", ("batch", "sequence"), "mask"),
    ),
    limits={"sequence": LIMIT},
)

_HEAD = '<ir_version: 8, opset_import: ["" : 18]>'
_SIGNATURE = (
    "(int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask) "
    "=> (float[batch, sequence, 2] logits)"
)
_START = """
    mask = Cast <to = 1> (attention_mask)
    axis = Constant <value_ints = [2]> ()
    wide = Unsqueeze (mask, axis)
    embedded = Gather (table, input_ids)
    start = Mul (embedded, wide)
"""

ROLLED = f"""{_HEAD} rolled {_SIGNATURE} {{
    {_START}
    times = Constant <value_int = 3> ()
    always = Cast <to = 9> (times)
    end = Loop (times, always, start) <body = body (int64 i, bool go, float[b, s, w] state)
        => (bool same, float[b, s, w] next) {{
            product = MatMul (state, weight)
            next = Tanh (product)
            same = Identity (go)
        }}>
    logits = MatMul (end, head)
}}"""
"""One layer, applied three times by a ``Loop``."""

INTEGER = f"""{_HEAD} integer {_SIGNATURE} {{
    {_START}
    bytes, scale, zero = DynamicQuantizeLinear (start)
    product = MatMulInteger (bytes, weight, zero, weight_zero)
    float_product = Cast <to = 1> (product)
    both = Mul (scale, weight_scale)
    scaled = Mul (float_product, both)
    logits = MatMul (scaled, head)
}}"""
"""An 8-bit integer product of activations that are quantized at run time."""


def save_rolled(path: Path, *, external: bool = False, width: int = WIDTH) -> Path:
    """Write :data:`ROLLED`; with ``external``, its weights to ``<name>_data`` beside it."""
    rng = np.random.default_rng(1)
    tensors = {
        "table": rng.standard_normal((VOCABULARY, width), np.float32),
        "weight": rng.standard_normal((width, width), np.float32) / np.float32(np.sqrt(width)),
        "head": rng.standard_normal((width, 2), np.float32),
    }
    return _save(ROLLED, tensors, path, external=external)


def save_integer(path: Path) -> Path:
    """Write :data:`INTEGER`."""
    rng = np.random.default_rng(2)
    tensors = {
        "table": rng.standard_normal((VOCABULARY, WIDTH), np.float32),
        "weight": rng.integers(0, 256, (WIDTH, WIDTH)).astype(np.uint8),
        "weight_zero": np.array(128, np.uint8),
        "weight_scale": np.array(0.01, np.float32),
        "head": rng.standard_normal((WIDTH, 2), np.float32),
    }
    return _save(INTEGER, tensors, path)


def _save(text: str, tensors: dict[str, np.ndarray], path: Path, *, external: bool = False) -> Path:
    model = onnx.parser.parse_model(text)
    for name, array in tensors.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(
        model,
        path,
        save_as_external_data=external,
        location=f"{path.name}_data",
        size_threshold=64,
    )
    return path
