"""Layers that make sequences of tensors."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from tests.passes.helpers import assert_pass_preserves
from tests.passes.roll_graphs import FEEDS, chain, loops

LAYER = (
    "s{i} = SequenceConstruct(x{p}, W)  t{i} = SequenceInsert(s{i}, x{p})  "
    "v{i} = SequenceAt(t{i}, last)  h{i} = MatMul(v{i}, W)  x{i} = Relu(h{i})"
)


def test_a_sequence_inside_a_layer_is_not_taken_for_a_tensor() -> None:
    model = chain([LAYER] * 4, before="last = Constant <value_int = -1> ()")
    result = assert_pass_preserves(RollRepeatedBlocksPass, model, *FEEDS, may_grow=True)
    (loop,) = loops(result)
    types = {node.op_type: node.outputs[0].type for node in loop.attributes["body"].as_graph()}
    assert isinstance(types["SequenceInsert"], ir.SequenceType)
    assert types["SequenceAt"] == ir.TensorType(ir.DataType.FLOAT)
