"""Find weights, every operation that uses each, and what stands in the way of changing one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from exporter.passes.scopes import all_graphs, lineage, parent_graphs

__all__ = ["SizeUse", "Weight", "WeightUse", "find_weights"]


@dataclass(frozen=True)
class WeightUse:
    """One operation on a weight.

    Args:
        node: the ``MatMul``, ``Gemm``, ``Gather`` or other operator.
        operator: its name, with its domain if that is not ONNX's own.
        transposed: a product multiplies by the transpose of the stored weight.
        path: ``Identity`` and ``Transpose`` nodes between weight and operation.
    """

    node: ir.Node
    operator: str
    transposed: bool
    path: tuple[ir.Node, ...]

    @property
    def is_lookup(self) -> bool:
        """Whether rows are looked up, rather than multiplied by."""
        return self.operator == "Gather"

    @property
    def name(self) -> str:
        """What reports call it: the node, or its output."""
        return str(self.node.name or self.node.outputs[0].name)


@dataclass(frozen=True)
class SizeUse:
    """One ``Shape`` of a weight, or of its transpose, behind ``path``."""

    node: ir.Node
    transposed: bool
    path: tuple[ir.Node, ...]


@dataclass
class Weight:
    """A stored tensor that products or lookups use.

    Args:
        value: the initializer.
        uses: all operations on it.
        sizes: questions for its sizes.
        fixed: why the tensor must stay as it is, whatever the form; empty if it need not.
        obstacles: why its uses cannot read a matrix of integers; empty if they can.
    """

    value: ir.Value
    uses: list[WeightUse] = field(default_factory=list)
    sizes: list[SizeUse] = field(default_factory=list)
    fixed: list[str] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the initializer."""
        return str(self.value.name)

    @property
    def tensor(self) -> ir.TensorProtocol:
        """The stored tensor."""
        assert self.value.const_value is not None
        return self.value.const_value

    @property
    def operators(self) -> set[str]:
        """Operators that use it."""
        return {use.operator for use in self.uses}

    @property
    def products(self) -> list[WeightUse]:
        """Uses as a factor."""
        return [use for use in self.uses if not use.is_lookup]

    @property
    def summed_axes(self) -> set[int]:
        """Axes of the stored tensor that its products sum over."""
        return {1 if use.transposed else 0 for use in self.products}


# Operators that multiply by weights and have no form here: they count as not reached.
_OTHERS = frozenset(
    {
        ("", "Conv"),
        ("", "ConvTranspose"),
        ("", "Einsum"),
        ("com.microsoft", "Attention"),
        ("com.microsoft", "EmbedLayerNormalization"),
        ("com.microsoft", "FusedMatMul"),
    }
)


_SMALL_INTEGERS = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


def find_weights(model: ir.Model) -> list[Weight]:
    """Find every floating-point initializer that is a factor or a looked-up table.

    ``fixed`` and ``obstacles`` of what is found say what can be done with it.

    The main graph, branches and loop bodies are searched, and uses are followed into them.
    ``Identity`` and ``Transpose`` are followed, and so is the choice of one layer's part of a
    stack inside a loop, which is an obstacle. A matrix that no operation uses as a weight is
    listed too, with what uses it as the reason, from 4 KiB on: so that nobody takes a file for
    reduced throughout that is not. Vectors of all layers in a stack are no matrix.
    """
    iterations = {
        body.inputs[0]
        for graph in all_graphs(model)
        for node in graph
        if node.op_type == "Loop" and not node.domain
        if (body := node.attributes["body"].as_graph()).inputs
    }
    weights = []
    parents = parent_graphs(model)
    for graph in parents:
        for value in graph.initializers.values():
            weight = _read(value, iterations)
            if weight is None:
                continue
            if not weight.uses:
                if not _is_other_matrix(weight):
                    continue
                weight.fixed.append(f"no product or lookup: {'; '.join(weight.obstacles)}")
                weight.obstacles.clear()
            if lineage(graph, parents)[-1] is not model.graph:
                weight.fixed.append("belongs to a function")
            weights.append(weight)
    return weights


_OTHER_MATRIX_BYTES = 4096
_ONE_ROW = "a single row of it is read"


def _is_other_matrix(weight: Weight) -> bool:
    """Whether a tensor without a product or lookup is large enough to be told of."""
    used_otherwise = bool(weight.obstacles) and weight.obstacles != [_ONE_ROW]
    matrix = len(weight.tensor.shape) > 1 and weight.tensor.dtype == ir.DataType.FLOAT
    return used_otherwise and matrix and weight.tensor.nbytes >= _OTHER_MATRIX_BYTES


def _read(value: ir.Value, iterations: set[ir.Value]) -> Weight | None:
    tensor = value.const_value
    if tensor is None or not tensor.dtype.is_floating_point() or not len(tensor.shape):
        return None
    weight = Weight(value)
    if value.is_graph_input():
        weight.fixed.append("is an input: callers may override it")
    if tensor.dtype != ir.DataType.FLOAT:
        weight.fixed.append(f"holds {tensor.dtype.name.lower()}")
    if len(tensor.shape) != 2:
        weight.obstacles.append(f"has {len(tensor.shape)} dimensions, not 2")
    if 0 in tuple(tensor.shape):
        weight.fixed.append("is empty")
    _follow(weight, value, (), False, iterations)
    weight.fixed = list(dict.fromkeys(weight.fixed))
    weight.obstacles = list(dict.fromkeys(weight.obstacles))
    return weight


def _follow(
    weight: Weight,
    value: ir.Value,
    path: tuple[ir.Node, ...],
    transposed: bool,
    iterations: set[ir.Value],
) -> None:
    """Add the uses of ``value``, which is the weight behind ``path``."""
    if value.is_graph_output():
        weight.fixed.append("is an output")
    for node, index in value.uses():
        kind = (node.domain, node.op_type)
        if kind == ("", "Identity"):
            _follow(weight, node.outputs[0], (*path, node), transposed, iterations)
        elif kind == ("", "Transpose") and len(weight.tensor.shape) == 2:
            perm = list(node.attributes.get_ints("perm", (1, 0)))
            turned = transposed ^ (perm == [1, 0])
            _follow(weight, node.outputs[0], (*path, node), turned, iterations)
        elif kind == ("", "Gather") and _picks_one(node.inputs[1], iterations):
            if index == 0 and len(weight.tensor.shape) > 2:
                weight.obstacles.append("is a stack of layers' weights")
                _follow(weight, node.outputs[0], (*path, node), transposed, iterations)
            else:
                weight.obstacles.append(_ONE_ROW)
        elif kind == ("", "Shape"):
            weight.sizes.append(SizeUse(node, transposed, path))
            if node.outputs[0].is_graph_output():
                weight.fixed.append("has its sizes as an output")
        elif kind in (("", "MatMul"), ("", "Gemm"), ("", "Gather")) or kind in _OTHERS:
            _use(weight, node, index, path, transposed)
        else:
            weight.obstacles.append(f"also used by {node.op_type}")


def _use(
    weight: Weight, node: ir.Node, index: int, path: tuple[ir.Node, ...], transposed: bool
) -> None:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    is_table = operator == "Gather" and index == 0 and len(weight.tensor.shape) > 1
    if operator == "Gather" and not is_table:
        weight.obstacles.append("also used by Gather, as a vector")
        return
    if is_table and _is_scales(weight, node):
        return
    if operator == "Gemm" and index == 2:
        weight.obstacles.append("also used by Gemm, as a bias")
        return
    if operator == "Gemm" and index == 1:
        transposed ^= bool(node.attributes.get_int("transB", 0))
    weight.uses.append(WeightUse(node, operator, transposed, path))
    weight.obstacles.extend(_obstacles(node, index, transposed))


def _is_scales(weight: Weight, lookup: ir.Node) -> bool:
    """Whether this table holds the scales of small integers looked up by the same indices.

    It then has as many rows, a number for each 8 bytes of integers at most, and its rows are
    factors.
    """
    if not _is_factor(lookup.outputs[0]):
        return False
    indices = lookup.inputs[1]
    assert indices is not None
    for node in indices.consumers():
        table = node.inputs[0]
        tensor = None if table is None else table.const_value
        if node.op_type != "Gather" or node.domain or tensor is None:
            continue
        if tensor.dtype in _SMALL_INTEGERS and len(tensor.shape) > 1:
            alike = tensor.shape[0] == weight.tensor.shape[0]
            if alike and 8 * weight.tensor.size <= tensor.size:
                return True
    return False


def _is_factor(value: ir.Value) -> bool:
    """Whether ``value``, cast or reshaped, goes into a ``Mul``, as a zero point into a ``Sub``."""
    for node in value.consumers():
        if node.op_type in ("Mul", "Sub"):
            return True
        if node.op_type in ("Cast", "Reshape", "Unsqueeze") and _is_factor(node.outputs[0]):
            return True
    return False


def _obstacles(node: ir.Node, index: int, transposed: bool) -> Iterator[str]:
    """Yield what keeps this operation from using a weight in another form."""
    if (node.domain, node.op_type) in _OTHERS:
        yield f"used by {node.op_type}, which has no form of fewer bits"
    elif node.op_type == "Gather":
        if transposed or node.attributes.get_int("axis", 0) != 0:
            yield "looked up by columns"
    elif index == 0:
        yield f"the left factor of a {node.op_type}"
    elif node.op_type == "Gemm":
        for name, plain in (("alpha", 1.0), ("beta", 1.0)):
            if (factor := node.attributes.get_float(name, plain)) != plain:
                yield f"used by a Gemm whose {name} is {factor:g}"
        if node.attributes.get_int("transA", 0):
            yield "used by a Gemm that transposes its left factor"


def _picks_one(index: ir.Value | None, iterations: set[ir.Value]) -> bool:
    """Whether ``index`` picks one slice, as the number of a layer does, and is no lookup."""
    if index is None:
        return False
    if index in iterations or (index.shape is not None and index.shape.rank() == 0):
        return True
    node = index.producer()
    if node is None or node.domain or node.op_type != "Gather":
        return False
    return _picks_one(node.inputs[1], iterations)
