"""One finished graph → the same graph in each precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import onnx_ir as ir

from exporter.accounting import stored_bytes
from exporter.errors import PassError
from exporter.passes.quantize_to_int4 import QuantizeToInt4Pass
from exporter.passes.recipes import PassRecord, SharingContract, run_recipe, store_recipe
from exporter.passes.weights.coverage import Coverage, StoredWeight, StoreWeightsPass
from exporter.precision import TRANSFORMERS_JS_FILES, Keep, Precision

__all__ = ["StoredModel", "check_opset", "file_names", "store_model"]

_LISTED = 10
"""How many weights a notice names."""


@dataclass(frozen=True)
class StoredModel:
    """A graph whose weights are stored in one precision.

    Args:
        precision: which.
        model: the graph.
        coverage: how far the precision reached; ``None`` where weights stay as they are.
        weights: the weights it stored, with the error of each.
        records: what each pass did.
        idle: patterns of weights to keep that match none.
    """

    precision: Precision
    model: ir.Model
    coverage: Coverage | None = None
    weights: tuple[StoredWeight, ...] = ()
    records: tuple[PassRecord, ...] = ()
    idle: tuple[Keep, ...] = ()

    @property
    def notices(self) -> list[str]:
        """What a person should know: weights missed, clipped or rescaled, idle patterns."""
        name = self.precision.name
        notices = [
            f"{name}: {weight.value}: {weight.notice}" for weight in self.weights if weight.notice
        ]
        if self.coverage is not None and not self.coverage.operations_total:
            notices.append(f"{name}: no weight in float32 was found; nothing is smaller")
        if self.coverage is not None and self.coverage.missed:
            notices.append(f"{name}: {describe_missed(self.coverage)}")
        notices += [
            f"{name}: {keep.pattern!r} is to be kept and matches no weight" for keep in self.idle
        ]
        return notices

    def weights_report(self) -> list[dict[str, Any]]:
        """Return one plain record per stored weight."""
        return [
            {
                "weight": weight.value,
                "form": weight.detail,
                "saved_bytes": weight.saved_bytes,
                "relative_error": weight.relative_error,
                "largest_error": weight.largest_error,
                "operations": list(weight.operations),
            }
            for weight in self.weights
        ]


def check_opset(model: ir.Model, precision: Precision) -> None:
    """Refuse, before any work, a precision that the graph's opset cannot express.

    Raises:
        PassError: it cannot.
    """
    for stage in store_recipe(precision):
        for step in stage.steps:
            if isinstance(step.transformation, QuantizeToInt4Pass):
                step.transformation.check_opset(model)


def store_model(model: ir.Model, precision: Precision) -> StoredModel:
    """Store the weights of a copy of ``model`` in ``precision``.

    Raises:
        PassError: a pass failed, or the graph still stores what it should have replaced.
    """
    if not precision.rules:
        return StoredModel(precision, model)
    clone = model.clone()
    stages = store_recipe(precision)
    records = run_recipe(clone, stages)
    passes = [
        step.transformation
        for stage in stages
        for step in stage.steps
        if isinstance(step.transformation, StoreWeightsPass)
    ]
    coverage = passes[0].coverage
    for later in passes[1:]:
        coverage = coverage.then(later.coverage)
    weights = tuple(weight for each in passes for weight in each.stored)
    _check_bytes(precision, before=stored_bytes(model), after=stored_bytes(clone), weights=weights)
    # What a first rule leaves to the next is among the weights it saw.
    return StoredModel(precision, clone, coverage, weights, records, passes[0].idle)


def _check_bytes(
    precision: Precision, before: int, after: int, weights: Sequence[StoredWeight]
) -> None:
    """Hold the sharing contract in the bytes of this precision."""
    contract = SharingContract(before - sum(weight.saved_bytes for weight in weights))
    if after > contract.limit_bytes:
        raise PassError(
            f"sharing is lost in {precision.name}: {after:,} bytes stored, at most "
            f"{contract.limit_bytes:,} expected: a weight is stored beside its reduced form"
        )


def describe_missed(coverage: Coverage) -> str:
    """Say in one line which eligible weights were not reached, and why."""
    missed = sorted(coverage.missed, key=lambda left: -left.nbytes)
    named = "; ".join(
        f"{left.value} ({left.nbytes:,} bytes): {left.reason}" for left in missed[:_LISTED]
    )
    more = f"; and {len(missed) - _LISTED} more" if len(missed) > _LISTED else ""
    return f"reaches {coverage}; not reached: {named}{more}"


def file_names(precisions: Sequence[Precision], folder: str) -> dict[str, str]:
    """Return the path in the artifact for each precision, by name.

    The first of those that transformers.js would look for in one file gets that name; the
    others are told apart by their own, unless transformers.js means something else by it:
    a second ``q8`` file called ``int8`` must not become its ``model_int8.onnx``.
    """
    names: dict[str, str] = {}
    for precision in precisions:
        name = precision.file_name
        if f"{folder}/{name}" in names.values():
            name = f"model_{precision.name}.onnx"
            if name in TRANSFORMERS_JS_FILES.values():
                name = f"{PurePosixPath(precision.file_name).stem}_{precision.name}.onnx"
        names[precision.name] = f"{folder}/{name}"
    return names
