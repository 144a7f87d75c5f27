from __future__ import annotations

import numpy as np
import pytest

from exporter.passes.merge_transposed_twins import MergeTransposedTwinsPass
from tests.passes.helpers import assert_pass_preserves, build, op_types, stored_bytes

RNG = np.random.default_rng(5)
A = RNG.standard_normal((12, 8)).astype(np.float32)
AT = np.ascontiguousarray(A.T)
IDS = {"i": np.array([[0, 11, 3]])}
TIED = "g (int64[1,3] i) => (float[1,3,12] y) { e = Gather(A, i)  y = MatMul(e, B) }"


def test_a_table_and_its_transpose_are_stored_once_as_the_lookup_needs_it() -> None:
    for names in ("AB", "BA"):  # whichever comes first in the file
        weights = {name: {"A": A, "B": AT}[name] for name in names}
        after = assert_pass_preserves(MergeTransposedTwinsPass, build(TIED, weights), IDS)
        assert stored_bytes(after) == A.nbytes
        assert op_types(after) == ["Transpose", "Gather", "MatMul"]
        assert after.graph.node(1).inputs[0] is after.graph.initializers["A"]


@pytest.mark.parametrize(
    "twin",
    [np.nextafter(AT, np.float32(9)), AT.astype(np.float64), np.ascontiguousarray(A[:, ::-1].T)],
    ids=["one ulp", "another type", "another order"],
)
def test_look_alikes_stay(twin: np.ndarray) -> None:
    text = TIED.replace("MatMul(e, B)", "MatMul(e, C)").replace("{ e", "{ C = Cast<to=1>(B)  e")
    model = build(text, {"A": A, "B": twin})
    assert_pass_preserves(MergeTransposedTwinsPass, model, IDS, modified=False)


def test_twelve_users_share_one_transpose_and_an_existing_one_serves() -> None:
    heads = "  ".join(f"y{i} = MatMul(e, B)" for i in range(12))
    total = "  ".join(f"s{i + 1} = Add(s{i}, y{i})" for i in range(12))
    text = f"""g (int64[1,3] i) => (float[1,3,12] s12) {{
        e = Gather(A, i)  {heads}  T = Transpose(A)  s0 = MatMul(e, T)  {total} }}"""
    after = assert_pass_preserves(MergeTransposedTwinsPass, build(text, {"A": A, "B": AT}), IDS)
    assert op_types(after).count("Transpose") == 1
    assert stored_bytes(after) == A.nbytes


def test_the_transpose_of_the_twin_is_the_kept_one_itself() -> None:
    text = """g (int64[1,3] i) => (float[1,3,12] y, float[1,3,8] z) {
        e = Gather(A, i)  y = MatMul(e, B)  T = Transpose(B)  z = MatMul(y, T) }"""
    after = assert_pass_preserves(MergeTransposedTwinsPass, build(text, {"A": A, "B": AT}), IDS)
    assert after.graph.node(3).inputs[1] is after.graph.initializers["A"]


def test_outputs_and_inputs_keep_their_own_tensor() -> None:
    outputs = "g () => (float[12,8] A, float[8,12] B) { }"
    assert_pass_preserves(
        MergeTransposedTwinsPass, build(outputs, {"A": A, "B": AT}), modified=False
    )
    inputs = TIED.replace("i) =>", "i, float[8,12] B) =>")
    assert_pass_preserves(
        MergeTransposedTwinsPass, build(inputs, {"A": A, "B": AT}), IDS, modified=False
    )


def test_a_twin_smaller_than_a_node_stays() -> None:
    small = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = "g (float[2,3] x) => (float[2,2] y) { a = Add(x, S)  y = MatMul(a, T) }"
    model = build(text, {"S": small, "T": np.ascontiguousarray(small.T)})
    assert_pass_preserves(MergeTransposedTwinsPass, model, {"x": small}, modified=False)


def test_vectors_and_symmetric_matrices_are_no_twins() -> None:
    text = """g (float[40,40] x) => (float[40,40] y) {
        a = Add(x, R)  b = Add(a, C)  d = MatMul(b, S)  y = MatMul(d, U) }"""
    row = RNG.standard_normal((1, 40)).astype(np.float32)
    eye = np.eye(40, dtype=np.float32)
    model = build(text, {"R": row, "C": np.ascontiguousarray(row.T), "S": eye, "U": eye.copy()})
    assert_pass_preserves(MergeTransposedTwinsPass, model, {"x": eye}, modified=False)


def test_a_twin_in_a_branch_is_replaced_by_the_outer_one() -> None:
    text = """g (bool c, float[3,8] x) => (float[3,12] y) {
        z = Gemm<transB = 1>(x, A)
        y = If (c) <
            then_branch = t () => (float[3,12] p) { p = MatMul(x, B) },
            else_branch = e () => (float[3,12] q) { q = Neg(z) } > }"""
    model = build(text, {"A": A, "B": AT})
    feeds = [
        {"x": RNG.standard_normal((3, 8)).astype(np.float32), "c": np.array(f)}
        for f in (1 > 0, 1 < 0)
    ]
    inner = next(graph for graph in model.graph.subgraphs())
    moved = model.graph.initializers.pop("B")
    inner.initializers.add(moved)
    after = assert_pass_preserves(MergeTransposedTwinsPass, model, *feeds)
    assert list(after.graph.initializers) == ["A"]
    assert all(not graph.initializers for graph in after.graph.subgraphs())


def test_twins_in_two_branches_cannot_see_each_other() -> None:
    text = """g (bool c, float[3,8] x) => (float[3,12] y) {
        y = If (c) <
            then_branch = t () => (float[3,12] p) { p = MatMul(x, B) },
            else_branch = e () => (float[3,12] q) { q = Gemm<transB = 1>(x, A) } > }"""
    model = build(text, {"A": A, "B": AT})
    for inner, name in zip(model.graph.subgraphs(), "BA", strict=True):
        inner.initializers.add(model.graph.initializers.pop(name))
    feeds = [
        {"x": RNG.standard_normal((3, 8)).astype(np.float32), "c": np.array(flag)}
        for flag in (True, False)
    ]
    assert_pass_preserves(MergeTransposedTwinsPass, model, *feeds, modified=False)
