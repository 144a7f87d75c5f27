"""Chains of layers as ONNX text, to roll and to unroll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from exporter.passes.roll_repeated_blocks import RolledRun, RollRepeatedBlocksPass, SkippedRun
from tests.passes.helpers import build

__all__ = [
    "FEEDS",
    "LAYER",
    "SIZE",
    "WEIGHTS",
    "Weights",
    "attempt",
    "chain",
    "loops",
    "matrix",
    "node_count",
    "vector",
]

SIZE = 4

LAYER = "h{i} = MatMul(x{p}, W)  g{i} = Relu(h{i})  x{i} = Add(g{i}, x{p})"
"""A residual layer: takes ``x{p}`` from layer ``p = i - 1``, gives ``x{i}``."""


def matrix(seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((SIZE, SIZE))
    return (values / 4).astype(np.float32)


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


Weights = Mapping[str, np.ndarray | ir.TensorProtocol]

WEIGHTS = {"W": matrix(0)}
FEEDS = [
    {"x0": np.random.default_rng(rows).standard_normal((rows, SIZE)).astype(np.float32)}
    for rows in (1, 3)
]


def chain(
    layers: Sequence[str],
    weights: Weights = WEIGHTS,
    *,
    before: str = "",
    after: str = "",
    inputs: str = "float[B,4] x0",
    outputs: str | None = None,
    initializers: str = "",
) -> ir.Model:
    """Build a graph of ``layers``, whose texts have ``{i}`` (from 1) and ``{p} = i - 1``."""
    body = "\n".join(layer.format(i=i, p=i - 1) for i, layer in enumerate(layers, start=1))
    outputs = outputs or f"float[B,4] x{len(layers)}"
    text = f"main ({inputs}) => ({outputs}) <{initializers}> {{ {before}\n{body}\n{after} }}"
    return build(text.replace("<>", ""), weights)


def loops(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "Loop"]


def node_count(model: ir.Model) -> int:
    """Nodes of all graphs, those of a body counted once."""
    return sum(1 for _ in model.graph.all_nodes())


def attempt(
    model: ir.Model, *, limit: int | None = None
) -> tuple[ir.Model, list[RolledRun], list[SkippedRun]]:
    """Roll a copy of ``model``; return it, what was rolled and what was skipped."""
    copy = ir.from_proto(ir.to_proto(model))
    roll = RollRepeatedBlocksPass(max_stacked_bytes_per_iteration=limit)
    roll(copy)
    return copy, roll.rolled, roll.skipped_runs
