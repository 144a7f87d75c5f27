from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from exporter.passes.tensors import same_content


def strings(*texts: bytes) -> ir.StringTensor:
    return ir.StringTensor(list(texts), shape=ir.Shape([len(texts)]))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ir.tensor([0.0]), ir.tensor([-0.0])),
        (ir.tensor([1, 2]), ir.tensor([[1, 2]])),
        (ir.tensor([0], dtype=ir.DataType.INT32), ir.tensor([0], dtype=ir.DataType.FLOAT)),
        (strings(b"ab", b"c"), strings(b"a", b"bc")),
    ],
    ids=["sign of zero", "shape", "type", "strings"],
)
def test_look_alikes_differ(one: ir.TensorProtocol, other: ir.TensorProtocol) -> None:
    assert same_content(one, one) and same_content(other, other)
    assert not same_content(one, other)


def test_a_nan_is_itself() -> None:
    assert same_content(ir.tensor([np.nan]), ir.tensor([np.nan]))


def test_memory_order_does_not_matter() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert same_content(ir.Tensor(array), ir.Tensor(np.asfortranarray(array)))


def test_four_bit_elements_compare_without_the_bits_that_numpy_adds() -> None:
    values = np.array([1, -2, 7], ml_dtypes.int4)
    packed = ir.PackedTensor(np.array([0xE1, 0x07], np.uint8), ir.DataType.INT4, shape=(3,))
    assert same_content(ir.Tensor(values, dtype=ir.DataType.INT4), packed)


def test_a_lazy_tensor_of_strings_equals_the_strings() -> None:
    lazy = ir.LazyTensor(lambda: strings(b"a", b"b"), dtype=ir.DataType.STRING, shape=ir.Shape([2]))
    assert same_content(lazy, strings(b"a", b"b")) and not same_content(lazy, strings(b"a", b"c"))
