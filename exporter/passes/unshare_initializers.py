"""Give each use of a weight its own values: the unshared baseline."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from exporter.errors import PassError
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names, parent_graphs

__all__ = ["UnshareInitializersPass"]

# Operators that only present their first input in another way. What uses their output
# uses the weight.
_VIEWS = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})

_NOISE = 0.1
_STD_OF_CONSTANTS = 0.02


class UnshareInitializersPass(ReportingPass):
    """Make a graph whose weights are each used once, of the same operators and shapes.

    ::

        y = MatMul(x, W)              y = MatMul(x, W)
        z = MatMul(y, W)      ->      z = MatMul(y, W_use_2)

    1. A use is a node input that reads the weight, directly or through views (``Transpose``,
       ``Identity``, ``Reshape``, ``Cast``, …). A view with several uses is repeated for each.
    2. The first use keeps the weight, and so does a graph output that reads it.
    3. Each further use gets ``w + 0.1 std(w) normal``, with a standard deviation of 0.02
       for a weight of equal elements; of the weight's type. The numbers depend on the
       seed, the weight's name and the use's position alone. Without ``perturb`` the copies
       are equal in every bit, so outputs must not change.
    4. Copies are computed when read, so they take no memory before the model is written.
    5. Left alone, unless named: integer, boolean and string tensors, scalars, tensors of a
       single element, tensors used once. Initializers that are graph inputs always.
    6. A ``Split`` or ``Slice`` of a weight is one use, whatever becomes of the parts, and so
       is a use in a loop body. Unshare before layers are rolled.

    Args:
        names: initializers to unshare; default: all that are not left alone.
        seed: see 3.
        perturb: see 3.

    Raises:
        PassError: from the call, where a name is unknown, or names a tensor of a type that
            cannot be perturbed.
    """

    def __init__(
        self, names: Collection[str] | None = None, seed: int = 0, perturb: bool = True
    ) -> None:
        super().__init__()
        self.names = names
        self.seed = seed
        self.perturb = perturb

    def rewrite(self, model: ir.Model) -> None:
        """Unshare in the main graph, its inner graphs, and those inside functions."""
        names = Names(model)
        graphs = parent_graphs(model)
        if unknown := set(self.names or ()).difference(*(graph.initializers for graph in graphs)):
            raise PassError(f"cannot unshare {sorted(unknown)[0]!r}: no initializer has that name")
        for graph in graphs:
            for weight in list(graph.initializers.values()):
                if reason := self._reason_to_skip(weight):
                    self.skipped.append(Skip(str(weight.name), reason))
                    continue
                further = _separate_uses(weight, names)[1:]
                for number, (node, index) in enumerate(further, start=2):
                    copy = self._copy(weight, number, names)
                    graph.register_initializer(copy)
                    node.replace_input_with(index, copy)
                    assert copy.const_value is not None
                    detail = f"own copy of {weight.name!r}"
                    self.matches.append(Match(str(copy.name), detail, -copy.const_value.nbytes))

    def _reason_to_skip(self, weight: ir.Value) -> str | None:
        tensor = weight.const_value
        if tensor is None:
            return "holds no tensor"
        if weight.is_graph_input():
            return "is an input: callers may override it"
        if self.names is not None:
            return None if weight.name in self.names else "not among the names given"
        if not tensor.dtype.is_floating_point():
            return f"type {tensor.dtype} holds no weights"
        if tensor.size < 2:
            return "a single element"
        return None

    def _copy(self, weight: ir.Value, number: int, names: Names) -> ir.Value:
        source = weight.const_value
        assert source is not None and weight.name is not None
        if self.perturb and not source.dtype.is_floating_point():
            raise PassError(
                f"{weight.name!r} of type {source.dtype} has no statistics to keep; "
                "unshare it with perturb=False"
            )
        seed = [self.seed, _number_of(weight.name), number]

        def evaluate() -> ir.TensorProtocol:
            return _perturbed(source, seed) if self.perturb else source

        name = names.fresh(f"{weight.name}_use_{number}")
        shape = ir.Shape(source.shape.numpy())
        copy = ir.LazyTensor(evaluate, dtype=source.dtype, shape=shape, name=name)
        return ir.Value(
            name=name, type=ir.TensorType(source.dtype), shape=shape.copy(), const_value=copy
        )


def _separate_uses(value: ir.Value, names: Names) -> list[tuple[ir.Node, int]]:
    """Return the uses of ``value``, after repeating views so that each leads to one use."""
    separate: list[tuple[ir.Node, int]] = []
    for node, index in value.uses():
        separate.append((node, index))
        if node.op_type not in _VIEWS or node.domain or index != 0:
            continue
        for user, position in _separate_uses(node.outputs[0], names)[1:]:
            view = _repeat(node, names)
            user.replace_input_with(position, view.outputs[0])
            separate.append((view, 0))
    return separate


def _repeat(node: ir.Node, names: Names) -> ir.Node:
    old = node.outputs[0]
    shape = None if old.shape is None else old.shape.copy()
    output = ir.Value(name=names.fresh(f"{old.name}_use"), type=old.type, shape=shape)
    view = ir.Node(
        node.domain,
        node.op_type,
        node.inputs,
        node.attributes.values(),
        outputs=[output],
        metadata_props=dict(node.metadata_props),
    )
    assert node.graph is not None
    node.graph.insert_after(node, view)
    return view


def _number_of(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _perturbed(source: ir.TensorProtocol, seed: list[int]) -> ir.TensorProtocol:
    stored = source.numpy()
    values = stored.astype(np.float32)
    std = float(np.std(values, where=np.isfinite(values))) or _STD_OF_CONSTANTS
    noise = np.random.default_rng(seed).standard_normal(values.shape, dtype=np.float32)
    return ir.Tensor((values + _NOISE * std * noise).astype(stored.dtype), dtype=source.dtype)
