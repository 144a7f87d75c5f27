"""Test graphs as ONNX text, and one check that every pass must meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

__all__ = [
    "Feeds",
    "assert_pass_preserves",
    "assert_same_bits",
    "build",
    "op_types",
    "run",
    "signature",
    "stored_bytes",
]

Feeds = Mapping[str, np.ndarray]


def build(
    text: str, weights: Mapping[str, np.ndarray | ir.TensorProtocol] | None = None
) -> ir.Model:
    """Parse a graph and add initializers.

    Args:
        text: ONNX text, with or without the header line ``<ir_version: 10, …>``. The names in
            ``weights`` may be used in it, also inside branches, without being declared.
        weights: values of initializers of the main graph.
    """
    if not text.lstrip().startswith("<"):
        text = '<ir_version: 10, opset_import: ["" : 20]>\n' + text
    proto = onnx.parser.parse_model(text)
    for name, value in (weights or {}).items():
        tensor = value if not isinstance(value, np.ndarray) else ir.Tensor(value, name=name)
        tensor.name = name
        proto.graph.initializer.append(ir.to_proto(tensor))
    return ir.from_proto(proto)


def run(model: ir.Model, feeds: Feeds, *, as_written: bool = True) -> list[np.ndarray]:
    """Run ``model`` in onnxruntime, by default exactly as it is written.

    That is: no graph optimizations, and no packing of weights ahead of time: packed weights are
    multiplied by another routine, which rounds differently, and whether a weight is packed
    depends on whether a transform stands before it.
    """
    options = onnxruntime.SessionOptions()
    if as_written:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def signature(model: ir.Model) -> list[tuple[Any, ...]]:
    """What callers see: inputs and outputs in order, with types and shapes."""
    proto = ir.to_proto(model)
    return [
        (kind, info.name, info.type.SerializeToString(deterministic=True))
        for kind, infos in (("in", proto.graph.input), ("out", proto.graph.output))
        for info in infos
    ]


def stored_bytes(model: ir.Model) -> int:
    """Bytes of all tensors in the serialized model, wherever they are."""
    proto = ir.to_proto(model)
    return _bytes_of_graph(proto.graph) + sum(_bytes_of_nodes(f.node) for f in proto.functions)


def op_types(model: ir.Model) -> list[str]:
    """Operators of all graphs, in order."""
    return [node.op_type for node in model.graph.all_nodes()]


def assert_same_bits(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Compare outputs by count, type, shape and every bit."""
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype == object:  # strings: their bytes would be those of pointers
            assert one.tolist() == other.tolist()
        else:
            assert one.tobytes() == other.tobytes(), f"{one} is not {other}"


def assert_pass_preserves(
    make_pass: Callable[[], ir.passes.PassBase],
    model: ir.Model,
    *feeds: Feeds,
    modified: bool | None = True,
    may_grow: bool = False,
    as_written: bool = True,
) -> ir.Model:
    """Apply a pass to a clone of ``model`` and check what holds for every pass.

    The signature is unchanged, the ONNX checker accepts the result, outputs agree bit for
    bit, stored bytes do not grow, and a second run changes nothing.

    Args:
        make_pass: makes the pass; twice, since a pass may remember its latest call.
        model: stays as it is.
        feeds: inputs to compare the outputs on.
        modified: what the first run must report; ``None``: either, but the truth.
        may_grow: for the one pass whose job is to store more.
        as_written: how to run both; see :func:`run`.

    Returns:
        The rewritten clone.
    """
    clone = _round_trip(model)
    before = _serialized(clone)
    result = make_pass()(clone)
    after = result.model
    serialized = _serialized(after)
    if modified is not None:
        assert result.modified is modified
    assert result.modified is (serialized != before)
    assert signature(after) == signature(model)
    onnx.checker.check_model(onnx.load_from_string(serialized), full_check=True)
    for feed in feeds:
        actual, expected = (run(m, feed, as_written=as_written) for m in (after, model))
        assert_same_bits(actual, expected)
    if not may_grow:
        assert stored_bytes(after) <= stored_bytes(model)
    again = make_pass()(after)
    assert again.modified is False
    assert _serialized(again.model) == serialized
    return after


def _round_trip(model: ir.Model) -> ir.Model:
    return ir.from_proto(ir.to_proto(model))


def _serialized(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


def _bytes_of_graph(graph: onnx.GraphProto) -> int:
    return sum(_bytes_of(tensor) for tensor in graph.initializer) + _bytes_of_nodes(graph.node)


def _bytes_of_nodes(nodes: Sequence[onnx.NodeProto]) -> int:
    total = 0
    for node in nodes:
        for attribute in node.attribute:
            total += sum(_bytes_of(tensor) for tensor in (attribute.t, *attribute.tensors))
            total += sum(_bytes_of_graph(graph) for graph in (attribute.g, *attribute.graphs))
            if node.op_type == "Constant":
                total += 4 * (len(attribute.floats) + attribute.HasField("f"))
                total += 8 * (len(attribute.ints) + attribute.HasField("i"))
                total += sum(len(text) for text in (attribute.s, *attribute.strings))
    return total


def _bytes_of(tensor: onnx.TensorProto) -> int:
    return ir.from_proto(tensor).nbytes if tensor.data_type else 0
