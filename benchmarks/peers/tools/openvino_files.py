"""Make the files of OpenVINO and NNCF.

    python openvino_files.py SOURCE.onnx FOLDER PRECISION

Writes ``FOLDER/model.xml`` and ``model.bin``. Runs in an environment of its own, where this
project is not installed. Prints, as the last line, how many weight operations were reached of
how many: constants of 1,000 elements or more that a product or a lookup reads.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import nncf
import numpy as np
import openvino

FEWEST_ELEMENTS = 1000
FLOATS = ("f32", "f16", "bf16")


def main() -> None:
    """Convert, compress, save, count."""
    source, folder, precision = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    model = compress(openvino.convert_model(source), precision)
    folder.mkdir(parents=True, exist_ok=True)
    openvino.save_model(model, folder / "model.xml", compress_to_fp16=precision == "fp16")
    reached, total = coverage(openvino.Core().read_model(folder / "model.xml"))
    print(json.dumps({"reached": reached, "total": total}))


def compress(model: Any, precision: str) -> Any:
    """Return ``model`` with its weights in ``precision``; embeddings included."""
    modes = nncf.CompressWeightsMode
    if precision == "int8":
        return nncf.compress_weights(model, mode=modes.INT8_SYM)
    if precision == "int4":
        return nncf.compress_weights(
            model, mode=modes.INT4_SYM, ratio=1.0, group_size=32, all_layers=True
        )
    if precision == "int8-calibrated":
        return nncf.quantize(
            model,
            nncf.Dataset(calibration()),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=16,
        )
    return model


def calibration() -> list[dict[str, np.ndarray]]:
    """Return 16 random rows: the model has random weights too."""
    rng = np.random.default_rng(7)
    return [
        {
            "input_ids": rng.integers(0, 30000, (1, 128)),
            "attention_mask": np.ones((1, 128), np.int64),
            "token_type_ids": rng.integers(0, 2, (1, 128)),
        }
        for _ in range(16)
    ]


def coverage(model: Any) -> tuple[int, int]:
    """Count products and lookups whose weight is stored in fewer bits than float32, of all."""
    reached = total = 0
    for operation in model.get_ordered_ops():
        weight = {"MatMul": 1, "Gather": 0}.get(operation.get_type_name())
        if weight is None:
            continue
        constant = stored(operation.input_value(weight).get_node())
        if constant is not None:
            total += 1
            reached += constant.get_element_type().get_type_name() != "f32"
    return reached, total


def stored(node: Any) -> Any:
    """Return the large constant that a value is computed from alone; ``None``: it is none."""
    if node.get_type_name() == "Constant":
        return node if int(np.prod(list(node.get_output_shape(0)))) >= FEWEST_ELEMENTS else None
    if node.get_type_name() in ("Convert", "Multiply", "Subtract", "Reshape", "FakeQuantize"):
        return stored(node.input_value(0).get_node())
    if node.get_type_name() == "Transpose":
        return stored(node.input_value(0).get_node())
    return None


if __name__ == "__main__":
    main()
