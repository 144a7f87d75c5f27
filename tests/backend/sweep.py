"""What a graph must be after the whole recipe, whatever it was before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

from exporter.accounting import stored_bytes
from exporter.checkpoint.graph_file import modernize
from exporter.passes.recipes import SharingContract, capture_recipe, run_recipe
from exporter.pipeline.layout import lay_out
from tests.backend.cases import Case
from tests.backend.ort import Session, same_bits

__all__ = [
    "Laid",
    "Unrunnable",
    "apply_recipe",
    "assert_unchanged",
    "is_random",
    "outputs_as_it_is",
    "passes_as_it_is",
]

_IR_WITH_CONSTANTS = 4

# Trip counts of loops, shapes: what a recipe may add to the tensors of a file.
_ADDED_BYTES = 64

_RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)


Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Laid:
    """A model after the recipe.

    Args:
        layouts: the model by layout; ``unrolled`` only where it is another one.
        loops: how many loops the recipe made.
    """

    layouts: Mapping[str, onnx.ModelProto]
    loops: int


class Unrunnable(Exception):  # noqa: N818
    """onnxruntime does not run the model as it is, or not to what is expected."""


def outputs_as_it_is(proto: onnx.ModelProto, feeds: Iterable[Feeds]) -> list[list[Any]]:
    """Run ``proto`` before any pass.

    Raises:
        Unrunnable: with onnxruntime's reason.
    """
    try:
        session = Session(proto.SerializeToString())
        return [session.run(feed) for feed in feeds]
    except Exception as error:
        raise Unrunnable(f"{type(error).__name__}: {error}") from error


def passes_as_it_is(case: Case) -> list[list[Any]]:
    """Run a case before any pass; return what onnxruntime gives for each data set.

    Raises:
        Unrunnable: it does not run, or not to what the case expects.
    """
    results = outputs_as_it_is(case.proto, case.feeds)
    if is_random(case.proto):
        return results
    for actual, expected in zip(results, case.expected, strict=True):
        try:
            Runner.assert_similar_outputs(
                [_plain(one) for one in expected],
                [_plain(one) for one in actual],
                rtol=case.rtol,
                atol=case.atol,
            )
        except (AssertionError, TypeError) as error:
            raise Unrunnable(f"gives something else: {error}") from error
    return results


def is_random(proto: onnx.ModelProto) -> bool:
    """Whether two runs of a model may differ."""
    return any(node.op_type in _RANDOM for node in _all_nodes(proto))


def apply_recipe(proto: onnx.ModelProto) -> Laid:
    """Put ``proto`` through everything an ``.onnx`` source goes through, in both layouts."""
    model = ir.from_proto(proto)
    modernize(model)
    run_recipe(model, capture_recipe())
    laid_out = lay_out(model, "auto", SharingContract(stored_bytes(model)))
    assert laid_out.report is not None
    auto = ir.to_proto(laid_out.model)
    layouts = {"auto": auto}
    if any(node.op_type == "Loop" for node in auto.graph.node):
        layouts["unrolled"] = ir.to_proto(laid_out.unrolled)
    return Laid(layouts, len(laid_out.report.loops))


def assert_unchanged(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    feeds: Sequence[Feeds],
    expected: Sequence[Sequence[Any]],
) -> None:
    """Assert that callers cannot tell two models apart, and that the second is no larger.

    Raises:
        AssertionError: says in which respect they differ.
    """
    assert _signature(after) == _signature(before), "inputs or outputs changed"
    if _checker_accepts(before):
        onnx.checker.check_model(after, full_check=True)
    grown = stored_bytes(ir.from_proto(after)) - stored_bytes(ir.from_proto(before))
    assert grown <= _ADDED_BYTES, f"{grown} bytes larger"
    session = Session(after.SerializeToString())
    for feed, wanted in zip(feeds, expected, strict=True):
        actual = session.run(feed)
        assert len(actual) == len(wanted)
        if is_random(before) or same_bits(actual, wanted):
            continue
        assert _holds_halves(before), f"{actual} is not {wanted}"
        # Without kernels for float16, onnxruntime computes in float32 and leaves out roundings
        # to float16 between nodes it sees together: its results depend on the layout.
        reference = [_reference(model, feed) for model in (after, before)]
        assert same_bits(*reference), f"{reference[0]} is not {reference[1]}"


def _signature(proto: onnx.ModelProto) -> list[tuple[str, str, bytes]]:
    # A format as old as this lists weights as inputs, and callers may not feed them.
    old = proto.ir_version < _IR_WITH_CONSTANTS
    weights = {tensor.name for tensor in proto.graph.initializer} if old else set()
    return [
        (kind, info.name, info.type.SerializeToString(deterministic=True))
        for kind, infos in (("in", proto.graph.input), ("out", proto.graph.output))
        for info in infos
        if info.name not in weights
    ]


def _all_nodes(holder: onnx.ModelProto | onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    if isinstance(holder, onnx.ModelProto):
        yield from _all_nodes(holder.graph)
        for function in holder.functions:
            yield from function.node
        return
    for node in holder.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def _reference(proto: onnx.ModelProto, feed: Feeds) -> list[Any]:
    """Run ``proto`` in onnx's own evaluator, which rounds after every node."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for node in copy.graph.node:
        if node.op_type == "Loop" and not node.input[1]:
            node.input[1] = "always"  # the evaluator takes an omitted condition for a false one
    copy.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    return ReferenceEvaluator(copy).run(None, dict(feed))


def _holds_halves(proto: onnx.ModelProto) -> bool:
    types = {value.dtype for node in _inferred(proto).graph.all_nodes() for value in node.outputs}
    return ir.DataType.FLOAT16 in types


def _inferred(proto: onnx.ModelProto) -> ir.Model:
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def _checker_accepts(proto: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(proto, full_check=True)
    except Exception:
        return False
    return True


def _plain(value: Any) -> Any:
    """Show types that numpy cannot compare with a tolerance as float32."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray) and value.dtype.isbuiltin != 1 and value.dtype != object:
        return value.astype(np.float32)
    return np.asarray(value, object) if value is None else value
