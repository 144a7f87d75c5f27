from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from exporter.accounting import (
    DuplicateGroup,
    count_graph,
    file_bytes,
    iter_stored_tensors,
    stored_bytes,
    tensor_digest,
)
from exporter.onnx_files import write_model

HEADER = '<ir_version: 10, opset_import: ["" : 20, "own" : 1]>\n'


def model_of(text: str) -> ir.Model:
    return ir.from_onnx_text(HEADER + text)


def test_equal_tensors_are_stored_bytes_twice_and_unique_bytes_once() -> None:
    model = model_of("""
        main (float[2] x) => (float[2] y)
        <float[2] a = {1, 2}, float[2] b = {1, 2}, float[2] c = {1, 2}, float[2] d = {3, 4},
         int64[1] i = {7}, int64[1] j = {7}> {
            s = Add(x, a)  t = Add(s, b)  u = Add(t, c)  y = Add(u, d)
        }""")
    count = count_graph(model)
    assert count.stored_bytes == 4 * 8 + 2 * 8
    assert count.unique_bytes == 2 * 8 + 8
    assert count.nodes == 4
    assert count.duplicates == (
        DuplicateGroup(("a", "b", "c"), 16),
        DuplicateGroup(("i", "j"), 8),
    )
    assert stored_bytes(model) == count.stored_bytes


def tensor(*values: float, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Tensor:
    return ir.Tensor(np.array(values, dtype.numpy()), dtype=dtype)


def test_bits_decide_that_two_tensors_are_one() -> None:
    nan = float("nan")
    assert tensor_digest(tensor(0.0, 1.0)) == tensor_digest(tensor(0.0, 1.0))
    assert tensor_digest(tensor(nan)) == tensor_digest(tensor(nan))
    assert tensor_digest(tensor(0.0)) != tensor_digest(tensor(-0.0))
    payload = ir.Tensor(np.array([0x7FC00001], np.uint32).view(np.float32))
    assert tensor_digest(tensor(nan)) != tensor_digest(payload)


def test_type_and_shape_decide_too() -> None:
    flat = tensor(1.0, 2.0)
    column = ir.Tensor(flat.numpy().reshape(2, 1))
    as_integers = ir.Tensor(flat.numpy().view(np.int32))
    assert len({tensor_digest(t) for t in (flat, column, as_integers)}) == 3


def test_texts_are_told_apart_by_where_they_end() -> None:
    one = ir.StringTensor(np.array([b"ab", b"c"], object), shape=ir.Shape([2]))
    other = ir.StringTensor(np.array([b"a", b"bc"], object), shape=ir.Shape([2]))
    assert tensor_digest(one) != tensor_digest(other)
    same = ir.StringTensor(np.array([b"ab", b"c"], object), shape=ir.Shape([2]))
    assert tensor_digest(one) == tensor_digest(same)


def test_signed_zeros_are_no_duplicates() -> None:
    model = model_of("main (float[1] x) => (float[1] y) { a = Add(x, p)  y = Add(a, n) }")
    for name, value in (("p", 0.0), ("n", -0.0)):
        model.graph.initializers[name] = ir.Value(name=name, const_value=tensor(value))
    count = count_graph(model)
    assert (count.stored_bytes, count.unique_bytes, count.duplicates) == (8, 8, ())


def test_branches_attributes_and_functions_hold_tensors_too() -> None:
    model = model_of("""
        main (bool c, float[2] x) => (float[2] y)
        <float[2] a = {1, 2}> {
            b = Constant <value = float[3] {1, 2, 3}> ()
            z = own.shift (x)
            y = If (c) <
                then_branch = yes () => (float[2] p)
                    <float[2] k = {1, 2}> { p = Add(z, k) },
                else_branch = no () => (float[2] q)
                    { d = Constant <value = float[2] {5, 6}> ()  q = Add(z, d) }
            >
        }
        <domain: "own", opset_import: ["" : 20]>
        shift (v) => (w) { e = Constant <value = float[2] {8, 9}> ()  w = Add(v, e) }
        """)
    sizes = sorted(t.nbytes for _, t in iter_stored_tensors(model))
    assert sizes == [8, 8, 8, 8, 12]
    count = count_graph(model)
    assert (count.stored_bytes, count.unique_bytes) == (44, 36)
    assert count.duplicates == (DuplicateGroup(("a", "k"), 8),)
    assert count.nodes == 8


def test_a_functions_parameter_holds_no_tensor_of_its_own() -> None:
    model = model_of("""
        main (float[1] x) => (float[1] y) { y = own.shift <amount = float[1] {3}> (x) }
        <domain: "own", opset_import: ["" : 20]>
        shift <amount> (v) => (w) { e = Constant <value: tensor = @amount> ()  w = Add(v, e) }
        """)
    assert [t.nbytes for _, t in iter_stored_tensors(model)] == [4]
    assert count_graph(model).nodes == 3


def lazy(dtype: ir.DataType, shape: list[int]) -> ir.LazyTensor:
    def refuse() -> ir.Tensor:
        pytest.fail("a lazy tensor was evaluated")

    return ir.LazyTensor(refuse, dtype=dtype, shape=ir.Shape(shape), name="w")


def test_counting_stored_bytes_evaluates_no_lazy_tensor() -> None:
    model = model_of("main (float[2] x) => (float[2] y) { y = Add(x, x) }")
    big = lazy(ir.DataType.FLOAT, [1000, 1000])
    packed = lazy(ir.DataType.INT4, [3, 5])
    for name, value in (("w", big), ("p", packed)):
        model.graph.initializers[name] = ir.Value(name=name, const_value=value)
    assert stored_bytes(model) == 4_000_000 + 8  # 15 values of 4 bits


def test_file_bytes_count_external_data_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "[a] model.onnx"
    path.write_bytes(b"x" * 10)
    (tmp_path / "[a] model.onnx_data").write_bytes(b"x" * 200)
    (tmp_path / "[a] model.onnx_data_1").write_bytes(b"x" * 3000)
    (tmp_path / "a model.onnx_data").write_bytes(b"x" * 50_000)
    (tmp_path / "other.onnx").write_bytes(b"x" * 60_000)
    assert file_bytes(path) == 3210


def test_a_written_model_counts_what_it_counted_in_memory(tmp_path: Path) -> None:
    model = model_of("""
        main (float[2] x) => (float[2] y) <float[2] a = {1, 2}> { y = Add(x, a) }""")
    write_model(model, tmp_path / "model.onnx")
    read = ir.load(tmp_path / "model.onnx")
    assert count_graph(read) == count_graph(model)
    content = (tmp_path / "model.onnx").read_bytes()
    assert file_bytes(tmp_path / "model.onnx") == len(content)
    write_model(model, tmp_path / "again.onnx")
    again = (tmp_path / "again.onnx").read_bytes()
    assert hashlib.sha256(again).digest() == hashlib.sha256(content).digest()
