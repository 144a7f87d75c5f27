from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.passes.weights.numerics import (
    errors,
    pack_nibbles,
    quantize_blocks,
    quantize_channels,
    unpack_nibbles,
)
from tests.passes.quantize_helpers import noise

FLOAT16, FLOAT32 = np.dtype("float16"), np.dtype("float32")


@given(
    st.integers(1, 40),
    st.integers(1, 5),
    st.sampled_from(["normal", "equal", "alternating", "spikes"]),
    st.sampled_from([{0}, {1}, {0, 1}]),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=150)
def test_no_two_neighbours_of_a_signed_weight_exceed_what_16_bits_hold(
    rows: int, columns: int, kind: str, summed: set[int], seed: int
) -> None:
    random = np.random.default_rng(seed)
    weight = random.normal(size=(rows, columns)).astype(np.float32)
    if kind == "equal":
        weight = np.sign(weight) * np.float32(0.7) + weight * np.float32(1e-3)
    elif kind == "alternating":
        weight = np.abs(weight) * np.where(np.arange(rows) % 2, 1, -1)[:, None]
    elif kind == "spikes":
        weight = weight**5
    axis = 1 - min(summed) if len(summed) == 1 else None
    channels = quantize_channels(weight.astype(np.float32), axis, "int8", summed)
    numbers = channels.numbers.astype(np.int64)
    assert np.abs(numbers).max() <= 127
    for along in summed:
        ordered = np.moveaxis(numbers, along, 0)
        pairs = ordered[1:] * 255 + ordered[:-1] * 255
        assert (np.abs(pairs) <= 2**15 - 1).all()
    step = channels.scale[:, None] if axis == 0 else channels.scale
    assert (np.abs(channels.restore() - weight) <= 0.5001 * step).all()


def test_the_guard_costs_nothing_where_signs_alternate_and_half_where_they_agree() -> None:
    one = np.ones((8, 1), np.float32)
    assert quantize_channels(one, 1, "int8", {0}).numbers.max() == 64
    signs = np.where(np.arange(8) % 2, 1, -1)[:, None].astype(np.float32)
    assert quantize_channels(signs, 1, "int8", {0}).numbers.max() == 127
    assert quantize_channels(one, 1, "int8", set()).numbers.max() == 127
    assert quantize_channels(one[:1], 1, "int8", {0}).numbers.max() == 127


@pytest.mark.parametrize(("axis", "shape"), [(0, (6,)), (1, (4,)), (None, ())])
def test_scales_stand_along_the_axis_asked_for(axis: int | None, shape: tuple[int, ...]) -> None:
    weight = noise(6, 4)
    channels = quantize_channels(weight, axis, "uint8", {0})
    assert channels.scale.shape == shape
    np.testing.assert_allclose(
        channels.scale,
        np.abs(weight).max(axis=None if axis is None else 1 - axis) / 127,
        rtol=1e-6,
    )
    assert (channels.numbers.dtype, channels.zero_point) == (np.uint8, 128)


def test_blocks_of_known_numbers_are_exact() -> None:
    weight = np.arange(-8, 8, dtype=np.float32)[None] * np.float32(0.5)
    blocks = quantize_blocks(weight, 16, symmetric=True, scales=FLOAT16)
    assert blocks.scales.tolist() == [[0.5]]
    assert blocks.numbers.tolist() == [[list(range(16))]]
    np.testing.assert_array_equal(blocks.restore(), weight)
    shifted = np.arange(16, dtype=np.float32)[None] * np.float32(0.25)
    points = quantize_blocks(shifted, 16, symmetric=False, scales=FLOAT16)
    assert (points.scales.tolist(), points.zero_points.tolist()) == ([[0.25]], [[0]])
    np.testing.assert_array_equal(points.restore(), shifted)


def test_positive_extremes_use_the_longer_side_too() -> None:
    weight = np.zeros((1, 16), np.float32)
    weight[0, :9] = np.arange(9)
    blocks = quantize_blocks(weight, 16, symmetric=True, scales=FLOAT16)
    np.testing.assert_array_equal(blocks.restore(), weight)
    assert blocks.scales.tolist() == [[-1.0]]


@pytest.mark.parametrize("symmetric", [True, False])
def test_a_last_block_is_padded_and_the_padding_is_dropped(symmetric: bool) -> None:
    weight = noise(3, 50) + 2
    blocks = quantize_blocks(weight, 32, symmetric=symmetric, scales=FLOAT32)
    assert blocks.numbers.shape == (3, 2, 32)
    assert blocks.scales.shape == (3, 2)
    assert blocks.restore().shape == (3, 50)
    assert errors(weight, blocks.restore())[0] < 0.1


@given(st.lists(st.integers(0, 15), min_size=1, max_size=33))
def test_nibbles_come_back_in_order(numbers: list[int]) -> None:
    array = np.array([numbers], np.uint8)
    packed = pack_nibbles(array)
    assert packed.shape == (1, -(-len(numbers) // 2))
    assert unpack_nibbles(packed)[0, : len(numbers)].tolist() == numbers
    assert packed[0, 0] % 16 == numbers[0]


def test_errors_are_relative_to_the_weight_and_absolute() -> None:
    weight = np.array([[3, 4]], np.float32)
    assert errors(weight, np.array([[3, 4.5]], np.float32)) == (pytest.approx(0.1), 0.5)
    assert errors(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32)) == (0.0, 0.0)
