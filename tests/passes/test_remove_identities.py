from __future__ import annotations

import numpy as np
import onnx_ir as ir

from exporter.passes.remove_identities import RemoveIdentitiesPass
from tests.passes.helpers import assert_pass_preserves, build, op_types

X = {"x": np.array([[1, -2]], np.float32)}
W = {"W": np.array([[1, 2], [3, 4]], np.float32)}


def test_all_matmuls_read_the_initializer_itself() -> None:
    aliases = "  ".join(f"I{i} = Identity({'W' if i < 3 else f'I{i - 3}'})" for i in range(20))
    layers = "  ".join(f"y{i + 1} = MatMul(y{i}, I{i})" for i in range(20))
    text = f"g (float[1,2] x) => (float[1,2] y20) {{ {aliases} y0 = Neg(x) {layers} }}"
    after = assert_pass_preserves(RemoveIdentitiesPass, build(text, W), X)
    assert op_types(after) == ["Neg"] + ["MatMul"] * 20
    weight = after.graph.initializers["W"]
    assert all(node.inputs[1] is weight for node in after.graph if node.op_type == "MatMul")


def test_an_alias_that_is_an_output_stays() -> None:
    text = "g (float[1,2] x) => (float[1,2] y, float[2,2] V) { V = Identity(W)  y = MatMul(x, V) }"
    assert_pass_preserves(RemoveIdentitiesPass, build(text, W), X, modified=False)


def test_two_names_of_one_output_stay_two() -> None:
    text = "g (float[1,2] x) => (float[1,2] y, float[1,2] z) { y = Neg(x)  z = Identity(y) }"
    after = assert_pass_preserves(RemoveIdentitiesPass, build(text), X, modified=False)
    assert [output.name for output in after.graph.outputs] == ["y", "z"]


def test_an_alias_read_in_a_branch_goes_and_one_that_is_its_output_stays() -> None:
    text = """g (bool c, float[1,2] x) => (float[1,2] y) {
        V = Identity(W)
        y = If (c) <
            then_branch = t () => (float[1,2] a) { U = Identity(V)  a = MatMul(x, U) },
            else_branch = e () => (float[1,2] b) { b = Identity(x) } > }"""
    feeds = [{**X, "c": np.array(flag)} for flag in (True, False)]
    after = assert_pass_preserves(RemoveIdentitiesPass, build(text, W), *feeds)
    assert op_types(after) == ["If", "MatMul", "Identity"]


def test_aliases_in_functions_go() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (float[1,2] x) => (float[1,2] y) { y = d.f(x, W) }
        <domain: "d", opset_import: ["" : 20]> f (x, w) => (y) {
            v = Identity(w) y = MatMul(x, v) }"""
    after = assert_pass_preserves(RemoveIdentitiesPass, build(text, W), X)
    (function,) = after.functions.values()
    assert [node.op_type for node in function] == ["MatMul"]
    assert function[0].inputs[1] is function.inputs[1]


def test_an_operator_of_that_name_from_another_domain_stays() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (float[1,2] x) => (float[1,2] y) { v = d.Identity(W) y = MatMul(x, v) }
        <domain: "d", opset_import: ["" : 20]> Identity (w) => (v) { v = Neg(w) }"""
    assert_pass_preserves(RemoveIdentitiesPass, build(text, W), X, modified=False)


def test_a_source_of_unknown_shape_takes_that_of_its_alias() -> None:
    model = build("g (float[1,2] x) => (float[1,2] y) { n = Neg(x)  i = Identity(n)  y = Abs(i) }")
    neg, identity, _ = model.graph
    identity.outputs[0].shape, identity.outputs[0].dtype = ir.Shape([1, 2]), ir.DataType.FLOAT
    assert_pass_preserves(RemoveIdentitiesPass, model, X)
    RemoveIdentitiesPass()(model)
    assert (neg.outputs[0].shape, neg.outputs[0].dtype) == ([1, 2], ir.DataType.FLOAT)
