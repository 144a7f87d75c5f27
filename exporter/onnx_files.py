"""Write ``onnx_ir`` models to files: one file while protobuf allows, else external data."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir

from exporter.accounting import stored_bytes

__all__ = ["EXTERNAL_DATA_ABOVE_BYTES", "write_model"]

EXTERNAL_DATA_ABOVE_BYTES = 1_900_000_000
"""Tensor bytes above which weights go to ``<file>_data``; protobuf's own limit is 2 GiB."""


def write_model(model: ir.Model, path: Path) -> None:
    """Write ``model`` to ``path``; a large one's weights go to ``<path>_data`` beside it.

    The name of the data file is the one transformers.js and onnxruntime-web users expect.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    external = f"{path.name}_data" if stored_bytes(model) > EXTERNAL_DATA_ABOVE_BYTES else None
    ir.save(model, path, external_data=external)
