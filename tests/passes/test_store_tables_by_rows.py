from __future__ import annotations

import numpy as np
import pytest

from exporter.passes.store_tables_by_rows import StoreTablesByRowsPass
from tests.passes.helpers import assert_pass_preserves, build

TIED = """
    agraph (int64[S] i, float[S, 8] h) => (float[S, 8] e, float[S, 20] y) {
        t = Transpose <perm = [1, 0]> (table)
        e = Gather (t, i)
        y = MatMul (h, table)
    }
"""
FEEDS = {"i": np.array([3, 0, 19]), "h": np.arange(24, dtype=np.float32).reshape(3, 8) / 24}


def table(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_table_looked_up_behind_a_transpose_is_stored_by_rows() -> None:
    weight = table(8, 20)
    model = build(TIED, {"table": weight})
    result = assert_pass_preserves(StoreTablesByRowsPass, model, FEEDS)
    stored = result.graph.initializers["table"].const_value
    assert stored is not None
    np.testing.assert_array_equal(stored.numpy(), weight.T)
    gather = next(node for node in result.graph if node.op_type == "Gather")
    assert gather.inputs[0] is result.graph.initializers["table"]
    assert [node.op_type for node in result.graph].count("Transpose") == 1
    turn = StoreTablesByRowsPass()
    turn(model)
    assert "1 other uses" in turn.matches[0].detail


@pytest.mark.parametrize(
    "text",
    [
        # also looked up as it is
        """
        agraph (int64[S] i) => (float[S, 8] e, float[S, 20] f) {
            t = Transpose <perm = [1, 0]> (table)
            e = Gather (t, i)
            f = Gather (table, i)
        }
        """,
        # looked up by columns: no rows to store it by
        """
        agraph (int64[S] i) => (float[20, S] e) {
            t = Transpose <perm = [1, 0]> (table)
            e = Gather <axis = 1> (t, i)
        }
        """,
        # only multiplied
        "agraph (float[S, 20] h) => (float[S, 8] y) "
        "{ t = Transpose <perm = [1, 0]> (table)  y = MatMul (h, t) }",
        # the transpose is an output
        """
        agraph (int64[S] i) => (float[20, 8] t, float[S, 8] e) {
            t = Transpose <perm = [1, 0]> (table)
            e = Gather (t, i)
        }
        """,
    ],
)
def test_other_tables_stay_as_they_are(text: str) -> None:
    model = build(text, {"table": table(8, 20)})
    turn = StoreTablesByRowsPass()
    turn(model)
    assert turn.matches == []
    stored = model.graph.initializers["table"].const_value
    assert stored is not None
    assert tuple(stored.shape) == (8, 20)
