from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from exporter.pipeline.variants import store_model
from exporter.precision import PRECISIONS, find_precision
from tests.inspection.helpers import matrix, reach
from tests.passes.helpers import build

SQUARE = matrix(8, 8)


def test_weights_that_are_initializers_are_reached() -> None:
    found = reach(
        build(
            "main (int64[2] i) => (float[2,8] y) {"
            " e = Gather(table, i) m = MatMul(e, w) y = Gemm(m, g, b) }",
            {"table": SQUARE, "w": matrix(8, 8, 1), "g": matrix(8, 8, 2), "b": SQUARE[0]},
        )
    )
    assert [(o.operator, o.weights, o.status) for o in found.operations] == [
        ("Gather", ("table",), "reached"),
        ("MatMul", ("w",), "reached"),
        ("Gemm", ("g",), "reached"),
    ]
    assert (found.weight_bytes, found.reached_bytes, found.missed) == (768, 768, ())


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("v = Identity(w)", "behind Identity"),
        ("v = Transpose <perm = [1, 0]> (w)", "behind Transpose"),
        ("i = Identity(w) j = Identity(i) v = Transpose(j)", "behind Identity, Transpose"),
        ("d = Cast <to = 11> (w) v = Cast <to = 1> (d)", "behind Cast"),
        ("f = Flatten <axis = 0> (w) v = Reshape(f, shape)", "behind Flatten, Reshape"),
        ("v = Concat <axis = 0> (half, half)", "behind Concat"),
    ],
)
def test_weights_behind_other_operators_are_missed(node: str, reason: str) -> None:
    weights = {"w": SQUARE, "half": matrix(4, 8, 1), "shape": np.array([8, 8])}
    found = reach(
        build(f"main (float[2,8] x) => (float[2,8] y) {{ {node} y = MatMul(x, v) }}", weights)
    )
    (operation,) = found.missed
    assert operation.reason == reason
    assert operation.hidden is (reason != "behind Concat")
    assert found.reached_bytes == 0
    assert found.weight_bytes == operation.weight_bytes == (256 if "w" in node else 128)


def test_a_weight_that_one_of_two_operations_hides_keeps_its_float_copy() -> None:
    found = reach(
        build(
            "main (float[2,8] x) => (float[2,8] y) {"
            " v = Identity(w) m = MatMul(x, w) n = MatMul(m, v) y = MatMul(n, u) }",
            {"w": SQUARE, "u": matrix(8, 8, 1)},
        )
    )
    assert [o.status for o in found.operations] == ["reached", "missed", "reached"]
    assert (found.reached_bytes, found.weight_bytes) == (256, 512)


def test_weights_in_constants_inputs_and_left_factors_are_missed() -> None:
    values = ", ".join(["1"] * 64)
    model = build(
        f"main (float[8,8] x) => (float[8,8] y) {{"
        f" c = Constant <value = float[8,8] {{{values}}}> ()"
        f" m = MatMul(x, c) n = MatMul(w, m) y = MatMul(n, open) }}",
        {"w": SQUARE, "open": matrix(8, 8, 1)},
    )
    model.graph.inputs.append(model.graph.initializers["open"])
    found = reach(model)
    assert [(o.reason, o.hidden) for o in found.operations] == [
        ("in a Constant node", True),
        ("the left factor of a product", False),
        ("a graph input, which callers may override", False),
    ]


def test_operations_in_bodies_are_missed_and_stacks_are_followed() -> None:
    model = build(
        """
        main (float[2,8] x) => (float[2,8] y) {
            y = Loop(three, , x) <body = layer
                (int64 i, bool go, float[2,8] a) => (bool on, float[2,8] d)
            {
                on = Identity(go)
                own = Gather(stack, i)
                b = MatMul(a, own)
                row = Gather(rows, i)
                second = Gather(pair, row)
                c = MatMul(b, second)
                d = MatMul(c, shared)
            }>
        }""",
        {
            "three": np.array(3),
            "stack": np.stack([matrix(8, 8, k) for k in range(3)]),
            "rows": np.array([0, 1, 0]),
            "pair": np.stack([matrix(8, 8, k) for k in range(2)]),
            "shared": SQUARE,
        },
    )
    found = reach(model)
    body = "in the body of a loop, a branch or a function"
    assert [(o.weights, o.reason, o.graph) for o in found.operations] == [
        (("stack",), f"behind Gather; {body}", "main/Loop.body"),
        (("pair",), f"behind Gather; {body}", "main/Loop.body"),
        (("shared",), body, "main/Loop.body"),
    ]
    assert not any(o.hidden for o in found.operations)
    assert found.weight_bytes == (3 + 2 + 1) * 256


def test_integers_behind_a_dequantization_and_integer_products_are_quantized() -> None:
    found = reach(
        build(
            "main (float[2,8] x, uint8[2,8] u) => (float[2,8] y, int32[2,8] z) {"
            " w = DequantizeLinear(q, scale) y = MatMul(x, w) z = MatMulInteger(u, q2) }",
            {
                "q": SQUARE.astype(np.int8),
                "q2": SQUARE.astype(np.uint8),
                "scale": np.array(0.1, np.float32),
            },
        )
    )
    assert [(o.operator, o.weights, o.status) for o in found.operations] == [
        ("MatMul", ("q",), "reduced"),
        ("MatMulInteger", ("q2",), "reduced"),
    ]
    assert (found.reduced_bytes, found.weight_bytes) == (128, 128)


@pytest.mark.parametrize("kind", [ir.DataType.FLOAT16, ir.DataType.BFLOAT16])
def test_floats_of_16_bits_count_as_reduced_and_other_floats_beside_them_do_not(
    kind: ir.DataType,
) -> None:
    halves = {
        name: ir.Tensor(matrix(8, 8, seed).astype(kind.numpy()), name=name)
        for seed, name in enumerate(("table", "w", "part"))
    }
    found = reach(
        build(
            "main (int64[2] i) => (float[2,8] y) {"
            " t = Gather(table, i) e = Cast <to = 1> (t) f = Cast <to = 1> (w) m = MatMul(e, f)"
            " p = Cast <to = 1> (part) c = Concat <axis = 1> (p, plain) n = MatMul(m, c)"
            " y = MatMul(n, tall) }",
            {**halves, "plain": SQUARE, "tall": matrix(16, 8)},
        )
    )
    assert [(o.weights, o.status) for o in found.operations] == [
        (("table",), "reduced"),
        (("w",), "reduced"),
        (("part", "plain"), "missed"),
        (("tall",), "reached"),
    ]
    assert found.reduced_bytes == 2 * 128
    assert found.weight_bytes == 3 * 128 + 256 + 512


def test_the_scales_of_a_table_of_integers_are_no_weights() -> None:
    scales = {
        "packed": np.zeros((50, 2, 16), np.uint8),
        "scales": matrix(50, 2).astype(np.float16),
        "points": np.zeros((50, 1), np.uint8),
    }
    text = (
        "main (int64[2] i, int64[2] j) => (uint8[2,2,16] a, float16[2,2] b, uint8[2,1] c,"
        " float[2,8] d, float16[2,2] e) {"
        " a = Gather(packed, i) b = Gather(scales, i) c = Gather(points, i)"
        " d = Gather(beside, i) e = Gather(scales, j) }"
    )
    found = reach(build(text, {**scales, "beside": matrix(50, 8)}))
    assert [(o.name, o.weights, o.status) for o in found.operations] == [
        ("a", ("packed",), "reduced"),
        ("d", ("beside",), "reached"),  # too many numbers to be scales
        ("e", ("scales",), "reduced"),  # looked up by other indices than the integers
    ]


@pytest.mark.parametrize("name", [precision.name for precision in PRECISIONS if precision.rules])
def test_what_a_precision_stores_is_what_is_seen_in_the_file(name: str) -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 21]>'
        " main (int64[2] i) => (float[2,70] y, float[2,64] z)"
        " { e = Gather(table, i) t = Transpose(table) m = MatMul(e, w) y = MatMul(m, t)"
        " p = Gather(places, i) z = MatMul(p, v) }"
    )
    weights = {
        "table": matrix(70, 64),
        "w": matrix(64, 64, 1),
        "places": matrix(80, 64, 2),
        "v": matrix(64, 64, 3),
    }
    stored = store_model(build(text, weights), find_precision(name))
    assert stored.coverage is not None
    found = reach(stored.model)
    assert len(found.operations) == stored.coverage.operations_total == 5
    assert found.count("reduced") == stored.coverage.operations_reached == 5
    assert found.reduced_bytes == found.weight_bytes


def test_products_of_activations_shape_lookups_and_vectors_are_no_weight_operations() -> None:
    found = reach(
        build(
            "main (float[8,8] x, int64[2] i)"
            " => (float[8,8] y, int64[2,2] g, float[8] v, float[8,8] k) {"
            " y = MatMul(x, x) g = Gather(sizes, i) v = MatMul(x, bias)"
            " c = MatMul(a, b) k = Add(x, c) }",
            {"sizes": np.arange(8).reshape(4, 2), "bias": SQUARE[0], "a": SQUARE, "b": SQUARE},
        )
    )
    assert found.operations == ()
    assert found.weight_bytes == 0


def test_every_table_of_a_fused_embedding_is_an_operation() -> None:
    found = reach(
        build(
            '<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>'
            "main (int32[1,2] i) => (float[1,2,8] y) {"
            " y, m = com.microsoft.EmbedLayerNormalization(i, , words, places, , g, g) }",
            {"words": SQUARE, "places": matrix(4, 8), "g": SQUARE[0]},
        )
    )
    assert [(o.operator, o.weights) for o in found.operations] == [
        ("com.microsoft.EmbedLayerNormalization", ("words",)),
        ("com.microsoft.EmbedLayerNormalization", ("places",)),
    ]


def test_the_count_is_what_onnxruntimes_quantizer_reaches(tmp_path: Path) -> None:
    model = build(
        "main (float[2,8] x) => (float[2,8] y) {"
        " i = Identity(w) t = Transpose <perm = [1, 0]> (u)"
        " a = MatMul(x, w) b = MatMul(a, i) c = MatMul(b, t) d = MatMul(c, v)"
        " y = Gemm(d, g, bias) }",
        {
            "w": SQUARE,
            "u": matrix(8, 8, 1),
            "v": matrix(8, 8, 2),
            "g": matrix(8, 8, 3),
            "bias": SQUARE[0],
        },
    )
    ir.save(model, tmp_path / "float.onnx")
    quantize_dynamic(tmp_path / "float.onnx", tmp_path / "int8.onnx", weight_type=QuantType.QUInt8)
    quantized = onnx.load(tmp_path / "int8.onnx")
    integer = [node for node in quantized.graph.node if node.op_type == "MatMulInteger"]
    assert reach(model).count("reached") == len(integer) == 3
    after = reach(ir.from_proto(quantized))
    assert after.count("reduced") == 3
    assert after.count("missed") == 2


def test_the_json_form_counts_by_operator_and_reason() -> None:
    found = reach(
        build(
            "main (float[2,8] x) => (float[2,8] y) {"
            " v = Identity(w) u = Identity(w) m = MatMul(x, v) n = MatMul(m, u) y = MatMul(n, w) }",
            {"w": SQUARE},
        )
    ).to_dict()
    assert found["operations"] == 3
    assert (found["reached_operations"], found["reduced_operations"]) == (1, 0)
    assert found["by_operator"] == {"MatMul": {"reached": 1, "missed": 2, "reduced": 0}}
    assert found["missed_reasons"] == {"behind Identity": 2}
    assert found["missed"][0] == {
        "name": "m",
        "operator": "MatMul",
        "graph": "main",
        "weights": ["w"],
        "weight_bytes": 256,
        "reason": "behind Identity",
    }
