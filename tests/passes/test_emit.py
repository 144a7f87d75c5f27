"""What expands weights at the front of a graph must come before all that reads it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from exporter.passes.quantize_to_int4 import QuantizeToInt4Pass
from exporter.passes.quantize_to_int8 import QuantizeToInt8Pass
from exporter.passes.store_as_float16 import StoreAsFloat16Pass
from exporter.passes.weights.coverage import StoreWeightsPass
from exporter.passes.weights.emit import Emitter
from exporter.precision import Int4
from tests.passes.helpers import build
from tests.passes.quantize_helpers import apply, float_matrices, noise, outputs_agree

WEIGHTS = {"t": noise(70, 64), "a": noise(64, 64, seed=1), "b": noise(64, 64, seed=2)}
FIRST_NODES = {
    "a product": "e = MatMul(x, a) f = MatMul(e, b) y = MatMul(f, a)",
    "a product with bias": "e = Gemm(x, a, bias) f = Gemm<transB = 1>(e, b, bias) y = MatMul(f, b)",
    "a lookup": "e = Gather(t, i) f = MatMul(e, a) u = Transpose(b) y = MatMul(f, u)",
    "a lookup in a tied table": "e = Gather(t, i) u = Transpose(t) f = MatMul(e, u) "
    "g = MatMul(f, t) h = MatMul(g, a) y = MatMul(h, b)",
    "two that go": "e = Gather(t, i) f = MatMul(x, b) g = Add(e, f) h = MatMul(g, a) "
    "y = MatMul(h, b)",
}
FORMS: dict[str, StoreWeightsPass[Any]] = {
    "float16": StoreAsFloat16Pass(),
    "int8": QuantizeToInt8Pass(),
    **{run: QuantizeToInt4Pass(Int4(run=run)) for run in ("float", "int8", "matmul_nbits")},
    "dequantize": QuantizeToInt4Pass(Int4(run="dequantize")),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("first", FIRST_NODES)
def test_the_first_node_may_be_one_that_is_replaced(first: str, form: str) -> None:
    read = set(re.findall(r"\w+", " ".join(re.findall(r"\((.*?)\)", FIRST_NODES[first]))))
    kinds = {"x": "float[4,64] x", "i": "int64[4] i"}
    inputs = [kind for name, kind in kinds.items() if name in read]
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        main ({", ".join(inputs)}) => (float[4,64] y) {{ {FIRST_NODES[first]} }}"""
    weights = {**WEIGHTS, "bias": noise(64, seed=3)}
    before = build(text, {name: weight for name, weight in weights.items() if name in read})
    model, stored = apply(FORMS[form], before)
    assert stored.coverage.operations_reached == stored.coverage.operations_total > 2
    assert float_matrices(model) == []
    feeds = {"x": noise(4, 64, seed=4), "i": np.array([0, 69, 3, 3])}
    used = {name: feeds[name] for name in (value.name for value in before.graph.inputs)}
    outputs_agree(model, before, used, 0.3)


def test_the_front_stays_until_its_node_goes_and_is_then_behind_what_was_added() -> None:
    model = build("main (float[2] x) => (float[2] y) { c = Neg(x) d = Abs(c) y = Neg(d) }", WEIGHTS)
    weight, (first, second, _) = model.graph.initializers["a"], list(model.graph)
    emitter = Emitter(model)
    assert emitter.front(weight) is first
    (early,) = emitter.op(first, "Identity", [weight], "early")
    assert emitter.front(weight) is first
    (instead,) = emitter.op(first, "Abs", [first.inputs[0]], "instead")
    first.outputs[0].replace_all_uses_with(instead)
    model.graph.remove(first, safe=True)
    assert emitter.front(weight) is second
    emitter.op(second, "Transpose", [early], "late")
    assert [node.outputs[0].name for node in model.graph] == ["early", "instead", "late", "d", "y"]
