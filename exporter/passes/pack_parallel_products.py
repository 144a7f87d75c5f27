"""Multiply one value with query, key and value weights at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names, lineage, owner, parent_graphs
from exporter.precision import Keep

__all__ = ["PackParallelProductsPass"]

_OLDEST_OPSET = 13
"""Before it, ``Split`` took its sizes another way."""
_COUNTED_SINCE = 18
"""``Split`` into equal parts names their number since then; before, its outputs say it."""

Site = tuple[ir.Graph, ir.Value]
"""The graph of a product, and what is multiplied there."""


class PackParallelProductsPass(ReportingPass):
    """Replace products of one value with several weights by one product and a ``Split``.

    ::

        q = Add(MatMul(x, Wq), bq)            p = Add(MatMul(x, W), b)
        k = Add(MatMul(x, Wk), bk)     ->     q, k, v = Split <axis = -1> (p)
        v = Add(MatMul(x, Wv), bv)            W = [Wq | Wk | Wv], b = [bq | bk | bv]

    1. Two or more float initializers ``[K, N_i]`` of one graph, each the right factor of every
       ``MatMul`` that uses it, where all of them are multiplied with the same values ``x``, in
       the same graphs, once each. The order of the products plays no part.
    2. Sharing stays: where layers multiply the same weights with ``x1``, ``x2``, …, one
       initializer ``W`` replaces the parts, and each ``x`` gets one product. ``W`` stands in
       the graph that held the parts, which go.
    3. Biases are packed too, where each of the products has one user, an ``Add`` of an
       initializer ``[N_i]``, and all uses of each bias are at one place of one such row of
       biases: then the parts go. Otherwise (equal zero biases that are stored once, a product
       that is a graph output) the ``Add`` nodes stay, after the ``Split``.
    4. Left alone: weights that are graph inputs or outputs, that anything else uses (a table
       that a lookup reads too, a product in which they are the left factor), that are
       multiplied with one value twice, or that have no partner for all their products; graphs
       inside functions; models of an opset before 13.
    5. The results keep their names, also as graph outputs. The new ``MatMul`` and ``Add`` keep
       names and metadata of the first they replace. Types and shapes are set, so that layers
       can be rolled afterwards.

    Stored bytes stay the same if the parts are equally wide. Otherwise ``Split`` reads their
    widths from an initializer: 8 bytes per part, once for all parts of the same widths.

    Measured on ALBERT-base, rolled, float32, one thread, as the share of the latency without
    it: 0.935 at sequence 16 and 0.963 at 128 in onnxruntime on a CPU, 0.869 and 0.967 in
    onnxruntime-web in Node; memory the same. (``benchmarks/layout/fusions.md``.)

    Outputs are bit-identical in onnxruntime on a CPU as it runs by default. With
    ``session.disable_prepacking`` they are, on one thread, if each ``N_i`` is above 64 or ``K``
    is at most 128. Else narrow products are summed in longer chunks of ``K`` than wide ones,
    and the last bits may differ.
    """

    def __init__(self, keep: Sequence[Keep] = ()) -> None:
        super().__init__()
        self._keep = tuple(keep)

    def rewrite(self, model: ir.Model) -> None:
        """Pack in the main graph and the graphs inside it."""
        products, order = _products(model)
        crowd = Counter(_site(node) for nodes in products.values() for node in nodes)
        parallel: dict[Hashable, list[ir.Value]] = defaultdict(list)
        for weight, nodes in products.items():
            if all(crowd[_site(node)] == 1 for node in nodes):
                continue
            if reason := self._kept(weight, nodes) or _reason_to_skip(weight, nodes):
                self.skipped.append(Skip(str(weight.name), reason))
            else:
                parallel[owner(weight), frozenset(map(_site, nodes))].append(weight)
        opset = model.opset_imports.get("", 0)
        packer = _Packer(Names(model), opset)
        for weights in parallel.values():
            if len(weights) == 1:
                self.skipped.append(Skip(str(weights[0].name), _ALONE))
            elif opset < _OLDEST_OPSET:
                reason = f"Split takes its sizes another way in opset {opset}"
                self.skipped.append(Skip(str(weights[0].name), reason))
            else:
                self._pack([(weight, products[weight]) for weight in weights], order, packer)

    def _kept(self, weight: ir.Value, nodes: list[ir.Node]) -> str | None:
        names = [str(weight.name), *(str(node.name or node.outputs[0].name) for node in nodes)]
        for keep in self._keep:
            if any(keep.matches(name) for name in names):
                return f"kept: its name matches {keep.pattern!r}"
        return None

    def _pack(
        self,
        parts: list[tuple[ir.Value, list[ir.Node]]],
        order: dict[ir.Node, int],
        packer: _Packer,
    ) -> None:
        at: dict[Site, list[ir.Node]] = defaultdict(list)
        for _, nodes in parts:
            for node in nodes:
                at[_site(node)].append(node)
        groups = list(at.values())
        rows = _bias_rows(groups)
        if isinstance(rows, str):
            self.skipped.append(Skip(str(groups[0][0].outputs[0].name), rows))
            rows = [None] * len(groups)
        weights = [weight for weight, _ in parts]
        grown = packer.register_widths(weights)
        for group, row in zip(groups, rows, strict=True):
            packer.replace(weights, group, row, first=min(group, key=order.__getitem__))
        packed = packer.packed[tuple(weights)]
        packer.drop_unused()
        partners = ", ".join(str(weight.name) for weight in weights[1:])
        detail = f"packed with {partners} into {packed.name!r}, in {len(groups)} products"
        self.matches.append(Match(str(weights[0].name), detail, saved_bytes=-grown))


_ALONE = "has no partner: a weight of the same graph, multiplied with the same values"


@dataclass(frozen=True)
class _Row:
    """The biases of the products of one value, and the nodes that add them."""

    biases: tuple[ir.Value, ...]
    adds: tuple[ir.Node, ...]


@dataclass
class _Packer:
    """Makes packed initializers, each once, and the nodes that use them."""

    names: Names
    opset: int
    packed: dict[tuple[ir.Value, ...], ir.Value] = field(default_factory=dict)
    _widths: dict[Hashable, ir.Value] = field(default_factory=dict)

    def register_widths(self, weights: list[ir.Value]) -> int:
        """Store the widths if ``Split`` needs them and they are new; return the bytes."""
        widths = _widths_of(weights)
        key = owner(weights[0]), widths
        if len(set(widths)) == 1 or key in self._widths:
            return 0
        sizes = np.array(widths, np.int64)
        self._widths[key] = self._register(owner(weights[0]), f"{weights[0].name}_widths", sizes)
        return sizes.nbytes

    def pack(self, parts: tuple[ir.Value, ...]) -> ir.Value:
        """Return the initializer that holds ``parts`` side by side."""
        if parts not in self.packed:
            array = np.concatenate([_tensor(part).numpy() for part in parts], axis=-1)
            self.packed[parts] = self._register(owner(parts[0]), f"{parts[0].name}_packed", array)
        return self.packed[parts]

    def replace(
        self, weights: list[ir.Value], group: list[ir.Node], row: _Row | None, first: ir.Node
    ) -> None:
        """Replace the products ``group`` of one value, and the additions of ``row``."""
        width = sum(_widths_of(weights))
        new = [self._like(first, [first.inputs[0], self.pack(tuple(weights))], width)]
        ends = list(group)
        if row is not None:
            add = row.adds[group.index(first)]
            new.append(self._like(add, [new[0].outputs[0], self.pack(row.biases)], width))
            ends = list(row.adds)
        old_values = [node.outputs[0] for node in ends]
        new_values = [_copy(value) for value in old_values]
        new.append(self._split(new[-1].outputs[0], weights, new_values))
        graph, gone = first.graph, group if row is None else [*group, *ends]
        assert graph is not None
        ir.convenience.replace_nodes_and_values(graph, first, gone, new, old_values, new_values)

    def drop_unused(self) -> None:
        """Remove the parts of packed initializers."""
        for part in {part: None for parts in self.packed for part in parts}:
            if not part.uses() and part.name is not None and part.graph is not None:
                del owner(part).initializers[part.name]

    def _like(self, node: ir.Node, inputs: list[ir.Value | None], width: int) -> ir.Node:
        old = node.outputs[0]
        output = _copy(old)
        output.name = self.names.fresh(f"{old.name}_packed")
        output.shape = None if old.shape is None else ir.Shape([*old.shape[:-1], width])
        return ir.Node(
            "",
            node.op_type,
            inputs,
            outputs=[output],
            name=node.name,
            doc_string=node.doc_string,
            metadata_props=dict(node.metadata_props),
        )

    def _split(self, value: ir.Value, weights: list[ir.Value], outputs: list[ir.Value]) -> ir.Node:
        sizes = self._widths.get((owner(weights[0]), _widths_of(weights)))
        attributes = [ir.AttrInt64("axis", -1)]
        if sizes is None and self.opset >= _COUNTED_SINCE:
            attributes.append(ir.AttrInt64("num_outputs", len(outputs)))
        inputs = [value] if sizes is None else [value, sizes]
        return ir.Node("", "Split", inputs, attributes, outputs=outputs)

    def _register(self, graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
        name = self.names.fresh(name)
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(array.shape),
            const_value=tensor,
        )
        graph.register_initializer(value)
        return value


def _products(model: ir.Model) -> tuple[dict[ir.Value, list[ir.Node]], dict[ir.Node, int]]:
    """Return weight → the products it is the right factor of, and the place of each product."""
    parents = parent_graphs(model)
    products: dict[ir.Value, list[ir.Node]] = defaultdict(list)
    order: dict[ir.Node, int] = {}
    for graph in parents:
        # A function may import another opset than the model.
        for node in graph if lineage(graph, parents)[-1] is model.graph else ():
            if node.op_type == "MatMul" and not node.domain and _is_matrix(node.inputs[1]):
                assert node.inputs[1] is not None
                products[node.inputs[1]].append(node)
                order[node] = len(order)
    return products, order


def _reason_to_skip(weight: ir.Value, products: Sequence[ir.Node]) -> str | None:
    if weight.is_graph_input():
        return "is an input: callers may override it"
    if weight.is_graph_output():
        return "is a graph output"
    if len(weight.uses()) > len(products):
        others = sorted({n.op_type for n, i in weight.uses() if n not in products or i == 0})
        return f"has other uses: {', '.join(others)}"
    if len(set(map(_site, products))) < len(products):
        return "is multiplied with one value twice"
    return None


def _bias_rows(groups: Sequence[Sequence[ir.Node]]) -> Sequence[_Row | None] | str:
    """Return the biases of each group of products, or say why they stay where they are."""
    rows: list[_Row] = []
    if not any(user.op_type == "Add" for node in groups[0] for user in node.outputs[0].consumers()):
        return [None] * len(groups)
    for group in groups:
        found = [_bias_and_add(node) for node in group]
        row = [pair for pair in found if pair is not None]
        if len(row) < len(found):
            return "its bias stays: not all products have one user, an Add of an initializer [N]"
        rows.append(_Row(tuple(bias for bias, _ in row), tuple(add for _, add in row)))
    adds = {add for row in rows for add in row.adds}
    distinct = [bias for biases in {row.biases: None for row in rows} for bias in biases]
    if len(set(distinct)) < len(distinct) or any(
        user not in adds for bias in distinct for user in bias.consumers()
    ):
        return "its bias stays: packed, a bias that is used elsewhere too would be stored twice"
    if len({owner(bias) for bias in distinct}) > 1:
        return "its bias stays: the biases are stored in different graphs"
    return rows


def _bias_and_add(product: ir.Node) -> tuple[ir.Value, ir.Node] | None:
    result, weight = product.outputs[0], product.inputs[1]
    if result.is_graph_output() or len(result.uses()) != 1:
        return None
    (add,) = result.consumers()
    if add.op_type != "Add" or add.domain or add.graph is not product.graph:
        return None
    (bias,) = (value for value in add.inputs if value is not result)
    if bias is None or weight is None or not _is_constant(bias):
        return None
    if bias.is_graph_input() or bias.is_graph_output():
        return None
    fits = tuple(_tensor(bias).shape) == tuple(_tensor(weight).shape)[1:]
    return (bias, add) if fits else None


def _site(product: ir.Node) -> Site:
    graph, multiplied = product.graph, product.inputs[0]
    assert isinstance(graph, ir.Graph) and multiplied is not None
    return graph, multiplied


def _is_matrix(value: ir.Value | None) -> bool:
    if value is None or not _is_constant(value):
        return False
    tensor = _tensor(value)
    return tensor.dtype.is_floating_point() and len(tensor.shape) == 2


def _is_constant(value: ir.Value) -> bool:
    return value.is_initializer() and value.const_value is not None


def _tensor(value: ir.Value) -> ir.TensorProtocol:
    assert value.const_value is not None
    return value.const_value


def _widths_of(weights: Sequence[ir.Value]) -> tuple[int, ...]:
    return tuple(int(_tensor(weight).shape.numpy()[1]) for weight in weights)


def _copy(value: ir.Value) -> ir.Value:
    return ir.Value(
        name=value.name,
        type=value.type,
        shape=value.shape,
        doc_string=value.doc_string,
        metadata_props=dict(value.metadata_props),
    )
