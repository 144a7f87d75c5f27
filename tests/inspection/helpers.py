"""Small ONNX files to inspect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from exporter.inspection import CopyGroup, ModelInspection, inspect_path
from exporter.inspection.duplicates import find_copies
from exporter.inspection.quantizability import find_weight_operations
from exporter.inspection.reach import QuantizerReach
from exporter.inspection.tensors import graph_labels, read_entries

__all__ = ["copies", "inspect_model", "matrix", "names", "reach"]


def matrix(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """A matrix of random numbers."""
    return np.random.default_rng(seed).standard_normal((rows, columns), dtype=np.float32)


def copies(model: ir.Model) -> tuple[CopyGroup, ...]:
    """Find the copies in a model in memory."""
    return find_copies(read_entries(model, graph_labels(model)))


def names(group: CopyGroup) -> list[str]:
    """Names of the tensors of a group."""
    return [member.entry.name for member in group.members]


def reach(model: ir.Model) -> QuantizerReach:
    """Find the weight operations of a model in memory."""
    return find_weight_operations(model, graph_labels(model))


def inspect_model(model: ir.Model, folder: Path) -> ModelInspection:
    """Write a model and inspect the file."""
    path = folder / "model.onnx"
    ir.save(model, path)
    (found,) = inspect_path(path).models
    return found
