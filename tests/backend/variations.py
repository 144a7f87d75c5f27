"""Make models with weights out of cases, which have none: a backend test feeds everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import compose, helper, numpy_helper

from tests.backend.cases import Case

__all__ = ["frozen_twice", "stacked"]

_IR_WITH_CONSTANTS = 4
_OPSET = 17
"""For cases that import none but another domain's."""

_DEPTH = 4
_DEPTH_WITHOUT_WEIGHTS = 20
_FEW_NODES = 6


def frozen_twice(case: Case) -> onnx.ModelProto | None:
    """Fix every input to the case's value, and compute everything twice.

    ::

        y = Op(x, w)    ->    a_y' = Op(a_x, a_w); a_y = Identity(a_y')      initializers
                              b_y' = Op(b_x, b_w); b_y = Identity(b_y')      Constant nodes

    Everything there is equals something else: what should be one becomes one, and what only
    looks alike must not. ``None`` for a case that takes anything but tensors.
    """
    if not _takes_tensors(case):
        return None
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    for prefix in ("a_", "b_"):
        graph = compose.add_prefix_graph(case.proto.graph, prefix)
        given = {f"{prefix}{name}": value for name, value in case.feeds[0].items()}
        weights += [tensor for tensor in graph.initializer if tensor.name not in given]
        tensors = list(_tensors(given))
        if prefix == "a_":
            weights += tensors
        else:
            nodes += [_constant(tensor) for tensor in tensors]
        inner = {info.name: f"{info.name}_inner" for info in graph.output}
        for node in graph.node:
            for field in (node.input, node.output):
                field[:] = [inner.get(name, name) for name in field]
        nodes += graph.node
        # Behind an Identity, so that what gives an output may be merged all the same.
        nodes += [helper.make_node("Identity", [one], [name]) for name, one in inner.items()]
        outputs += graph.output
    return _model(case.proto, nodes, weights, [], outputs)


def stacked(case: Case) -> onnx.ModelProto | None:
    """Apply a case to its own result again and again, with a copy of its weights each time.

    ::

        y = Op(x, w)    ->    y0 = Op(x, w0); y1 = Op(y0, w1); …      with w0 = w1 = …

    A stack of equal layers, whatever the layer computes. ``None`` for a case without an
    output of the type and shape of one of its inputs, or that takes anything but tensors.
    """
    link = _link(case)
    if link is None or not _takes_tensors(case):
        return None
    entry, exit_ = link
    # Without weights, only what saves many nodes is rolled.
    few = len(case.feeds[0]) == 1 and len(case.proto.graph.node) < _FEW_NODES
    depth = _DEPTH_WITHOUT_WEIGHTS if few else _DEPTH
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    before = entry.name
    for index in range(depth):
        graph = compose.add_prefix_graph(case.proto.graph, f"l{index}_")
        given = {f"l{index}_{name}": value for name, value in case.feeds[0].items()}
        del given[f"l{index}_{entry.name}"]
        tensors = [*(t for t in graph.initializer if t.name not in given), *_tensors(given)]
        if index % 2:
            nodes += [_constant(tensor) for tensor in tensors]
        else:
            weights += tensors
        nodes.append(helper.make_node("Identity", [before], [f"l{index}_{entry.name}"]))
        nodes += graph.node
        before = f"l{index}_{exit_.name}"
    result = onnx.ValueInfoProto()
    result.CopyFrom(exit_)
    result.name = before
    return _model(case.proto, nodes, weights, [entry], [result])


def _takes_tensors(case: Case) -> bool:
    return bool(case.feeds[0]) and all(isinstance(v, np.ndarray) for v in case.feeds[0].values())


def _link(case: Case) -> tuple[onnx.ValueInfoProto, onnx.ValueInfoProto] | None:
    """Return an input, and an output that can take its place."""
    for entry in case.proto.graph.input:
        for index, exit_ in enumerate(case.proto.graph.output):
            given, gives = case.feeds[0].get(entry.name), case.expected[0][index]
            if (
                isinstance(given, np.ndarray)
                and isinstance(gives, np.ndarray)
                and (given.dtype, given.shape) == (gives.dtype, gives.shape)
            ):
                return entry, exit_
    return None


def _tensors(values: dict[str, Any]) -> Iterator[onnx.TensorProto]:
    for name, value in values.items():
        yield numpy_helper.from_array(value, name)


def _constant(tensor: onnx.TensorProto) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [tensor.name], value=tensor)


def _model(
    source: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, source.graph.name, inputs, outputs, weights)
    model = onnx.ModelProto()
    model.CopyFrom(source)
    model.ir_version = max(source.ir_version, _IR_WITH_CONSTANTS)
    model.graph.CopyFrom(graph)
    if not any(entry.domain in ("", "ai.onnx") for entry in source.opset_import):
        model.opset_import.append(helper.make_opsetid("", _OPSET))
    return model
