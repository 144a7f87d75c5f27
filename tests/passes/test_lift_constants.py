from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from exporter.passes.lift_constants import LiftConstantsPass
from tests.passes.helpers import assert_pass_preserves, build, op_types, stored_bytes


def test_two_equal_large_constants_end_as_one_stored_copy() -> None:
    text = """g (float[40,50] x) => (float[40,50] z) {
        A = Constant() y = Add(x, A) B = Constant() z = Mul(y, B) }"""
    model = build(text)
    values = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    for node in model.graph:
        if node.op_type == "Constant":
            node.attributes.add(ir.AttrTensor("value", ir.Tensor(values.copy())))
    assert stored_bytes(model) == 2 * values.nbytes
    lifted = assert_pass_preserves(LiftConstantsPass, model, {"x": values})
    assert op_types(lifted) == ["Add", "Mul"] and list(lifted.graph.initializers) == ["A", "B"]
    merged = assert_pass_preserves(DeduplicateInitializersPass, lifted, {"x": values})
    assert stored_bytes(merged) == values.nbytes


@pytest.mark.parametrize(
    ("attribute", "type_", "expected"),
    [
        ("value_float = 2.5", "float", np.array(2.5, np.float32)),
        ("value_floats = [1.0, 2.0]", "float[2]", np.array([1, 2], np.float32)),
        ("value_int = 3", "int64", np.array(3)),
        ("value_ints = [3, 4]", "int64[2]", np.array([3, 4])),
        ("value = bool[1] {1}", "bool[1]", np.array([True])),
    ],
)
def test_each_kind_of_dense_value_is_lifted(
    attribute: str, type_: str, expected: np.ndarray
) -> None:
    text = f"g () => ({type_} y) {{ c = Constant <{attribute}> ()  y = Identity(c) }}"
    after = assert_pass_preserves(LiftConstantsPass, build(text), {})
    tensor = after.graph.initializers["c"].const_value
    assert tensor is not None
    np.testing.assert_array_equal(tensor.numpy(), expected, strict=True)


def test_string_constants_are_lifted() -> None:
    text = 'g () => (string[2] y) { c = Constant <value_strings = ["a", "bc"]> () y = Identity(c) }'
    after = assert_pass_preserves(LiftConstantsPass, build(text), {})
    assert op_types(after) == ["Identity"]


def test_a_constant_that_is_an_output_stays() -> None:
    text = "g () => (float c) { c = Constant <value_float = 2.5> () }"
    assert_pass_preserves(LiftConstantsPass, build(text), {}, modified=False)


def test_a_constant_in_a_branch_becomes_an_initializer_of_the_branch() -> None:
    text = """g (bool c, float[1] x) => (float[1] y) {
        y = If (c) <
            then_branch = t () => (float[1] a) {
                k = Constant <value_floats = [2.0]> () a = Add(x, k) },
            else_branch = e () => (float[1] b) { b = Constant <value_floats = [3.0]> () } > }"""
    feeds = [{"x": np.ones(1, np.float32), "c": np.array(flag)} for flag in (True, False)]
    after = assert_pass_preserves(LiftConstantsPass, build(text), *feeds)
    assert op_types(after) == ["If", "Add", "Constant"]
    assert [list(inner.initializers) for inner in after.graph.subgraphs()] == [["k"], []]


def test_a_constant_in_a_function_stays_since_functions_hold_no_initializers() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (float[1] x) => (float[1] y) { y = d.f<k = 2.0>(x) }
        <domain: "d", opset_import: ["" : 20]> f <k> (x) => (y) {
            c = Constant <value_float: float = @k> ()  y = Add(x, c) }"""
    pass_ = LiftConstantsPass()
    assert pass_(build(text)).modified is False
    assert [skip.reason for skip in pass_.skipped] == ["is in a function"]


def test_a_sparse_constant_stays() -> None:
    model = build("g (float[3] x) => (float[3] y) { c = Constant() y = Add(x, c) }")
    sparse = ir.Attr("sparse_value", ir.AttributeType.SPARSE_TENSOR, None)
    model.graph.node(0).attributes.add(sparse)
    pass_ = LiftConstantsPass()
    assert pass_(model).modified is False
    assert [skip.reason for skip in pass_.skipped] == ["sparse_value is no dense tensor"]
