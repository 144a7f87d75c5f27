"""Packed products: captured ALBERT, random graphs, and when the last bits may differ."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.passes.pack_parallel_products import PackParallelProductsPass
from exporter.passes.recipes import run_recipe, share_recipe
from tests.passes.helpers import (
    Feeds,
    assert_pass_preserves,
    assert_same_bits,
    build,
    op_types,
    run,
)
from tests.passes.roll_graphs import attempt, loops

N = 8
Q, K, V, BIAS_ROWS = np.random.default_rng(3).standard_normal((4, N, N)).astype(np.float32)
X = np.random.default_rng(4).standard_normal((2, 5, N)).astype(np.float32)
TRIO = "q = MatMul(x, A)  k = MatMul(x, B)  v = MatMul(x, C)"


@pytest.mark.parametrize(("depth", "width"), [(768, 65), (768, 256), (128, 8), (64, 64)])
def test_wide_or_shallow_products_keep_their_bits_without_prepacking(
    depth: int, width: int
) -> None:
    model, feeds = deep(depth, width)
    assert_pass_preserves(PackParallelProductsPass, model, feeds)


@pytest.mark.parametrize("width", [20, 64])
def test_deep_narrow_products_keep_them_with_it_and_else_all_but_the_last(width: int) -> None:
    model, feeds = deep(768, width)
    after = assert_pass_preserves(PackParallelProductsPass, model, feeds, as_written=False)
    # onnxruntime then sums narrow products in longer chunks than wide ones.
    for one, other in zip(run(after, feeds), run(model, feeds), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6 * np.abs(other).max())


def deep(depth: int, width: int) -> tuple[ir.Model, Feeds]:
    rng = np.random.default_rng(depth)
    weights = rng.standard_normal((3, depth, width)).astype(np.float32)
    outputs = ", ".join(f"float[5,{width}] {name}" for name in "qkv")
    text = f"g (float[5,{depth}] x) => ({outputs}) {{ {TRIO} }}"
    model = build(text, dict(zip("ABC", weights, strict=True)))
    return model, {"x": rng.standard_normal((5, depth)).astype(np.float32)}


@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16])
def test_other_floats_keep_their_type(dtype: ir.DataType) -> None:
    name = {"FLOAT16": "float16", "DOUBLE": "double", "BFLOAT16": "bfloat16"}[dtype.name]
    text = f"g (float[2,5,8] x) => (float[2,5,8] q, float[2,5,8] k, float[2,5,8] v) {{ {TRIO} }}"
    text = text.replace("float[", f"{name}[")
    weights = {
        key: ir.Tensor(array.astype(dtype.numpy()), dtype=dtype)
        for key, array in zip("ABC", (Q, K, V), strict=True)
    }
    feeds = [] if name == "bfloat16" else [{"x": X.astype(dtype.numpy())}]
    after = assert_pass_preserves(PackParallelProductsPass, build(text, weights), *feeds)
    tensor = after.graph.initializers["A_packed"].const_value
    assert tensor is not None and tensor.dtype == dtype


ALBERT_CASES = {
    "one group": ((0, 0, 0, 0), [4]),
    "two groups": ((0, 0, 1, 1), [2, 2]),
    "two alternating": ((0, 1, 0, 1), [2]),
}


@pytest.mark.parametrize("case", ALBERT_CASES)
@pytest.mark.parametrize("zero_biases", [False, True])
def test_captured_albert_multiplies_once_for_query_key_and_value_and_rolls_as_before(
    case: str, zero_biases: bool
) -> None:
    pytest.importorskip("transformers")
    from tests.passes.test_roll_captured import ALBERT_INPUTS, SIZES, albert, feeds

    order, blocks = ALBERT_CASES[case]
    model = albert(order)
    if zero_biases:  # as in a model before its training
        for name, value in model.graph.initializers.items():
            if name.endswith(".bias") and value.const_value is not None:
                value.const_value = ir.Tensor(np.zeros_like(value.const_value.numpy()))
        run_recipe(model, share_recipe())
    cases = [feeds(ALBERT_INPUTS, *size) for size in SIZES]
    after = assert_pass_preserves(PackParallelProductsPass, model, *cases)
    groups = len(set(order))
    saved = 1 + (not zero_biases)
    assert len(model.graph.initializers) - len(after.graph.initializers) == 2 * groups * saved
    splits = [node for node in after.graph if node.op_type == "Split"]
    assert len(splits) == len(order)
    assert len(op_types(model)) - len(op_types(after)) == len(order) * (2 * saved - 1)
    rolled, runs, skipped = attempt(after)
    assert ([run_.blocks for run_ in runs], skipped) == (blocks, [])
    assert_same_bits(run(rolled, cases[-1]), run(model, cases[-1]))
    for loop in loops(rolled):
        inside = [node.op_type for node in loop.attributes["body"].as_graph()]
        assert inside.count("Split") * blocks[0] * len(blocks) == len(order)


@st.composite
def graphs(draw: st.DrawFn) -> ir.Model:
    """Layers that multiply with a few shared weights, most of them with the same ones."""
    matrices, vectors = ["W0", "W1", "W2"], ["b0", "b1", "b2"]
    weights = dict(zip(matrices, (Q, K, V), strict=True)) | dict(
        zip(vectors, BIAS_ROWS, strict=False)
    )
    habit, biased = draw(st.sampled_from([2, 3])), draw(st.booleans())
    differs = st.integers(0, 23).map(lambda number: number == 23)
    values, ends = ["x"], ["x"]
    lines: list[str] = []

    def add(line: str) -> str:
        values.append(f"v{len(lines)}")
        lines.append(f"{values[-1]} = {line}")
        return values[-1]

    for _ in range(draw(st.integers(1, 4))):
        source = values[-1]
        pick = st.lists(st.sampled_from(matrices), min_size=1, max_size=3)
        for weight in draw(pick) if draw(differs) else matrices[:habit]:
            product = add(f"MatMul({source}, {weight})")
            bias = draw(st.sampled_from(vectors)) if draw(differs) else weight.replace("W", "b")
            ends.append(add(f"Add({product}, {bias})") if biased is not draw(differs) else product)
        ends.append(add(f"Tanh({draw(st.sampled_from(values if draw(differs) else ends))})"))
    if draw(differs):
        lines.append(f"table = Neg({draw(st.sampled_from(matrices + vectors))})")
    results_of = values if draw(differs) else ends
    outputs = draw(st.lists(st.sampled_from(results_of[1:]), min_size=1, max_size=4, unique=True))
    results = ", ".join(f"float[2,5,8] {name}" for name in outputs)
    return build(f"g (float[2,5,8] x) => ({results}) {{ {' '.join(lines)} }}", weights)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(graphs())
def test_random_graphs_keep_their_outputs_bit_for_bit_and_store_no_more(model: ir.Model) -> None:
    feeds: Feeds = {"x": X / 4}
    assert_pass_preserves(PackParallelProductsPass, model, feeds, modified=None)
