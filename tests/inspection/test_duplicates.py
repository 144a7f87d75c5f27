from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from exporter.errors import CheckpointError
from exporter.inspection import inspect_path
from tests.inspection.helpers import copies, inspect_model, matrix, names
from tests.passes.helpers import build

ADD_THREE = "main (float[6,8] x) => (float[6,8] y) { s = Add(x, a) t = Add(s, b) y = Add(t, c) }"


def test_bit_equal_initializers_waste_all_copies_but_one() -> None:
    same = matrix(6, 8)
    (group,) = copies(build(ADD_THREE, {"a": same, "b": matrix(6, 8, seed=1), "c": same}))
    assert names(group) == ["a", "c"]
    assert (group.kinds, group.wasted_bytes, group.dtype) == (("exact",), 192, "FLOAT")
    assert group.shape == (6, 8)


def test_tensors_of_other_bits_types_or_shapes_are_no_copies() -> None:
    model = build(
        "main (float[1] x) => (float[1] y) { y = Add(x, a) }",
        {
            "a": np.zeros(1, np.float32),
            "negative": np.full(1, -0.0, np.float32),
            "integer": np.zeros(1, np.int32),
            "scalar": np.zeros((), np.float32),
            "nan": np.full(1, np.nan, np.float32),
        },
    )
    assert copies(model) == ()


def test_a_matrix_and_its_transpose_are_stored_twice() -> None:
    table = matrix(6, 8)
    (group,) = copies(
        build(
            "main (int64[2] i, float[2,6] x) => (float[2,8] e, float[2,8] y)"
            " { e = Gather(table, i) y = MatMul(x, head) }",
            {"table": table, "head": np.ascontiguousarray(table.T)},
        )
    )
    assert group.kinds == ("transposed",)
    assert group.wasted_bytes == 192
    assert [(m.entry.name, m.transposed) for m in group.members] == [
        ("table", False),
        ("head", True),
    ]


def test_copies_of_both_orientations_are_one_group() -> None:
    table = matrix(6, 8)
    turned = np.ascontiguousarray(table.T)
    weights = {"a": table, "b": turned, "c": table, "d": turned}
    (group,) = copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights))
    assert group.kinds == ("exact", "transposed")
    assert group.wasted_bytes == 3 * 192
    assert names(group) == ["a", "c", "b", "d"]


def test_matrices_of_reversed_shape_with_other_values_are_no_twins() -> None:
    table = matrix(6, 8)
    other = np.ascontiguousarray(table.T)
    other[0, 0] += 1
    reshaped = table.reshape(8, 6)
    weights = {"a": table, "b": other, "c": reshaped}
    assert copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights)) == ()


def test_a_symmetric_matrix_is_no_twin_of_itself() -> None:
    square = matrix(8, 8)
    weights = {"a": square + square.T, "b": matrix(8, 8, seed=1)}
    assert copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights)) == ()


def test_small_matrices_are_no_twins_as_a_transpose_would_take_as_much() -> None:
    small = matrix(4, 8)  # 128 bytes
    weights = {"a": small, "b": np.ascontiguousarray(small.T)}
    assert copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights)) == ()


def test_packed_query_key_and_value_are_wasted_where_they_are_stored_apart_too() -> None:
    parts = [matrix(8, 8, seed) for seed in range(3)]
    packed = np.concatenate([parts[2], parts[0], parts[1]], axis=1)
    weights = {"q": parts[0], "k": parts[1], "v": parts[2], "p0": packed, "p1": packed}
    (group,) = copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights))
    assert names(group) == ["p0", "p1"]
    assert group.kinds == ("exact", "packed")
    assert group.packed_from == ("v", "q", "k")
    assert group.wasted_bytes == 2 * packed.nbytes


def test_parts_may_be_stored_transposed_and_lie_along_either_axis() -> None:
    parts = [matrix(8, 10, seed) for seed in range(2)]
    weights = {
        "k": np.ascontiguousarray(parts[0].T),
        "v": parts[1],
        "kv": np.concatenate(parts, axis=0),
    }
    (group,) = copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights))
    assert (names(group), group.packed_from) == (["kv"], ("k", "v"))
    assert group.wasted_bytes == 640


def test_a_packed_tensor_with_a_part_that_is_not_stored_is_unique() -> None:
    parts = [matrix(8, 8, seed) for seed in range(3)]
    weights = {"q": parts[0], "k": parts[1], "qkv": np.concatenate(parts, axis=1)}
    assert copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights)) == ()


def test_a_long_bias_of_zeros_is_not_packed_from_a_short_one() -> None:
    weights = {"long": np.zeros(128, np.float32), "short": np.zeros(64, np.float32)}
    assert copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights)) == ()


def test_copies_in_constant_nodes_are_found() -> None:
    values = ", ".join(map(str, range(40 * 50)))
    model = build(f"""
        main (float[40,50] x) => (float[40,50] y) {{
            a = Constant <value = float[40,50] {{{values}}}> ()
            b = Constant <value = float[40,50] {{{values}}}> ()
            s = Add(x, a)
            y = Add(s, b)
        }}""")
    (group,) = copies(model)
    assert group.kinds == ("exact", "constant")
    assert group.wasted_bytes == 8000
    assert [member.entry.place for member in group.members] == ["constant", "constant"]


def test_copies_behind_aliases_are_named_so() -> None:
    same = matrix(8, 8)
    (group,) = copies(
        build(
            "main (float[2,8] x) => (float[2,8] y) {"
            " i = Identity(b) t = Transpose <perm = [1, 0]> (i)"
            " s = MatMul(x, a) y = MatMul(s, t) }",
            {"a": same, "b": same},
        )
    )
    assert group.kinds == ("exact", "aliased")
    assert [member.entry.behind for member in group.members] == [(), ("Identity", "Transpose")]
    assert [member.entry.uses for member in group.members] == [1, 1]


def test_a_tensor_that_is_also_read_as_it_is_is_not_behind_an_alias() -> None:
    same = matrix(8, 8)
    (group,) = copies(
        build(
            "main (float[2,8] x) => (float[2,8] y) {"
            " i = Identity(b) s = MatMul(x, a) t = MatMul(s, i) y = MatMul(t, b) }",
            {"a": same, "b": same},
        )
    )
    assert group.kinds == ("exact",)
    assert [member.entry.uses for member in group.members] == [1, 2]


def test_a_graph_output_is_not_behind_an_alias() -> None:
    same = matrix(8, 8)
    model = build(
        "main (float[2,8] x) => (float[2,8] y) { i = Identity(b) y = MatMul(x, i) }",
        {"a": same, "b": same},
    )
    model.graph.outputs.append(model.graph.initializers["b"])
    (group,) = copies(model)
    assert [(m.entry.behind, m.entry.uses) for m in group.members] == [((), 0), ((), 2)]


def test_copies_in_branches_loops_and_functions_say_where_they_are() -> None:
    model = build("""
        <ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        main (bool c, float[2] x) => (float[2] y) <float[2] a = {1, 2}> {
            z = own.shift (x)
            y = If (c) <
                then_branch = yes () => (float[2] p) <float[2] k = {1, 2}> { p = Add(z, k) },
                else_branch = no () => (float[2] q) { q = Add(z, a) }
            >
        }
        <domain: "own", opset_import: ["" : 20]>
        shift (v) => (w) { e = Constant <value = float[2] {1, 2}> ()  w = Add(v, e) }
        """)
    (group,) = copies(model)
    assert group.wasted_bytes == 16
    assert [m.entry.graph for m in group.members] == [
        "main",
        "main/If.then_branch",
        "function own.shift",
    ]


def test_groups_come_with_the_largest_waste_first() -> None:
    large, small = matrix(9, 9), matrix(7, 7)
    weights = {"s1": small, "s2": small, "l1": large, "l2": large}
    groups = copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights))
    assert [group.wasted_bytes for group in groups] == [324, 196]


def test_half_precision_and_packed_integers_have_twins_too() -> None:
    half = matrix(8, 16).astype(ml_dtypes.bfloat16)
    nibbles = (np.arange(512) % 7).astype(np.int8).reshape(16, 32)
    weights = {
        "h": ir.Tensor(half),
        "ht": ir.Tensor(np.ascontiguousarray(half.T)),
        "n": ir.Tensor(nibbles.astype(ml_dtypes.int4)),
        "nt": ir.Tensor(np.ascontiguousarray(nibbles.T).astype(ml_dtypes.int4)),
    }
    groups = copies(build("main (float[1] x) => (float[1] y) { y = Neg(x) }", weights))
    assert [(names(g), g.dtype, g.wasted_bytes) for g in groups] == [
        (["h", "ht"], "BFLOAT16", 256),
        (["n", "nt"], "INT4", 256),
    ]


def test_texts_are_compared_too() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 20]> main (float[1] x) => (float[1] y) { y = Neg(x) }'
    )
    for name, words in (("a", [b"one", b"two"]), ("b", [b"one", b"two"]), ("c", [b"onet", b"wo"])):
        tensor = onnx.helper.make_tensor(name, onnx.TensorProto.STRING, [2], words)
        proto.graph.initializer.append(tensor)
    (group,) = copies(ir.from_proto(proto))
    assert (names(group), group.wasted_bytes) == (["a", "b"], 6)


def test_tensors_at_one_place_of_an_external_file_are_stored_once(tmp_path: Path) -> None:
    same = matrix(6, 8)
    model = build(ADD_THREE, {"a": same, "b": same, "c": same})
    proto = ir.to_proto(model)
    (tmp_path / "w.bin").write_bytes(same.tobytes() * 2)
    for tensor, offset in zip(proto.graph.initializer, (0, 0, 192), strict=True):
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "w.bin"), ("offset", offset), ("length", 192)):
            tensor.external_data.add(key=key, value=str(value))
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    (found,) = inspect_path(path).models
    assert (found.stored_bytes, found.unique_bytes) == (384, 192)
    assert found.file_bytes == path.stat().st_size + 384
    (group,) = found.copies
    assert [member.entry.stored_bytes for member in group.members] == [192, 0, 192]


def test_a_tensor_shorter_than_its_shape_is_named(tmp_path: Path) -> None:
    proto = ir.to_proto(build(ADD_THREE, {k: matrix(6, 8) for k in "abc"}))
    proto.graph.initializer[1].raw_data = b"\0" * 100
    path = tmp_path / "cut.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(CheckpointError, match=r"cut\.onnx: tensor 'b' does not hold the 192 bytes"):
        inspect_path(path)


def test_unused_tensors_and_overridable_ones_are_told_apart(tmp_path: Path) -> None:
    model = build(ADD_THREE, {"a": matrix(6, 8), "b": matrix(6, 8), "c": matrix(6, 8, 1)})
    model.graph.inputs.append(model.graph.initializers["b"])
    unused = ir.Tensor(matrix(3, 3), name="unused")
    model.graph.initializers["unused"] = ir.Value(name="unused", const_value=unused)
    found = inspect_model(model, tmp_path)
    assert found.unused_bytes == 36
    (group,) = found.copies
    assert [member.entry.overridable for member in group.members] == [False, True]
