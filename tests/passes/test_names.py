"""Names that a pass leaves must be valid wherever they were."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.fold_weight_transforms import FoldWeightTransformsPass
from exporter.passes.match import Match, ReportingPass
from exporter.passes.merge_packed_copies import MergePackedCopiesPass
from exporter.passes.merge_transposed_twins import MergeTransposedTwinsPass
from exporter.passes.scopes import check_names
from tests.passes.helpers import assert_pass_preserves, build

RNG = np.random.default_rng(17)
LOOP = """g (float[2] x) => (float[2] y) {
    val_0 = Neg(x)
    val_1 = Loop(n, , val_0) <body = inner (int64 i, bool go, float[2] now)
        => (bool go_on, float[2] next) { go_on = Identity(go)  next = Add(now, w) }>
    y = Neg(val_1) }"""
WEIGHTS = {"n": np.array(2), "w": np.ones(2, np.float32)}
IF = """g (bool c, float[2] x) => (float[2] y) {
    y = If(c) <then_branch = t () => (float[2] %s) { a = Neg(x)  %s = Neg(a) },
               else_branch = e () => (float[2] q) { a = Abs(x)  q = Neg(a) }> }"""


class Change(ReportingPass):
    """Does what it is given and says so."""

    def __init__(self, change: Callable[[ir.Model], object]) -> None:
        super().__init__()
        self.change = change

    def rewrite(self, model: ir.Model) -> None:
        self.change(model)
        self.matches.append(Match("model", "changed"))


def body(model: ir.Model) -> ir.Graph:
    return (
        next(node for node in model.graph if node.op_type == "Loop").attributes["body"].as_graph()
    )


def add_unnamed(model: ir.Model) -> None:
    """Add a node to the loop body and leave its names to onnx_ir."""
    graph = body(model)
    node = ir.Node("", "Neg", [graph.inputs[2]])
    graph.append(node)


def name_like_the_input(model: ir.Model) -> None:
    model.graph.node(0).outputs[0].name = "x"


def name_like_a_weight(model: ir.Model) -> None:
    body(model).node(1).outputs[0].name = "w"


def name_node_twice(model: ir.Model) -> None:
    model.graph.node(0).name = model.graph.node(2).name = "same"


def take_the_name(model: ir.Model) -> None:
    model.graph.node(0).outputs[0].name = None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (add_unnamed, "value name 'val_0' is taken"),
        (name_like_the_input, "value name 'x' is taken"),
        (name_like_a_weight, "value name 'w' is taken"),
        (name_node_twice, "node name 'same' is taken"),
        (take_the_name, "a value has no name"),
    ],
)
def test_a_pass_that_makes_a_name_invalid_fails(
    change: Callable[[ir.Model], None], text: str
) -> None:
    model = build(LOOP, WEIGHTS)
    assert check_names(model) == ()
    with pytest.raises(ir.passes.PostconditionError) as caught:
        Change(change)(model)
    assert str(caught.value) == f"Change made names invalid: {text}"
    assert check_names(model) == (text,)


def test_an_error_lists_five_names_and_counts_the_rest() -> None:
    def swamp(model: ir.Model) -> None:
        for number in range(7):
            for _ in range(2):
                output = ir.Value(name=f"twin_{number}")
                model.graph.append(ir.Node("", "Neg", [model.graph.inputs[0]], outputs=[output]))

    with pytest.raises(ir.passes.PostconditionError, match=r"'twin_4' is taken and 2 more$"):
        Change(swamp)(build(LOOP, WEIGHTS))


def test_what_was_invalid_before_is_no_fault_of_the_pass() -> None:
    model = build(LOOP, WEIGHTS)
    name_node_twice(model)
    add_unnamed(model)
    assert len(check_names(model)) == 2
    Change(lambda model: None)(model)
    with pytest.raises(ir.passes.PostconditionError, match=r"invalid: value name 'w' is taken$"):
        Change(name_like_a_weight)(model)


def test_branches_side_by_side_may_use_the_same_names() -> None:
    model = build(IF % ("p", "p"))
    assert check_names(model) == ()
    model = build(IF % ("p", "p"))
    model.graph.node(0).attributes["then_branch"].as_graph().node(1).outputs[0].name = "x"
    assert check_names(model) == ("value name 'x' is taken",)


def test_functions_may_use_the_names_of_the_main_graph() -> None:
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        g (float[2] x) => (float[2] y) { a = Neg(x)  y = own.twice(a) }
        <opset_import: ["" : 20], domain: "own"> twice (x) => (y) { a = Add(x, x)  y = Neg(a) }"""
    )
    assert check_names(model) == ()


def test_nodes_without_a_name_and_outputs_that_are_left_out_are_valid() -> None:
    text = """g (float[4] x) => (float[2] y, float[2] z) {
        k = Constant<value = int64[1] {2}>()  y, i = TopK(x, k)  z, j = TopK(x, k) }"""
    model = build(text)
    assert [node.name for node in model.graph] == ["", "", ""]
    for node in list(model.graph)[1:]:
        node.outputs[1].name = ""
    assert check_names(model) == ()
    model.graph.node(0).outputs[0].name = ""
    assert check_names(model) == ("a value has no name",)


def test_an_input_with_a_default_is_one_value() -> None:
    model = build("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", {"w": np.ones(2)})
    assert model.graph.initializers["w"] is model.graph.inputs[1]
    assert check_names(model) == ()


def test_a_node_moved_out_of_a_branch_gets_a_name_that_is_free() -> None:
    text = """g (bool c, float[2,8] x, int64[1] i) => (float[2,20] y, float[1,8] e) {
        e = Gather(W, i)
        y = If(c) <then_branch = t () => (float[2,20] p) { T = Transpose(W)  p = MatMul(x, T) },
                   else_branch = f () => (float[2,20] q) { T = Transpose(W)  r = MatMul(x, T)
                                                           q = Neg(r) }> }"""
    model = build(text, {"W": RNG.standard_normal((20, 8)).astype(np.float32)})
    for graph in (model.graph, *model.graph.subgraphs()):
        graph.node(0).name = "first"
    feeds = [
        {"c": np.array(c), "x": np.ones((2, 8), np.float32), "i": np.array([3])}
        for c in (True, False)
    ]
    after = assert_pass_preserves(FoldWeightTransformsPass, model, *feeds)
    assert [node.name for node in after.graph][:2] == ["first_2", "first"]
    assert check_names(after) == ()


A = RNG.standard_normal((12, 8)).astype(np.float32)
Q, K = RNG.standard_normal((2, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("make_pass", "calls", "weights", "node"),
    [
        (
            MergeTransposedTwinsPass,
            "e = Gather(A, i)  r = MatMul(x, B)",
            {"A": A, "B": np.ascontiguousarray(A.T)},
            "Transpose_A_transposed",
        ),
        (
            MergePackedCopiesPass,
            "e = MatMul(x, Q)  s = MatMul(e, K)  r = MatMul(s, P)",
            {"Q": Q, "K": K, "P": np.concatenate([Q, K], axis=1)},
            "Concat_P_packed",
        ),
    ],
)
def test_nodes_that_stand_for_a_stored_copy_have_names_that_are_free(
    make_pass: Callable[[], ReportingPass],
    calls: str,
    weights: dict[str, np.ndarray],
    node: str,
) -> None:
    width = 12 if "A" in weights else 16
    text = f"g (float[2,8] x, int64[2] i) => (float[2,8] e, float[2,{width}] r) {{ {calls} }}"
    model = build(text, weights)
    model.graph.node(-1).name = node
    x = RNG.standard_normal((2, 8)).astype(np.float32)
    after = assert_pass_preserves(make_pass, model, {"x": x, "i": np.array([1, 2])})
    assert after.graph.node(0).name == f"{node}_2"
