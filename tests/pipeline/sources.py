"""ONNX files to export, as graphs in text, and what tests look at in the artifact."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from exporter.artifact import Artifact
from exporter.passes.scopes import all_graphs
from exporter.pipeline import ExportOptions, export_model
from tests.passes.helpers import build

__all__ = ["export", "float_tensors", "model_of", "operators", "record", "save", "stack_of_layers"]


def save(folder: Path, text: str, weights: Mapping[str, np.ndarray], opset: int = 20) -> Path:
    """Write a graph given as text, in which the names of ``weights`` may be used."""
    model = build(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}', weights)
    path = folder / "source.onnx"
    ir.save(model, path)
    return path


def export(source: Path, *precisions: str, **options: Any) -> Artifact:
    """Export to the folder ``out`` beside the source, in place of what is there."""
    chosen = ExportOptions(precisions=precisions, replace=True, **options)
    return export_model(source, source.parent / "out", chosen)


def record(artifact: Artifact, variant: str) -> dict[str, Any]:
    """The manifest's record of one model file."""
    (found,) = (one for one in artifact.manifest["models"] if one["variant"] == variant)
    return found


def model_of(artifact: Artifact, variant: str) -> ir.Model:
    """One model file, which the ONNX checker must accept."""
    path = artifact.models()[variant]
    onnx.checker.check_model(path, full_check=True)
    return ir.load(path)


def operators(model: ir.Model) -> list[str]:
    """Operators of all nodes, bodies included."""
    return [node.op_type for graph in all_graphs(model) for node in graph]


def float_tensors(model: ir.Model, above: int = 1024) -> dict[str, int]:
    """Bytes of the float32 tensors of more than ``above`` bytes, in any graph."""
    return {
        name: value.const_value.nbytes
        for graph in all_graphs(model)
        if isinstance(graph, ir.Graph)
        for name, value in graph.initializers.items()
        if value.const_value is not None
        if value.dtype == ir.DataType.FLOAT and value.const_value.nbytes > above
    }


def stack_of_layers(folder: Path, groups: list[int], size: int = 48) -> Path:
    """A stack of layers ``x = x + tanh(x W)``; each group of them has a weight of its own."""
    rng = np.random.default_rng(5)
    lines, count = [], 0
    for group, layers in enumerate(groups):
        for _ in range(layers):
            lines.append(
                f"h{count} = MatMul(x{count}, w{group}) t{count} = Tanh(h{count}) "
                f"x{count + 1} = Add(x{count}, t{count})"
            )
            count += 1
    text = f"""main (float[batch,{size}] x0) => (float[batch,{size}] y)
        {{ {" ".join(lines)} y = MatMul(x{count}, head) }}"""
    names = [f"w{group}" for group in range(len(groups))] + ["head"]
    scale = np.float32(1 / np.sqrt(size))
    weights = {n: rng.standard_normal((size, size), dtype=np.float32) * scale for n in names}
    return save(folder, text, weights)
