from __future__ import annotations

import numpy as np
import onnx_ir as ir

from exporter.passes.strip_types import StripTypesPass
from tests.passes.helpers import assert_pass_preserves, build

LOOP = """main (float[2] x) => (float[2] y) {
    a = Neg(x)
    z = Loop(n, , a) <body = inner (int64 i, bool go, float[2] now) => (bool on, float[2] next)
        { on = Identity(go) h = Add(now, w) next = Tanh(h) }>
    y = Neg(z)
}"""
WEIGHTS = {"n": np.array(3), "w": np.ones(2, np.float32)}
FLOATS = ir.TensorType(ir.DataType.FLOAT)


def with_types(text: str, weights: dict[str, np.ndarray] | None = None) -> ir.Model:
    """A graph in which every value between nodes says that it is two floats."""
    model = build(text, weights)
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in graph:
            for value in node.outputs:
                if value.type is None:
                    value.type, value.shape = FLOATS, ir.Shape([2])
    return model


def typed(model: ir.Model) -> set[str | None]:
    """Names of the outputs of nodes that have a type or a shape."""
    return {
        value.name
        for graph in (model.graph, *model.graph.subgraphs())
        for node in graph
        for value in node.outputs
        if value.type is not None or value.shape is not None
    }


def test_values_between_nodes_lose_their_types_and_outputs_keep_them() -> None:
    model = with_types(LOOP, WEIGHTS)
    assert typed(model) == {"a", "z", "h", "next", "on", "y"}
    after = assert_pass_preserves(StripTypesPass, model, {"x": np.array([1, 2], np.float32)})
    assert typed(after) == {"next", "on", "y"}
    assert all(value.type is not None for value in after.graph.initializers.values())
    (body,) = after.graph.subgraphs()
    assert all(value.type is not None for value in body.inputs)


def test_what_another_domain_makes_keeps_its_type() -> None:
    model = with_types(
        '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'
        "main (float[2] x) => (float[2] y)"
        "{ a = com.microsoft.Gelu(x) b = Neg(a) y = Abs(b) }"
    )
    StripTypesPass()(model)
    assert typed(model) == {"a", "y"}


def test_a_second_run_finds_nothing_and_says_so() -> None:
    model = with_types(LOOP, WEIGHTS)
    strip = StripTypesPass()
    assert strip(model).modified
    (match,) = strip.matches
    assert match.detail == "3 values lost theirs"
    assert not StripTypesPass()(model).modified
