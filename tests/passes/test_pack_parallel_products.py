from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.pack_parallel_products import PackParallelProductsPass
from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from exporter.precision import Keep
from tests.passes.helpers import (
    assert_pass_preserves,
    build,
    op_types,
    stored_bytes,
)
from tests.passes.roll_graphs import attempt, loops

N = 8
RNG = np.random.default_rng(3)
Q, K, V, Z = RNG.standard_normal((4, N, N)).astype(np.float32)
BIASES = dict(zip(("bq", "bk", "bv"), RNG.standard_normal((3, N)).astype(np.float32), strict=True))
WEIGHTS = {"Wq": Q, "Wk": K, "Wv": V}
X = {"x": RNG.standard_normal((2, 5, N)).astype(np.float32)}
RESULTS = "float[2,5,8] q, float[2,5,8] k, float[2,5,8] v"
PRODUCTS = "q = MatMul(x, Wq)  k = MatMul(x, Wk)  v = MatMul(x, Wv)"
BIASED = """a = MatMul(x, Wq)  q = Add(a, bq)
    b = MatMul(x, Wk)  k = Add(bk, b)  c = MatMul(x, Wv)  v = Add(c, bv)"""


def graph(body: str, outputs: str = RESULTS, *, inputs: str = "", opset: int = 20) -> str:
    return f"""<ir_version: 8, opset_import: ["" : {opset}]>
        g (float[2,5,8] x{inputs}) => ({outputs}) {{ {body} }}"""


def pack(model: ir.Model) -> PackParallelProductsPass:
    """Pack a copy; what was done and skipped is known to the pass."""
    packer = PackParallelProductsPass()
    packer(ir.from_proto(ir.to_proto(model)))
    return packer


def reasons(model: ir.Model) -> dict[str, str]:
    return {skip.value: skip.reason for skip in pack(model).skipped}


def initializer(model: ir.Model, name: str) -> np.ndarray:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def test_three_products_become_one_and_a_split() -> None:
    model = build(graph(PRODUCTS), WEIGHTS)
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    assert op_types(after) == ["MatMul", "Split"]
    assert list(after.graph.initializers) == ["Wq_packed"]
    np.testing.assert_array_equal(
        initializer(after, "Wq_packed"), np.concatenate([Q, K, V], axis=1)
    )
    assert stored_bytes(after) == stored_bytes(model)
    packer = pack(model)
    assert [(match.value, match.saved_bytes) for match in packer.matches] == [("Wq", 0)]
    assert "Wk, Wv into 'Wq_packed', in 1 products" in packer.matches[0].detail
    assert packer.skipped == []


@pytest.mark.parametrize("pattern", ["Wk", "k", "W[k]"])
def test_a_weight_that_is_to_be_kept_stays_apart(pattern: str) -> None:
    model = build(graph(PRODUCTS), WEIGHTS)
    after = assert_pass_preserves(lambda: PackParallelProductsPass([Keep(pattern)]), model, X)
    assert sorted(after.graph.initializers) == ["Wk", "Wq_packed"]
    assert op_types(after).count("MatMul") == 2
    packer = PackParallelProductsPass([Keep(pattern)])
    packer(model)
    assert [(skip.value, skip.reason) for skip in packer.skipped] == [
        ("Wk", f"kept: its name matches {pattern!r}")
    ]


def test_biases_are_packed_too_on_either_side_of_the_add() -> None:
    model = build(graph(BIASED), WEIGHTS | BIASES)
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    assert op_types(after) == ["MatMul", "Add", "Split"]
    assert sorted(after.graph.initializers) == ["Wq_packed", "bq_packed"]
    np.testing.assert_array_equal(
        initializer(after, "bq_packed"), np.concatenate(list(BIASES.values()))
    )
    assert stored_bytes(after) == stored_bytes(model)


LAYER = """a{i} = MatMul(x{p}, Wq)  q{i} = Add(a{i}, bq)  b{i} = MatMul(x{p}, Wk)
    k{i} = Add(b{i}, bk)  c{i} = MatMul(x{p}, Wv)  v{i} = Add(c{i}, bv)
    m{i} = Mul(q{i}, k{i})  s{i} = Add(m{i}, v{i})  x{i} = Tanh(s{i})"""


def layers(count: int, layer: str = LAYER, **weights: np.ndarray) -> ir.Model:
    body = "x0 = Identity(x) " + " ".join(layer.format(i=i, p=i - 1) for i in range(1, count + 1))
    return build(graph(body, f"float[2,5,8] x{count}"), WEIGHTS | BIASES | weights)


def test_shared_layers_share_one_packed_weight_and_still_roll() -> None:
    model = layers(3)
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    products = [node for node in after.graph if node.op_type == "MatMul"]
    assert len(products) == 3
    assert {node.inputs[1] for node in products} == {after.graph.initializers["Wq_packed"]}
    assert sorted(after.graph.initializers) == ["Wq_packed", "bq_packed"]
    assert stored_bytes(after) == stored_bytes(model)
    rolled, (run_,), skipped = attempt(after)
    assert (run_.blocks, skipped) == (3, [])
    body = loops(rolled)[0].attributes["body"].as_graph()
    assert [node.op_type for node in body].count("MatMul") == 1
    assert_pass_preserves(RollRepeatedBlocksPass, after, X, may_grow=True)


def test_the_order_of_the_products_plays_no_part() -> None:
    body = """q = MatMul(x, Wq)  k = MatMul(x, Wk)  y = Mul(q, k)
        l = MatMul(y, Wk)  z = Neg(l)  r = MatMul(y, Wq)"""
    model = build(graph(body, "float[2,5,8] z, float[2,5,8] r, float[2,5,8] q"), {"Wq": Q, "Wk": K})
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    assert op_types(after) == ["MatMul", "Split", "Mul", "MatMul", "Split", "Neg"]
    assert len(after.graph.initializers) == 1


def test_layers_with_biases_of_their_own_get_a_packed_bias_each() -> None:
    body = """a = MatMul(x, Wq)  q = Add(a, b1)  b = MatMul(x, Wk)  k = Add(b, b2)  y = Mul(q, k)
        c = MatMul(y, Wq)  r = Add(c, b3)  d = MatMul(y, Wk)  l = Add(d, b4)"""
    model = build(
        graph(body, "float[2,5,8] r, float[2,5,8] l"),
        {"Wq": Q, "Wk": K} | {f"b{i}": Z[i] for i in range(1, 5)},
    )
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    assert sorted(after.graph.initializers) == ["Wq_packed", "b1_packed", "b3_packed"]
    assert op_types(after).count("Add") == 2


@pytest.mark.parametrize(
    ("biases", "extra"),
    [
        ({"bq": "zero", "bk": "zero", "bv": "zero"}, ""),
        ({"bk": "bq"}, ""),
        ({}, "w = Neg(bv)"),
        ({}, "w = MatMul(q, Wz)  t = Add(w, bv)"),
    ],
    ids=["one zero bias for all", "one for two", "used by another node", "another product's too"],
)
def test_a_bias_used_elsewhere_stays_after_the_split(biases: dict[str, str], extra: str) -> None:
    body = BIASED
    for old, new in biases.items():
        body = body.replace(old, new)
    weights = WEIGHTS | BIASES | {"zero": np.zeros(N, np.float32), "Wz": Z}
    used = {name: array for name, array in weights.items() if name in body + extra}
    model = build(graph(f"{body} {extra}"), used)
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    assert op_types(after)[:5] == ["MatMul", "Split", "Add", "Add", "Add"]
    assert stored_bytes(after) == stored_bytes(model)
    assert "stored twice" in reasons(model)["a"]


def test_biases_in_another_order_elsewhere_stay() -> None:
    body = """a = MatMul(x, Wq)  q = Add(a, b1)  b = MatMul(x, Wk)  k = Add(b, b2)  y = Mul(q, k)
        c = MatMul(y, Wq)  r = Add(c, b2)  d = MatMul(y, Wk)  l = Add(d, b1)"""
    weights = {"Wq": Q, "Wk": K, "b1": Z[1], "b2": Z[2]}
    model = build(graph(body, "float[2,5,8] r, float[2,5,8] l"), weights)
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    assert op_types(after).count("Add") == 4
    assert sorted(after.graph.initializers) == ["Wq_packed", "b1", "b2"]


NOT_ADDED = {
    "a product without a bias": (BIASED.replace("v = Add(c, bv)", "v = Neg(c)"), RESULTS, ""),
    "a product with two users": (BIASED + " w = Neg(b)", RESULTS + ", float[2,5,8] w", ""),
    "a product that is an output": (BIASED, RESULTS + ", float[2,5,8] b", ""),
    "a bias that is an input": (BIASED, RESULTS, ", float[8] bk"),
    "a bias that is an output": (BIASED, RESULTS + ", float[8] bk", ""),
    "a bias of another rank": (BIASED.replace("bk,", "bk1,"), RESULTS, ""),
    "a scalar bias": (BIASED.replace("bk,", "bs,"), RESULTS, ""),
    "a computed bias": (BIASED.replace("bk,", "x,"), RESULTS, ""),
    "a difference": (BIASED.replace("Add(bk, b)", "Sub(b, bk)"), RESULTS, ""),
}


@pytest.mark.parametrize("case", NOT_ADDED)
def test_only_the_products_are_packed_where_not_all_have_such_a_bias(case: str) -> None:
    body, outputs, inputs = NOT_ADDED[case]
    weights = WEIGHTS | BIASES | {"bk1": BIASES["bk"][None], "bs": np.ones(1, np.float32)}
    used = {name: array for name, array in weights.items() if name in body}
    model = build(graph(body, outputs, inputs=inputs), used)
    feeds = X | ({"bk": 2 * BIASES["bk"]} if inputs else {})
    after = assert_pass_preserves(PackParallelProductsPass, model, feeds)
    assert op_types(after)[:2] == ["MatMul", "Split"]
    assert op_types(after).count("Add") == op_types(model).count("Add")
    assert "one user, an Add" in reasons(model)["a"]


MORE = RESULTS + ", float[2,5,8] t"
SKIPPED = {
    "an input": (PRODUCTS, RESULTS, "is an input"),
    "an output": (PRODUCTS, RESULTS + ", float[8,8] Wk", "is a graph output"),
    "a table": ("t = Gather(Wk, i)", RESULTS + ", float[1,8] t", "other uses: Gather"),
    "a left factor": ("t = MatMul(Wk, Wz)", RESULTS + ", float[8,8] t", "other uses: MatMul"),
    "other partners": ("t = MatMul(q, Wk)", MORE, "has no partner"),
    "twice with one value": ("t = MatMul(x, Wk)", MORE, "with one value twice"),
}


@pytest.mark.parametrize("case", SKIPPED)
def test_a_weight_needed_as_it_is_stays_and_the_others_are_packed(case: str) -> None:
    extra, outputs, reason = SKIPPED[case]
    body = extra if extra is PRODUCTS else f"{PRODUCTS} {extra}"
    weights = {**WEIGHTS, "Wz": Z, "i": np.array([1])}
    used = {name: array for name, array in weights.items() if f"{name})" in body}
    inputs, feeds = (", float[8,8] Wk", X | {"Wk": 2 * K}) if case == "an input" else ("", X)
    model = build(graph(body, outputs, inputs=inputs), used)
    after = assert_pass_preserves(PackParallelProductsPass, model, feeds)
    split = next(node for node in after.graph if node.op_type == "Split")
    assert [value.name for value in split.outputs] == ["q", "v"]
    assert "Wk" in after.graph.initializers
    assert reason in reasons(model)["Wk"]


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ("q = MatMul(x, Wq)  k = MatMul(q, Wk)  v = MatMul(k, Wv)", RESULTS),
        ("q = MatMul(x, Wq)  k = MatMul(x, Wq)", "float[2,5,8] q, float[2,5,8] k"),
        ("q = MatMul(x, Wq)  k = MatMul(x, T)", "float[2,5,8] q, float[2,5,8] k"),
        ("q = MatMul(x, Wq)  k = MatMul(x, y)  y = Neg(Wk)", None),
        ("q = MatMul(x, Wq)  k = Add(x, Wk1)", "float[2,5,8] q, float[2,5,8] k"),
        ("q = MatMul(I, J)  k = MatMul(I, L)", "int32[2,2] q, int32[2,2] k"),
    ],
    ids=["a chain", "one weight twice", "three dimensions", "computed", "an Add", "integers"],
)
def test_look_alikes_stay(body: str, outputs: str | None) -> None:
    if outputs is None:
        body = "y = Neg(Wk)  q = MatMul(x, Wq)  k = MatMul(x, y)"
        outputs = "float[2,5,8] q, float[2,5,8] k"
    ones = np.arange(4, dtype=np.int32).reshape(2, 2)
    weights = {**WEIGHTS, "T": np.stack([K, V]), "I": ones, "J": ones + 1, "L": ones + 2}
    weights["Wk1"] = K[:1]
    used = {n: a for n, a in weights.items() if f"{n})" in body or f"{n}," in body}
    model = build(graph(body, outputs), used)
    assert_pass_preserves(PackParallelProductsPass, model, X, modified=False)


@pytest.mark.parametrize("operator", ["MatMul", "Add"])
def test_operators_of_another_domain_are_others(operator: str) -> None:
    text = graph(BIASED).replace('"" : 20', '"" : 20, "other" : 1')
    model = build(text.replace(f"{operator}(", f"other.{operator}("), WEIGHTS | BIASES)
    assert_pass_preserves(PackParallelProductsPass, model, modified=operator == "Add")
    copy = ir.from_proto(ir.to_proto(model))
    PackParallelProductsPass()(copy)
    assert [node.domain for node in copy.graph if node.op_type == operator] == ["other"] * 3


def test_parts_of_other_widths_are_split_by_sizes_stored_once_for_all() -> None:
    body = """q = MatMul(x, Wq)  k = MatMul(x, Wk)  y = Neg(q)
        a = MatMul(y, Ua)  b = MatMul(y, Ub)"""
    outputs = "float[2,5,3] k, float[2,5,8] a, float[2,5,3] b"
    weights = {"Wq": Q, "Wk": K[:, :3].copy(), "Ua": V, "Ub": Z[:, :3].copy()}
    model = build(graph(body, outputs), weights)
    after = assert_pass_preserves(PackParallelProductsPass, model, X, may_grow=True)
    assert op_types(after).count("Split") == 2
    assert initializer(after, "Wq_widths").tolist() == [8, 3]
    assert stored_bytes(after) == stored_bytes(model) + 16
    assert [match.saved_bytes for match in pack(model).matches] == [-16, 0]


@pytest.mark.parametrize("opset", [13, 17, 18])
def test_each_opset_gets_the_split_it_knows(opset: int) -> None:
    model = build(graph(PRODUCTS, opset=opset), WEIGHTS)
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    split = after.graph.node(1)
    assert ("num_outputs" in split.attributes) is (opset >= 18)
    assert len(split.inputs) == 1
    uneven = {**WEIGHTS, "Wk": K[:, :3].copy()}
    text = graph(PRODUCTS, RESULTS.replace("8] k", "3] k"), opset=opset)
    assert_pass_preserves(PackParallelProductsPass, build(text, uneven), X, may_grow=True)


def test_a_weight_that_stands_alone_is_no_candidate_and_is_not_reported() -> None:
    body = "q = MatMul(x, Wq)  k = MatMul(q, Wk)  v = MatMul(k, Wv)"
    assert reasons(build(graph(body), WEIGHTS)) == {}


def test_an_older_opset_is_left_alone_with_the_reason() -> None:
    model = build(graph(PRODUCTS, opset=12), WEIGHTS)
    assert_pass_preserves(PackParallelProductsPass, model, X, modified=False)
    assert "opset 12" in reasons(model)["Wq"]


LOOPED = """x3 = Loop (M, , x) <
    body = b (int64 i, bool c, float[2,5,8] y) => (bool d, float[2,5,8] s) {
        d = Identity(c)  q = MatMul(y, Wq)  k = MatMul(y, Wk)  s = Mul(q, k) }>"""


def test_products_in_a_loop_body_are_packed_and_the_weight_stays_outside() -> None:
    model = build(graph(LOOPED, "float[2,5,8] x3"), {"M": np.array(3), "Wq": Q, "Wk": K})
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    assert sorted(after.graph.initializers) == ["M", "Wq_packed"]
    assert op_types(after) == ["Loop", "Identity", "MatMul", "Split", "Mul"]


def test_a_product_that_a_loop_body_returns_keeps_its_name() -> None:
    text = LOOPED.replace("s) {", "s, float[2,5,8] k) {").replace("x3 =", "x3, ks =")
    outputs = "float[2,5,8] x3, float[3,2,5,8] ks"
    model = build(graph(text, outputs), {"M": np.array(3), "Wq": Q, "Wk": K})
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    body = loops(after)[0].attributes["body"].as_graph()
    assert [value.name for value in body.outputs] == ["d", "s", "k"]


BRANCHED = """q = MatMul(x, Wq)  k = MatMul(x, Wk)
    z = If (c) <
        then_branch = t () => (float[2,5,8] a) { e = MatMul(x, Wk)  a = Neg(e) },
        else_branch = f () => (float[2,5,8] b) { b = Neg(x) } >"""


def test_a_weight_also_used_in_a_branch_without_its_partner_stays() -> None:
    outputs = "float[2,5,8] q, float[2,5,8] k, float[2,5,8] z"
    model = build(graph(BRANCHED, outputs, inputs=", bool c"), {"Wq": Q, "Wk": K})
    feeds = [X | {"c": np.array(flag)} for flag in (True, False)]
    assert_pass_preserves(PackParallelProductsPass, model, *feeds, modified=False)
    assert "has no partner" in reasons(model)["Wk"]


def test_a_product_added_to_its_bias_only_in_a_branch_keeps_its_add() -> None:
    body = """q = MatMul(x, Wq)  k = MatMul(x, Wk)  y = Add(q, bq)
        z = If (c) <
            then_branch = t () => (float[2,5,8] a) { a = Add(k, bk) },
            else_branch = f () => (float[2,5,8] b) { b = Neg(x) } >"""
    weights = {"Wq": Q, "Wk": K, "bq": BIASES["bq"], "bk": BIASES["bk"]}
    outputs = "float[2,5,8] y, float[2,5,8] z"
    model = build(graph(body, outputs, inputs=", bool c"), weights)
    feeds = [X | {"c": np.array(flag)} for flag in (True, False)]
    after = assert_pass_preserves(PackParallelProductsPass, model, *feeds)
    assert op_types(after) == ["MatMul", "Split", "Add", "If", "Add", "Neg"]


@pytest.mark.parametrize("moved", ["Wk", "bk"])
def test_initializers_of_different_graphs_are_not_packed_together(moved: str) -> None:
    text = LOOPED.replace("s = Mul(q, k)", "o = Add(q, bq)  l = Add(k, bk)  s = Mul(o, l)")
    weights = {"M": np.array(3), "Wq": Q, "Wk": K, "bq": BIASES["bq"], "bk": BIASES["bk"]}
    model = build(graph(text, "float[2,5,8] x3"), weights)
    body = loops(model)[0].attributes["body"].as_graph()
    body.initializers.add(model.graph.initializers.pop(moved))
    after = assert_pass_preserves(PackParallelProductsPass, model, X, modified=moved == "bk")
    assert op_types(after).count("Add") == 2
    packed = ["Identity", "MatMul", "Split", "Add", "Add", "Mul"]
    assert (op_types(after)[1:] == packed) is (moved == "bk")
    expected = {"Wk": ("Wq", "has no partner"), "bk": ("q", "in different graphs")}[moved]
    assert expected[1] in reasons(model)[expected[0]]


def test_graphs_inside_functions_are_left_alone() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20, "f" : 1]>
        g (float[2,8] x, bool c) => (float[2,8] y) { y = f.choose(x, c) }
        <domain: "f", opset_import: ["" : 20]>
        choose (x, c) => (y) { y = If (c) <
            then_branch = t () => (float[2,8] a) <float[8,8] W, float[8,8] U> {
                q = MatMul(x, W)  k = MatMul(x, U)  a = Mul(q, k) },
            else_branch = e () => (float[2,8] b) { b = Neg(x) } > }"""
    numbers = ", ".join(str(float(i)) for i in range(N * N))
    text = text.replace("float[8,8] W", f"float[8,8] W = {{{numbers}}}")
    text = text.replace("float[8,8] U", f"float[8,8] U = {{{numbers}}}")
    feeds = [{"x": X["x"][0, :2], "c": np.array(flag)} for flag in (True, False)]
    assert_pass_preserves(PackParallelProductsPass, build(text), *feeds, modified=False)


def test_names_that_are_taken_are_not_taken_again() -> None:
    body = PRODUCTS + " Wq_packed = Neg(x)  q_packed = Neg(Wq_packed)"
    outputs = RESULTS + ", float[2,5,8] q_packed"
    after = assert_pass_preserves(PackParallelProductsPass, build(graph(body, outputs), WEIGHTS), X)
    assert list(after.graph.initializers) == ["Wq_packed_2"]
    assert [value.name for value in after.graph.outputs] == ["q", "k", "v", "q_packed"]


def test_nodes_keep_name_and_metadata_of_the_first_they_replace() -> None:
    model = build(graph(BIASED), WEIGHTS | BIASES)
    for index, name in enumerate(["first product", "first sum"]):
        node = model.graph.node(index)
        node.name, node.doc_string = name, "about " + name
        node.metadata_props["scope"] = name
    model.graph.node(3).outputs[0].metadata_props["key"] = "k"
    after = assert_pass_preserves(PackParallelProductsPass, model, X)
    for index, name in enumerate(["first product", "first sum"]):
        node = after.graph.node(index)
        assert (node.name, node.doc_string) == (name, "about " + name)
        assert node.metadata_props == {"scope": name}
    assert after.graph.node(2).outputs[1].metadata_props == {"key": "k"}


def test_types_and_shapes_of_new_values_are_set() -> None:
    model = layers(2)
    for node in model.graph:
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
        node.outputs[0].shape = ir.Shape([2, 5, 8])
    PackParallelProductsPass()(model)
    for node in model.graph:
        width = 24 if node.outputs[0].name in ("a1_packed", "q1_packed") else None
        for value in node.outputs:
            assert value.dtype == ir.DataType.FLOAT
            assert value.shape is not None
            assert width is None or value.shape == ir.Shape([2, 5, width])
