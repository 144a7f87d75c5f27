from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from exporter.passes.quantize_to_int4 import QuantizeToInt4Pass
from exporter.passes.quantize_to_int8 import QuantizeToInt8Pass
from exporter.passes.weights.coverage import Coverage
from exporter.precision import Int4, Int8, Int8Weights, find_precision
from tests.passes.helpers import build, op_types, run
from tests.passes.quantize_helpers import (
    apply,
    float_matrices,
    initializers,
    noise,
    outputs_agree,
    tied,
)

KINDS: tuple[Int8Weights, ...] = get_args(Int8Weights)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tied_table_is_stored_once_for_lookup_and_head(kind: Int8Weights) -> None:
    table = noise(40, 32) * np.linspace(0.1, 10, 40, dtype=np.float32)[:, None]
    model, quantize = apply(QuantizeToInt8Pass(Int8(kind)), tied(table))
    stored = initializers(model)
    assert stored["w_q8"].shape == (40, 32)
    assert stored["w_scale"].shape == (40,)
    assert float_matrices(model) == []
    assert op_types(model).count("Transpose") == 1
    assert (quantize.coverage.operations_reached, quantize.coverage.bytes_share) == (2, 1.0)
    outputs_agree(model, tied(table), {"ids": np.array([[0, 39, 7], [5, 5, 1]])}, 0.02)


def test_a_tied_table_behind_gemm_keeps_its_sizes_known() -> None:
    text = """
        agraph (int64[B, S] ids) => (float[B, S, 40] y) {
            e = Gather (w, ids)
            f = Flatten <axis = 2> (e)
            g = Gemm <transB = 1> (f, w)
            lead = Shape <end = 2> (e)
            rows = Shape <end = 1> (w)
            s = Concat <axis = 0> (lead, rows)
            y = Reshape (g, s)
        }
    """
    before = build(text, {"w": noise(40, 32)})
    model, quantize = apply(QuantizeToInt8Pass(), before)
    assert float_matrices(model) == []
    assert quantize.coverage.operations_reached == 2
    assert initializers(model)["sizes"].tolist() == [40]
    outputs_agree(model, before, {"ids": np.array([[0, 39, 7]])}, 0.02)


def test_a_weight_used_as_itself_and_as_its_transpose_has_one_scale() -> None:
    text = """
        agraph (float[M, 24] x) => (float[M, 24] y) {
            h = MatMul (x, w)
            t = Transpose <perm = [1, 0]> (w)
            y = MatMul (h, t)
        }
    """
    before = build(text, {"w": noise(24, 40)})
    model, quantize = apply(QuantizeToInt8Pass(), before)
    stored = initializers(model)
    assert stored["w_q8"].shape == (24, 40)
    assert stored["w_scale"].shape == ()
    assert quantize.coverage.operations_reached == 2
    outputs_agree(model, before, {"x": noise(3, 24, seed=1)}, 0.03)
    pairs = stored["w_q8"].astype(int)
    for axis in (0, 1):
        rows = np.moveaxis(pairs, axis, 0)
        assert np.abs(rows[1:] + rows[:-1]).max() <= 128


def test_a_weight_read_only_transposed_is_stored_that_way() -> None:
    text = "agraph (float[M, 50] x) => (float[M, 7] y) { y = Gemm <transB = 1> (x, w, b) }"
    before = build(text, {"w": noise(7, 50), "b": noise(7, seed=1)})
    model, _ = apply(QuantizeToInt8Pass(), before)
    assert initializers(model)["w_q8"].shape == (50, 7)
    assert "Transpose" not in op_types(model)
    assert op_types(model)[-1] == "Add"
    outputs_agree(model, before, {"x": noise(3, 50, seed=2)}, 0.02)


def test_aliases_and_transposes_between_weight_and_use_go_with_the_weight() -> None:
    text = """
        agraph (float[M, 32] x) => (float[M, 32] y) {
            a1 = Identity (w)
            a2 = Identity (a1)
            h = MatMul (x, a2)
            t = Transpose (a1)
            u = Transpose (t)
            y = MatMul (h, u)
        }
    """
    before = build(text, {"w": noise(32, 32)})
    model, quantize = apply(QuantizeToInt8Pass(), before)
    assert quantize.coverage.operations_reached == 2
    assert not {"Identity", "Transpose", "MatMul"} & set(op_types(model))
    assert float_matrices(model) == []


def test_a_shared_weight_is_taken_only_by_a_rule_for_all_its_operators() -> None:
    lookups = QuantizeToInt8Pass(operators=frozenset({"Gather"}))
    model, lookups = apply(lookups, tied(noise(40, 32)))
    assert float_matrices(model) == ["w"]
    assert "MatMul" in lookups.coverage.skipped[0].reason


def test_rules_in_turn_reach_what_the_ones_before_left() -> None:
    text = """
        agraph (int64[S] i, int64[S] j) => (float[S, 64] y, float[S, 40] z) {
            e = Gather (words, i)
            p = Gather (places, j)
            s = Add (e, p)
            y = MatMul (s, w)
            t = Transpose (words)
            z = MatMul (s, t)
        }
    """
    weights = {"words": noise(40, 64), "places": noise(48, 64, seed=1), "w": noise(64, 64, seed=2)}
    before = build(text, weights)
    total: Coverage | None = None
    model = before
    for rule in find_precision("int8-int4-tables").rules:
        kind = {Int4: QuantizeToInt4Pass, Int8: QuantizeToInt8Pass}[type(rule.store)]
        model, quantize = apply(kind(rule.store, rule.operators), model)
        total = quantize.coverage if total is None else total.then(quantize.coverage)
    assert total is not None
    assert (total.operations_reached, total.operations_total) == (4, 4)
    assert (total.bytes_share, total.skipped) == (1.0, ())
    stored = initializers(model)
    assert stored["places_packed"].shape == (48, 2, 16)
    assert (stored["words_q8"].dtype, stored["w_q8"].dtype) == (np.int8, np.int8)
    assert float_matrices(model) == []
    outputs_agree(model, before, {"i": np.array([3, 39]), "j": np.array([0, 47])}, 0.1)


TWO_HEADS = """
    agraph (int64[S] i, float[S, 32] x) => (float[S, 40] y, float[S, 40] z, int64[2] n) {
        e = Gather (w, i)
        t = Transpose <perm = [1, 0]> (w)
        y = MatMul (e, t)
        z = MatMul (x, t)
        s = Shape (t)
        n = Neg (s)
    }
"""


@pytest.mark.parametrize("transformation", [QuantizeToInt8Pass, QuantizeToInt4Pass])
def test_two_heads_share_what_is_made_of_the_table(
    transformation: type[QuantizeToInt8Pass] | type[QuantizeToInt4Pass],
) -> None:
    before = build(TWO_HEADS, {"w": noise(40, 32)})
    model, quantize = apply(transformation(), before)
    operators = op_types(model)
    assert operators.count("Transpose") == 1
    assert operators.count("BitShift") in (0, 4)  # of the rows looked up, and of the table
    assert quantize.coverage.operations_reached == 3
    feeds = {"i": np.array([3, 39]), "x": noise(2, 32, seed=1)}
    assert run(model, feeds)[2].tolist() == [-32, -40]
    outputs_agree(model, before, feeds, 0.15)


def test_a_gemm_that_transposes_a_transpose_reads_the_weight_as_it_is() -> None:
    text = """
        agraph (float[M, 24] x) => (float[M, 40] y) {
            t = Transpose <perm = [1, 0]> (w)
            y = Gemm <transB = 1> (x, t)
        }
    """
    before = build(text, {"w": noise(24, 40)})
    model, _ = apply(QuantizeToInt8Pass(), before)
    assert initializers(model)["w_scale"].shape == (40,)
    assert "Transpose" not in op_types(model)
    outputs_agree(model, before, {"x": noise(3, 24, seed=1)}, 0.03)
