"""Fusions inside the body of the rolled ALBERT-base, by hand: what could become a pass.

Each function changes the model in place and relies on the shape of this one graph, exported with
``--no-fuse``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

HEADS = 12
CONTRIB = "com.microsoft"
Rewrite = Callable[[ir.Model], None]


def opset(version: int) -> Rewrite:
    """Declare another opset: every operator of the graph means the same in it."""

    def rewrite(model: ir.Model) -> None:
        model.opset_imports[""] = version

    return rewrite


def gelu(model: ir.Model) -> None:
    """Eight nodes of tanh-GELU become the standard ``Gelu`` of opset 20."""
    hidden, last = _gelu_ends(model)
    _replace(last, "", "Gelu", [hidden], [ir.AttrString("approximate", "tanh")])


def fast_gelu(model: ir.Model) -> None:
    """The bias before them too become com.microsoft's ``FastGelu``."""
    hidden, last = _gelu_ends(model)
    add = _producer(hidden)
    _replace(last, CONTRIB, "FastGelu", [add.inputs[0], add.inputs[1]], [])


def skip_layer_norm(model: ir.Model) -> None:
    """Bias, residual and normalization become com.microsoft's ``SkipLayerNormalization``."""
    for node in [n for n in _body(model) if n.op_type == "LayerNormalization"]:
        add = _producer(node.inputs[0])
        residual, biased = sorted(add.inputs, key=_is_biased)
        linear = _producer(biased)
        inputs = [linear.inputs[0], residual, node.inputs[1], node.inputs[2], linear.inputs[1]]
        epsilon = node.attributes.get_float("epsilon", 1e-5)
        _replace(
            node, CONTRIB, "SkipLayerNormalization", inputs, [ir.AttrFloat32("epsilon", epsilon)]
        )


def packed_qkv(model: ir.Model) -> None:
    """Three projections become one ``MatMul`` with packed weights, and a ``Split``."""
    adds = _projections(model)
    weights, biases = _packed(model, adds)
    first = adds[0]
    source = _producer(first.inputs[0]).inputs[0]
    product = ir.Node("", "MatMul", [source, weights], num_outputs=1)
    total = ir.Node("", "Add", [product.outputs[0], biases], num_outputs=1)
    split = ir.Node(
        "",
        "Split",
        [total.outputs[0]],
        [ir.AttrInt64("axis", -1), ir.AttrInt64("num_outputs", 3)],
        num_outputs=3,
    )
    names = ("qkv_product", "qkv", "q", "k", "v")
    for name, output in zip(names, (*product.outputs, *total.outputs, *split.outputs), strict=True):
        output.name = name
    _body(model).insert_before(_first(model), [product, total, split])
    for add, part in zip(adds, split.outputs, strict=True):
        part.type, part.shape = add.outputs[0].type, add.outputs[0].shape
        add.outputs[0].replace_all_uses_with(part)


def multi_head_attention(model: ir.Model) -> None:
    """From the projections to the joined heads: com.microsoft's ``MultiHeadAttention``."""
    query, key, value = (add.outputs[0] for add in _projections(model))
    inputs = [query, key, value, None, None, _mask(model)]
    attributes = [ir.AttrInt64("num_heads", HEADS)]
    _replace(_joined_heads(model), CONTRIB, "MultiHeadAttention", inputs, attributes)


def contrib_attention(model: ir.Model) -> None:
    """The projections too: com.microsoft's ``Attention`` with packed weights."""
    adds = _projections(model)
    source = _producer(adds[0].inputs[0]).inputs[0]
    weights, biases = _packed(model, adds)
    inputs = [source, weights, biases, None, None, _mask(model)]
    attributes = [ir.AttrInt64("num_heads", HEADS)]
    _replace(_joined_heads(model), CONTRIB, "Attention", inputs, attributes)


def standard_attention(model: ir.Model) -> None:
    """From the projections to the joined heads: the standard ``Attention`` of opset 23."""
    query, key, value = (add.outputs[0] for add in _projections(model))
    attributes = [ir.AttrInt64("q_num_heads", HEADS), ir.AttrInt64("kv_num_heads", HEADS)]
    _replace(_joined_heads(model), "", "Attention", [query, key, value, _mask(model)], attributes)


VARIANTS: dict[str, tuple[Rewrite, ...]] = {
    "as exported (opset 18)": (),
    "opset 20, no fusion": (opset(20),),
    "opset 23, no fusion": (opset(23),),
    "Gelu-20": (opset(20), gelu),
    "FastGelu": (fast_gelu,),
    "SkipLayerNormalization": (skip_layer_norm,),
    "packed QKV MatMul": (packed_qkv,),
    "MultiHeadAttention": (multi_head_attention,),
    "com.microsoft.Attention": (contrib_attention,),
    "Attention-23": (opset(23), standard_attention),
    "packed QKV MatMul + MultiHeadAttention": (multi_head_attention, packed_qkv),
    "packed QKV MatMul + Attention-23": (opset(23), standard_attention, packed_qkv),
    "Attention-23 + Gelu-20": (opset(23), standard_attention, gelu),
    "MultiHeadAttention + FastGelu + SkipLayerNormalization": (
        multi_head_attention,
        fast_gelu,
        skip_layer_norm,
    ),
    "com.microsoft.Attention + FastGelu + SkipLayerNormalization": (
        contrib_attention,
        fast_gelu,
        skip_layer_norm,
    ),
}


def make_variants(source: Path, folder: Path) -> dict[str, Path]:
    """Write every variant of the rolled file ``source``; return name → path."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for number, (name, rewrites) in enumerate(VARIANTS.items()):
        model = ir.load(source)
        for rewrite in rewrites:
            rewrite(model)
        if any(node.domain == CONTRIB for node in _body(model)):
            model.opset_imports[CONTRIB] = 1
        RemoveUnusedNodesPass()(model)
        paths[name] = folder / f"{number:02}.onnx"
        ir.save(model, paths[name])
    return paths


def _body(model: ir.Model) -> ir.Graph:
    loop = next(node for node in model.graph if node.op_type == "Loop")
    return loop.attributes["body"].as_graph()


def _first(model: ir.Model) -> ir.Node:
    return next(iter(_body(model)))


def _one(model: ir.Model, op_type: str) -> ir.Node:
    (node,) = (node for node in _body(model) if node.op_type == op_type)
    return node


def _producer(value: ir.Value | None) -> ir.Node:
    node = None if value is None else value.producer()
    assert node is not None, f"{value} has no producer"
    return node


def _gelu_ends(model: ir.Model) -> tuple[ir.Value, ir.Node]:
    (plus_one,) = _one(model, "Tanh").outputs[0].consumers()
    (last,) = plus_one.outputs[0].consumers()
    hidden = _one(model, "Pow").inputs[0]
    assert hidden is not None
    return hidden, last


def _is_biased(value: ir.Value | None) -> bool:
    """Whether ``value`` is a MatMul's result with its bias added."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Add":
        return False
    inner = node.inputs[0]
    return inner is not None and (p := inner.producer()) is not None and p.op_type == "MatMul"


def _projections(model: ir.Model) -> list[ir.Node]:
    """Return the ``Add`` nodes that end the query, key and value projections."""
    adds = {}
    for node in _body(model):
        if node.op_type == "Add" and node.inputs[1] is not None:
            for part in ("query", "key", "value"):
                if f".{part}.bias" in str(node.inputs[1].name):
                    adds[part] = node
    return [adds["query"], adds["key"], adds["value"]]


def _joined_heads(model: ir.Model) -> ir.Node:
    """Return the ``Reshape`` that joins the heads: the input of the output projection."""
    for node in _body(model):
        if node.op_type == "MatMul" and ".dense.weight" in str(node.inputs[1]):
            return _producer(node.inputs[0])
    raise AssertionError("no output projection")


def _mask(model: ir.Model) -> ir.Value:
    mask = _producer(_one(model, "Softmax").inputs[0]).inputs[1]
    assert mask is not None
    return mask


def _packed(model: ir.Model, adds: list[ir.Node]) -> tuple[ir.Value, ir.Value]:
    """Register the three weights side by side, and the three biases."""
    weights = [_producer(add.inputs[0]).inputs[1] for add in adds]
    biases = [add.inputs[1] for add in adds]
    found = []
    for name, parts in (("qkv.weight", weights), ("qkv.bias", biases)):
        tensors = [part.const_value for part in parts if part is not None]
        array = np.concatenate([t.numpy() for t in tensors if t is not None], axis=-1)
        value = ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape(array.shape),
            const_value=ir.tensor(array, name=name),
        )
        model.graph.register_initializer(value)
        found.append(value)
    return found[0], found[1]


def _replace(
    last: ir.Node,
    domain: str,
    op_type: str,
    inputs: list[ir.Value | None],
    attributes: list[ir.Attr],
) -> None:
    """Put one node in place of the chain that ends in ``last``."""
    node = ir.Node(domain, op_type, inputs, attributes, num_outputs=1)
    old, new = last.outputs[0], node.outputs[0]
    new.type, new.shape = old.type, old.shape
    graph = last.graph
    assert graph is not None
    graph.insert_before(last, node)
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name, old.name = old.name, None
