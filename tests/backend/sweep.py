"""What a graph must be after the whole recipe, whatever it was before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.backend.test.runner import Runner

from exporter.accounting import stored_bytes
from exporter.passes.recipes import SharingContract, capture_recipe, run_recipe
from exporter.pipeline.layout import LaidOut, lay_out
from tests.backend.cases import Case
from tests.backend.ort import Session, same_bits

__all__ = ["LAYOUTS", "Unrunnable", "apply_recipe", "outputs_as_it_is", "assert_unchanged", "passes_as_it_is"]

LAYOUTS = ("auto", "unrolled")

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


class Unrunnable(Exception):  # noqa: N818 - it is a verdict, not a fault
    """onnxruntime does not run the model as it is, or not to what is expected."""


def outputs_as_it_is(proto: onnx.ModelProto, feeds: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
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
    return any(node.op_type in _RANDOM for node in ir.from_proto(proto).graph.all_nodes())


def apply_recipe(proto: onnx.ModelProto, layout: str) -> tuple[onnx.ModelProto, LaidOut]:
    """Put ``proto`` through everything an ``.onnx`` source goes through."""
    model = ir.from_proto(proto)
    run_recipe(model, capture_recipe())
    contract = SharingContract(stored_bytes(model))
    laid_out = lay_out(model, layout, contract)  # type: ignore[arg-type]
    return ir.to_proto(laid_out.model), laid_out


def assert_unchanged(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    feeds: Sequence[Mapping[str, Any]],
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
        if is_random(before):
            continue
        for info, one, other in zip(before.graph.output, actual, wanted, strict=True):
            assert same_bits(one, other), f"{info.name}: {one} is not {other}"


def _signature(proto: onnx.ModelProto) -> list[tuple[str, str, bytes]]:
    return [
        (kind, info.name, info.type.SerializeToString(deterministic=True))
        for kind, infos in (("in", proto.graph.input), ("out", proto.graph.output))
        for info in infos
    ]


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
