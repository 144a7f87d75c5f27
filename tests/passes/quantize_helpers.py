"""What holds after every pass that stores weights in fewer bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx_ir as ir

from exporter.passes.scopes import all_graphs
from exporter.passes.weights.coverage import StoreWeightsPass
from tests.passes.helpers import build, run, signature, stored_bytes

__all__ = ["apply", "float_matrices", "initializers", "noise", "outputs_agree", "product", "tied"]

P = TypeVar("P", bound=StoreWeightsPass[Any])


def noise(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Random normal float32 numbers."""
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def product(weight: np.ndarray, operator: str = "MatMul") -> ir.Model:
    """A model that multiplies ``x`` by one weight."""
    text = f"agraph (float[M, K] x) => (float[M, N] y) {{ y = {operator} (x, w) }}"
    return build(text, {"w": weight})


def tied(table: np.ndarray) -> ir.Model:
    """A model whose table ``[V, D]`` is looked up, and is the output layer as well."""
    text = """
        agraph (int64[B, S] ids) => (float[B, S, V] y) {
            e = Gather (w, ids)
            t = Transpose <perm = [1, 0]> (w)
            y = MatMul (e, t)
        }
    """
    return build(text, {"w": table})


def apply(transformation: P, model: ir.Model) -> tuple[ir.Model, P]:
    """Apply a pass to a clone, and check what holds for every pass of this kind.

    The signature is unchanged, the ONNX checker accepts the result, no name is defined twice
    in any scope, what is stored shrinks, and a second run finds nothing to do.
    """
    clone = ir.from_proto(ir.to_proto(model))
    before = ir.to_proto(clone).SerializeToString(deterministic=True)
    result = transformation(clone)
    proto = ir.to_proto(result.model)
    after = proto.SerializeToString(deterministic=True)
    assert result.modified is (after != before)
    assert signature(result.model) == signature(model)
    onnx.checker.check_model(onnx.load_from_string(after), full_check=True)
    names = Counter(
        value.name
        for graph in all_graphs(result.model)
        for value in (
            *graph.inputs,
            *(v for node in graph for v in node.outputs if v.name),
            *(v for v in graph.initializers.values() if not v.is_graph_input()),
        )
    )
    assert [name for name, count in names.items() if count > 1] == []
    if result.modified:
        assert stored_bytes(result.model) < stored_bytes(model)
    coverage, matches = transformation.coverage, transformation.matches
    assert coverage.operations_total >= coverage.operations_reached
    assert len({id(skip) for skip in coverage.skipped}) == len(transformation.skipped)
    again = transformation(ir.from_proto(ir.to_proto(result.model)))
    assert again.modified is False
    transformation.coverage, transformation.matches = coverage, matches
    return result.model, transformation


def initializers(model: ir.Model) -> dict[str, np.ndarray]:
    """Values of the main graph's initializers."""
    return {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }


def float_matrices(model: ir.Model) -> list[str]:
    """Names of float32 initializers of two dimensions or more, in any graph."""
    return [
        name
        for graph in all_graphs(model)
        if isinstance(graph, ir.Graph)
        for name, value in graph.initializers.items()
        if value.dtype == ir.DataType.FLOAT and value.shape is not None and len(value.shape) > 1
    ]


def outputs_agree(
    one: ir.Model,
    other: ir.Model,
    feeds: Mapping[str, np.ndarray],
    relative: float,
) -> None:
    """Check that the outputs differ by at most ``relative`` of their norm, optimized or not."""
    for as_written in (True, False):
        for a, b in zip(
            run(one, feeds, as_written=as_written),
            run(other, feeds, as_written=as_written),
            strict=True,
        ):
            assert a.shape == b.shape
            assert np.isfinite(a).all()
            assert np.linalg.norm(a - b) <= relative * np.linalg.norm(b)
