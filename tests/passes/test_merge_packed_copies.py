from __future__ import annotations

import numpy as np
import pytest

from exporter.passes.merge_packed_copies import MergePackedCopiesPass
from tests.passes.helpers import assert_pass_preserves, build, op_types, stored_bytes

RNG = np.random.default_rng(11)
Q, K, V = RNG.standard_normal((3, 8, 8)).astype(np.float32)
X = {"x": RNG.standard_normal((2, 8)).astype(np.float32)}
TEXT = """g (float[2,8] x) => (float[2,24] y, float[2,8] q, float[2,8] k, float[2,8] v) {
    y = MatMul(x, P)  q = MatMul(x, Q)  k = MatMul(x, K)  v = MatMul(x, V) }"""
PACKED = np.concatenate([Q, K, V], axis=1)


def test_a_packed_copy_of_used_parts_is_computed_from_them() -> None:
    model = build(TEXT, {"P": PACKED, "Q": Q, "K": K, "V": V})
    after = assert_pass_preserves(MergePackedCopiesPass, model, X)
    assert op_types(after) == ["Concat", *["MatMul"] * 4]
    assert sorted(after.graph.initializers) == ["K", "Q", "V"]
    concat = after.graph.node(0)
    assert [value.name for value in concat.inputs if value is not None] == ["Q", "K", "V"]
    assert stored_bytes(after) == PACKED.nbytes


def test_packed_along_rows_and_from_one_tensor_twice() -> None:
    text = """g (float[2,8] x, float[2,16] z) => (float[2,8] y, float[2,8] q) {
        y = MatMul(z, P)  q = MatMul(x, Q) }"""
    model = build(text, {"P": np.concatenate([Q, Q]), "Q": Q})
    feeds = {**X, "z": RNG.standard_normal((2, 16)).astype(np.float32)}
    after = assert_pass_preserves(MergePackedCopiesPass, model, feeds)
    assert stored_bytes(after) == Q.nbytes


def test_packed_biases() -> None:
    text = "g (float[96] x) => (float[96] y, float[32] z) { y = Add(x, P)  z = Add(Q, K) }"
    q, k = RNG.standard_normal((2, 32)).astype(np.float32)
    model = build(text, {"P": np.concatenate([q, k, q]), "Q": q, "K": k})
    feeds = {"x": np.ones(96, np.float32)}
    assert stored_bytes(assert_pass_preserves(MergePackedCopiesPass, model, feeds)) == 256


@pytest.mark.parametrize(
    "packed",
    [np.concatenate([Q, K, V.T], axis=1), np.concatenate([Q, K, np.nextafter(V, 9)], axis=1)],
    ids=["transposed part", "one ulp"],
)
def test_look_alikes_stay(packed: np.ndarray) -> None:
    model = build(TEXT, {"P": packed.astype(np.float32), "Q": Q, "K": K, "V": V})
    assert_pass_preserves(MergePackedCopiesPass, model, X, modified=False)


def test_parts_without_a_user_are_no_reason_to_compute_the_packed_tensor() -> None:
    model = build(
        "g (float[2,8] x) => (float[2,24] y) { y = MatMul(x, P) }",
        {"P": PACKED, "Q": Q, "K": K, "V": V},
    )
    assert_pass_preserves(MergePackedCopiesPass, model, X, modified=False)


def test_packed_outputs_inputs_and_tiny_tensors_stay() -> None:
    weights = {"P": PACKED, "Q": Q, "K": K, "V": V}
    as_output = TEXT.replace("(float[2,24] y,", "(float[2,24] y, float[8,24] P,")
    as_input = TEXT.replace("(float[2,8] x)", "(float[2,8] x, float[8,8] K)")
    for text in (as_output, as_input):
        assert_pass_preserves(MergePackedCopiesPass, build(text, weights), X, modified=False)
    text = "g (float[4] x) => (float[4] y, float[2] z) { y = Add(x, P)  z = Neg(Q) }"
    tiny = {"P": np.ones(4, np.float32), "Q": np.ones(2, np.float32)}
    assert_pass_preserves(
        MergePackedCopiesPass, build(text, tiny), {"x": tiny["P"]}, modified=False
    )


def test_parts_that_only_a_branch_holds_are_out_of_sight() -> None:
    text = """g (bool c, float[2,8] x) => (float[2,24] y, float[2,8] z) {
        y = MatMul(x, P)
        z = If (c) <
            then_branch = t () => (float[2,8] a) {
                q = MatMul(x, Q)  k = MatMul(q, K)  a = MatMul(k, V) },
            else_branch = e () => (float[2,8] b) { b = Neg(x) } > }"""
    model = build(text, {"P": PACKED, "Q": Q, "K": K, "V": V})
    branch = next(iter(model.graph.subgraphs()))
    for name in "QKV":
        branch.initializers.add(model.graph.initializers.pop(name))
    feeds = [{**X, "c": np.array(flag)} for flag in (True, False)]
    assert_pass_preserves(MergePackedCopiesPass, model, *feeds, modified=False)
