from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from exporter.errors import PassError
from exporter.passes.unshare_initializers import UnshareInitializersPass
from tests.passes.helpers import assert_pass_preserves, build, op_types, run, stored_bytes

RNG = np.random.default_rng(3)
W = RNG.standard_normal((4, 4)).astype(np.float32)
X = {"x": RNG.standard_normal((2, 4)).astype(np.float32)}
TWICE = "g (float[2,4] x) => (float[2,4] z) { y = MatMul(x, W)  z = MatMul(y, W) }"


def equal_copies(**arguments: object) -> Callable[[], UnshareInitializersPass]:
    return lambda: UnshareInitializersPass(perturb=False, **arguments)  # type: ignore[arg-type]


def weights_of(model: ir.Model) -> dict[str, np.ndarray]:
    return {name: t.numpy() for name, t in model.graph.initializers.tensor_items()}


def test_every_use_after_the_first_gets_its_own_copy_with_equal_outputs() -> None:
    after = assert_pass_preserves(equal_copies(), build(TWICE, {"W": W}), X, may_grow=True)
    assert stored_bytes(after) == 2 * W.nbytes
    first, second = (node.inputs[1] for node in after.graph)
    assert first is after.graph.initializers["W"] and second is not first


def test_copies_differ_from_each_other_with_the_statistics_of_the_weight() -> None:
    big = RNG.standard_normal((64, 64)).astype(np.float32) * 0.02
    text = """g (float[2,64] x) => (float[2,64] w) {
        y = MatMul(x, W)  z = MatMul(y, W)  w = MatMul(z, W) }"""
    model = build(text, {"W": big})
    UnshareInitializersPass()(model)
    copies = list(weights_of(model).values())
    assert len(copies) == 3
    for one, other in itertools.combinations(copies, 2):
        assert (one != other).mean() > 0.99
    for copy in copies[1:]:
        assert copy.dtype == np.float32
        assert np.std(copy) == pytest.approx(np.std(big), rel=0.02)
        assert np.std(copy - big) == pytest.approx(0.1 * np.std(big), rel=0.05)


def test_the_seed_decides_the_values() -> None:
    def second(seed: int) -> bytes:
        model = build(TWICE, {"W": W})
        UnshareInitializersPass(seed=seed)(model)
        return weights_of(model)["W_use_2"].tobytes()

    assert second(1) == second(1) != second(2)


def test_a_weight_of_equal_elements_still_gets_different_copies() -> None:
    model = build(TWICE, {"W": np.ones((4, 4), np.float32)})
    UnshareInitializersPass()(model)
    copy = weights_of(model)["W_use_2"]
    assert len(np.unique(copy)) == 16
    assert np.abs(copy - 1).max() < 0.02


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT16, ir.DataType.BFLOAT16])
def test_half_types_keep_their_type(dtype: ir.DataType) -> None:
    text = """g (float[2,4] x) => (float[2,4] y, float[2,4] z) {
        a = Cast<to=1>(W) b = Cast<to=1>(W) y = MatMul(x, a)  z = MatMul(x, b) }"""
    model = build(text, {"W": ir.Tensor(W.astype(dtype.numpy()), dtype=dtype)})
    UnshareInitializersPass()(model)
    one, other = model.graph.initializers.tensors()
    assert one.dtype == other.dtype == dtype
    assert (one.numpy() != other.numpy()).mean() > 0.8
    y, z = run(model, X)
    assert not np.array_equal(y, z)


def test_a_view_with_several_uses_is_repeated_for_each() -> None:
    text = """g (float[2,4] x) => (float[2,4] u) {
        T = Transpose<perm = [1, 0]>(W)  I = Identity(T)
        y = MatMul(x, I)  z = MatMul(y, I)  u = MatMul(z, T) }"""
    after = assert_pass_preserves(equal_copies(), build(text, {"W": W}), X, may_grow=True)
    assert stored_bytes(after) == 3 * W.nbytes
    assert op_types(after).count("Transpose") == 3
    for weight in after.graph.initializers.values():
        ((view, _),) = weight.uses()
        assert len(view.outputs[0].uses()) == 1


def test_a_view_of_its_own_per_use_is_kept_as_it_is() -> None:
    text = """g (float[2,4] x) => (float[2,4] z) {
        A = Transpose<perm = [1, 0]>(W)  y = MatMul(x, A)
        B = Transpose<perm = [1, 0]>(W)  z = MatMul(y, B) }"""
    after = assert_pass_preserves(equal_copies(), build(text, {"W": W}), X, may_grow=True)
    assert op_types(after) == ["Transpose", "MatMul"] * 2
    assert stored_bytes(after) == 2 * W.nbytes


def test_a_lookup_and_an_output_layer_over_one_table_count_as_two_uses() -> None:
    text = """g (int64[3] i) => (float[3,4] y) {
        e = Gather(W, i)  T = Transpose(W)  y = MatMul(e, T) }"""
    feeds = {"i": np.array([0, 3, 1])}
    after = assert_pass_preserves(equal_copies(), build(text, {"W": W}), feeds, may_grow=True)
    assert stored_bytes(after) == 2 * W.nbytes


@pytest.mark.parametrize(
    "value",
    [np.array(2, np.float32), np.full((1, 1), 2, np.float32), np.full(4, 2, np.int32)],
    ids=["scalar", "single element", "integers"],
)
def test_what_is_no_weight_is_left_alone(value: np.ndarray) -> None:
    kind = "int32" if value.dtype == np.int32 else "float"
    text = f"g ({kind}[2,4] x) => ({kind}[2,4] z) {{ y = Mul(x, C)  z = Mul(y, C) }}"
    feeds = {"x": np.ones((2, 4), value.dtype)}
    assert_pass_preserves(equal_copies(), build(text, {"C": value}), feeds, modified=False)


def test_only_the_named_weights_are_unshared() -> None:
    text = """g (float[2,4] x) => (float[2,4] u) {
        y = MatMul(x, W)  z = MatMul(y, W)  v = Add(z, b)  u = Add(v, b) }"""
    model = build(text, {"W": W, "b": W[0]})
    after = assert_pass_preserves(equal_copies(names={"b"}), model, X, may_grow=True)
    assert sorted(after.graph.initializers) == ["W", "b", "b_use_2"]


def test_copies_are_computed_only_when_read() -> None:
    model = build(TWICE, {"W": W})
    UnshareInitializersPass()(model)
    copy = model.graph.initializers["W_use_2"].const_value
    assert isinstance(copy, ir.LazyTensor) and not copy.cache


def test_uses_in_a_branch_get_copies_that_they_can_see() -> None:
    text = """g (bool c, float[2,4] x) => (float[2,4] y) {
        z = MatMul(x, W)
        y = If (c) <
            then_branch = t () => (float[2,4] a) { a = MatMul(z, W) },
            else_branch = e () => (float[2,4] b) { T = Transpose(W)  b = MatMul(z, T) } > }"""
    feeds = [{**X, "c": np.array(flag)} for flag in (True, False)]
    after = assert_pass_preserves(equal_copies(), build(text, {"W": W}), *feeds, may_grow=True)
    assert stored_bytes(after) == 3 * W.nbytes


def test_an_unknown_name_and_a_named_integer_tensor_are_refused() -> None:
    text = "g (int32[4] x) => (int32[4] z) { y = Mul(x, C)  z = Mul(y, C) }"
    model = build(text, {"C": np.full(4, 2, np.int32)})
    with pytest.raises(PassError, match="'D': no initializer"):
        UnshareInitializersPass(names=["C", "D"])(model)
    with pytest.raises(PassError, match="'C' of type INT32"):
        UnshareInitializersPass(names=["C"])(model)
    feeds = {"x": np.arange(4, dtype=np.int32)}
    assert_pass_preserves(equal_copies(names=["C"]), model, feeds, may_grow=True)
