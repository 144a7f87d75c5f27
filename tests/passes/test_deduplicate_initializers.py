from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes import deduplicate_initializers
from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from tests.passes.helpers import assert_pass_preserves, build, run, stored_bytes

TWO = "g (float[2] x) => (float[2] z) { y = Add(x, W1)  z = Mul(y, W2) }"
X = {"x": np.array([1.5, -2], np.float32)}


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_equal_initializers_become_one_object() -> None:
    model = build(TWO, {"W1": floats(1, 2), "W2": floats(1, 2)})
    after = assert_pass_preserves(DeduplicateInitializersPass, model, X)
    add, mul = after.graph
    assert add.inputs[1] is mul.inputs[1] is after.graph.initializers["W1"]
    assert list(after.graph.initializers) == ["W1"]
    assert stored_bytes(after) == 8


@pytest.mark.parametrize(
    "other",
    [floats(1, 3), floats(1, 2).reshape(1, 2), floats(np.nextafter(np.float32(1), 2), 2)],
    ids=["values", "shape", "one ulp"],
)
def test_look_alikes_stay_apart(other: np.ndarray) -> None:
    text = "g (float[1,2] x) => (float[1,2] z) { y = Add(x, W1)  z = Mul(y, W2) }"
    model = build(text, {"W1": floats(1, 2), "W2": other})
    assert_pass_preserves(
        DeduplicateInitializersPass, model, {"x": floats(3, 4)[None]}, modified=False
    )


def test_another_type_with_the_same_bits_stays_apart() -> None:
    text = "g (float[2] x, int32[2] i) => (float[2] y, int32[2] j) { y = Add(x, A)  j = Add(i, B) }"
    model = build(text, {"A": floats(0, 0), "B": np.zeros(2, np.int32)})
    feeds = {"x": floats(1, 2), "i": np.array([1, 2], np.int32)}
    assert_pass_preserves(DeduplicateInitializersPass, model, feeds, modified=False)


def test_zero_and_negative_zero_divisors_keep_their_signs() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] z) { y = Div(x, P)  z = Div(x, N) }"
    model = build(text, {"P": floats(0, 0), "N": floats(-0.0, -0.0)})
    after = assert_pass_preserves(
        DeduplicateInitializersPass, model, {"x": floats(1, 2)}, modified=False
    )
    positive, negative = run(after, {"x": floats(1, 2)})
    assert (positive == np.inf).all() and (negative == -np.inf).all()


def test_a_nan_equals_the_same_nan_and_no_other() -> None:
    nan, other = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    text = "g (float[1] x) => (float[1] y) { a = Add(x, A) b = Add(a, B) y = Add(b, C) }"
    model = build(text, {"A": floats(nan), "B": floats(nan), "C": other[None]})
    after = assert_pass_preserves(DeduplicateInitializersPass, model, {"x": floats(1)})
    assert list(after.graph.initializers) == ["A", "C"]


@pytest.mark.parametrize("size", [1, 10, 1025, 70_000])
def test_no_size_is_exempt(size: int) -> None:
    text = f"g (float[{size}] x) => (float[{size}] z) {{ y = Add(x, W1)  z = Mul(y, W2) }}"
    weight = np.linspace(1, 2, size, dtype=np.float32)
    model = build(text, {"W1": weight, "W2": weight.copy()})
    after = assert_pass_preserves(DeduplicateInitializersPass, model, {"x": weight})
    assert stored_bytes(after) == 4 * size


def test_strings_merge_by_their_texts_not_by_their_concatenation() -> None:
    text = """g (bool c) => (string[2] y, string[2] z, string[2] w) {
        y = Where(c, A, B)  z = Where(c, B, C)  w = Where(c, C, A) }"""
    strings = {"A": [b"ab", b"c"], "B": [b"a", b"bc"], "C": [b"ab", b"c"]}
    model = build(text, {k: ir.StringTensor(v, shape=ir.Shape([2])) for k, v in strings.items()})
    after = assert_pass_preserves(DeduplicateInitializersPass, model, {"c": np.array(True)})
    assert list(after.graph.initializers) == ["A", "B"]


def test_equal_digests_of_different_bits_do_not_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplicate_initializers, "tensor_digest", lambda tensor: "same")
    model = build(TWO, {"W1": floats(1, 2), "W2": floats(1, 3)})
    assert_pass_preserves(DeduplicateInitializersPass, model, X, modified=False)


def test_four_bit_tensors_compare_by_their_packed_bits() -> None:
    values = np.array([1, -2, 7], ml_dtypes.int4)
    text = """<ir_version: 10, opset_import: ["" : 21]>
        g () => (float[3] y, float[3] z) { y = Cast<to=1>(A) z = Cast<to=1>(B) }"""
    model = build(text, {k: ir.Tensor(values.copy(), dtype=ir.DataType.INT4) for k in "AB"})
    after = assert_pass_preserves(DeduplicateInitializersPass, model)
    assert list(after.graph.initializers) == ["A"]


def test_outputs_keep_names_and_order_and_serve_others_as_the_kept_copy() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] W2) { y = Add(x, W1) }"
    model = build(text, {"W1": floats(1, 2), "W2": floats(1, 2)})
    after = assert_pass_preserves(DeduplicateInitializersPass, model, X)
    assert list(after.graph.initializers) == ["W2"]
    assert after.graph.node(0).inputs[1] is after.graph.outputs[1]


def test_two_equal_outputs_keep_a_copy_each() -> None:
    text = "g (float[2] x) => (float[2] W2, float[2] W1) { unused = Neg(x) }"
    model = build(text, {"W1": floats(1, 2), "W2": floats(1, 2)})
    assert_pass_preserves(DeduplicateInitializersPass, model, X, modified=False)


def test_an_overridable_initializer_is_left_alone_in_both_roles() -> None:
    text = "g (float[2] x, float[2] W1) => (float[2] z) { y = Add(x, W1)  z = Mul(y, W2) }"
    model = build(text, {"W1": floats(1, 2), "W2": floats(1, 2)})
    overridden = {**X, "W1": floats(5, 6)}
    after = assert_pass_preserves(DeduplicateInitializersPass, model, X, overridden, modified=False)
    assert after.graph.initializers["W1"].is_graph_input()


IF = """g (bool c, float[2] x) => (float[2] y) {
    y = If (c) <
        then_branch = t () => (float[2] a) <float[2] W = {1, 2}> { a = Add(x, W) },
        else_branch = e () => (float[2] b) <float[2] W = %s> { b = Mul(x, W) } > }"""
BRANCHES = [{**X, "c": np.array(flag)} for flag in (True, False)]


def test_equal_weights_of_two_branches_become_one_in_the_graph_around_them() -> None:
    model = build(IF % "{1, 2}")
    after = assert_pass_preserves(DeduplicateInitializersPass, model, *BRANCHES)
    (weight,) = after.graph.initializers.values()
    users = [node for node in after.graph.all_nodes() if node.op_type in ("Add", "Mul")]
    assert [node.inputs[1] is weight for node in users] == [True, True]
    assert all(not inner.initializers for inner in after.graph.subgraphs())


def test_different_weights_of_the_same_name_in_two_branches_stay() -> None:
    assert_pass_preserves(
        DeduplicateInitializersPass, build(IF % "{1, 3}"), *BRANCHES, modified=False
    )


def test_a_weight_moved_out_of_a_branch_takes_a_free_name() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        W_2 = Neg(x)
        z = If (c) <
            then_branch = t () => (float[2] a) <float[2] V = {1, 2}> { a = Add(x, V) },
            else_branch = e () => (float[2] b) <float[2] W = {1, 2}> { b = Mul(x, W) } >
        u = If (c) <
            then_branch = t2 () => (float[2] a2) <float[2] V = {3, 4}> { a2 = Add(x, V) },
            else_branch = e2 () => (float[2] b2) { b2 = Mul(x, x) } >
        zu = Add(z, u)
        y = Add(zu, W_2) }"""
    after = assert_pass_preserves(DeduplicateInitializersPass, build(text), *BRANCHES)
    (moved,) = after.graph.initializers
    assert moved not in {"V", "W", "W_2"}


def test_a_weight_of_an_inner_graph_is_replaced_by_the_outer_one() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        z = Add(x, W1)
        y = If (c) <
            then_branch = t () => (float[2] a) <float[2] V = {1, 2}> { a = Add(z, V) },
            else_branch = e () => (float[2] b) { b = Neg(z) } > }"""
    after = assert_pass_preserves(
        DeduplicateInitializersPass, build(text, {"W1": floats(1, 2)}), *BRANCHES
    )
    assert list(after.graph.initializers) == ["W1"]
    assert stored_bytes(after) == 8


def test_a_branch_whose_output_is_the_weight_keeps_it() -> None:
    text = """g (bool c, float[2] x) => (float[2] y) {
        y = If (c) <
            then_branch = t () => (float[2] V) <float[2] V = {1, 2}> { unused = Neg(x) },
            else_branch = e () => (float[2] b) <float[2] W = {1, 2}> { b = Mul(x, W) } > }"""
    pass_ = DeduplicateInitializersPass()
    assert pass_(build(text)).modified is False
    assert [skip.value for skip in pass_.skipped] == ["V"]


def test_a_function_does_not_see_the_initializers_of_the_main_graph() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (bool c, float[2] x) => (float[2] z) { y = d.f(c, x)  z = Mul(y, W1) }
        <domain: "d", opset_import: ["" : 20]> f (c, x) => (y) {
            y = If (c) <
                then_branch = t () => (float[2] a) <float[2] V = {1, 2}> { a = Add(x, V) },
                else_branch = e () => (float[2] b) <float[2] W = {1, 2}> { b = Sub(x, W) } > }"""
    model = build(text, {"W1": floats(1, 2)})
    assert_pass_preserves(DeduplicateInitializersPass, model, modified=False)


def test_branches_inside_a_branch_of_a_function_share_in_that_branch() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (bool c, float[2] x) => (float[2] y) { y = d.f(c, x) }
        <domain: "d", opset_import: ["" : 20]> f (c, x) => (y) {
            y = If (c) <
                then_branch = t () => (float[2] a) {
                    a = If (c) <
                        then_branch = u () => (float[2] d) <float[2] V = {1, 2}> { d = Add(x, V) },
                        else_branch = v () => (float[2] e) <float[2] W = {1, 2}> { e = Sub(x, W) }
                    > },
                else_branch = e () => (float[2] b) <float[2] W = {1, 2}> { b = Sub(x, W) } > }"""
    after = assert_pass_preserves(DeduplicateInitializersPass, build(text))
    (function,) = after.functions.values()
    counts = {graph.name: len(graph.initializers) for graph in function.subgraphs()}
    assert counts == {"t": 1, "u": 0, "v": 0, "e": 1}


def test_packed_query_key_value_repeated_per_layer_is_stored_once() -> None:
    rng = np.random.default_rng(0)
    packed, bias = (rng.standard_normal(s).astype(np.float32) for s in ((8, 24), (24,)))
    lines, weights, source = [], {}, "x"
    for layer in range(3):
        weights[f"w{layer}"], weights[f"b{layer}"] = packed.copy(), bias.copy()
        lines.append(
            f"a{layer} = com.microsoft.Attention <num_heads = 2> ({source}, w{layer}, b{layer})"
        )
        source = f"a{layer}"
    text = f"""<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
        g (float[1,4,8] x) => (float[1,4,8] y) {{ {" ".join(lines)} y = Neg({source}) }}"""
    feeds = {"x": rng.standard_normal((1, 4, 8)).astype(np.float32)}
    after = assert_pass_preserves(DeduplicateInitializersPass, build(text, weights), feeds)
    assert stored_bytes(after) == packed.nbytes + bias.nbytes


def test_matches_name_the_kept_copy_and_the_bytes_saved() -> None:
    pass_ = DeduplicateInitializersPass()
    pass_(build(TWO, {"W1": floats(1, 2), "W2": floats(1, 2)}))
    assert pass_.saved_bytes == 8
    assert [(m.value, m.detail) for m in pass_.matches] == [("W2", "replaced by equal 'W1'")]
