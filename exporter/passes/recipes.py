"""Which passes run, in which order, and the check after each.

The sharing contract: once weights are de-duplicated, no pass may let the graph store
more than its unique bytes and a stated overhead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import PassBase

from exporter.accounting import count_graph, count_nodes, stored_bytes
from exporter.errors import PassError
from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from exporter.passes.fold_weight_transforms import FoldWeightTransformsPass
from exporter.passes.lift_constants import LiftConstantsPass
from exporter.passes.merge_equal_nodes import MergeEqualNodesPass
from exporter.passes.merge_packed_copies import MergePackedCopiesPass
from exporter.passes.merge_transposed_twins import MergeTransposedTwinsPass
from exporter.passes.pack_parallel_products import PackParallelProductsPass
from exporter.passes.quantize_to_int4 import QuantizeToInt4Pass
from exporter.passes.quantize_to_int8 import QuantizeToInt8Pass
from exporter.passes.remove_identities import RemoveIdentitiesPass
from exporter.passes.remove_unused import RemoveUnusedPass
from exporter.passes.store_as_float16 import StoreAsFloat16Pass
from exporter.passes.store_tables_by_rows import StoreTablesByRowsPass
from exporter.passes.strip_export_traces import StripExportTracesPass
from exporter.passes.strip_types import StripTypesPass
from exporter.passes.use_gemm_for_tied_tables import UseGemmForTiedTablesPass
from exporter.passes.weights.coverage import StoreWeightsPass
from exporter.precision import Float16, Int4, Keep, Precision, Rule

__all__ = [
    "PassRecord",
    "SharingContract",
    "Stage",
    "Step",
    "capture_recipe",
    "finish_recipe",
    "fuse_recipe",
    "run_recipe",
    "share_recipe",
    "store_recipe",
]

_ROUNDS = 4
"""Most rounds of the sharing stage; files by other tools were seen to need two."""


@dataclass(frozen=True)
class Step:
    """One pass of a recipe, and why it stands where it stands."""

    transformation: PassBase
    why: str


@dataclass(frozen=True)
class Stage:
    """Steps that run in order, and again while one of them changes something."""

    steps: tuple[Step, ...]
    rounds: int = 1


@dataclass(frozen=True)
class SharingContract:
    """How many tensor bytes a graph may store.

    Args:
        unique_bytes: bytes of the distinct weights of the source.
    """

    unique_bytes: int

    RELATIVE_OVERHEAD = 0.001
    FIXED_OVERHEAD_BYTES = 16_384

    @property
    def limit_bytes(self) -> int:
        """Unique bytes, 0.1 % and 16 KiB: room for shape constants and masks."""
        return int(self.unique_bytes * (1 + self.RELATIVE_OVERHEAD)) + self.FIXED_OVERHEAD_BYTES


@dataclass(frozen=True)
class PassRecord:
    """What one pass did, in bytes and nodes."""

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    stored_bytes_before: int
    stored_bytes_after: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def capture_recipe() -> tuple[Stage, ...]:
    """Return what a graph goes through that torch's exporter made, now or in the past."""
    why = "stack traces and source paths must reach no file, whatever follows"
    return (Stage((Step(StripExportTracesPass(), why),)),)


def share_recipe() -> tuple[Stage, ...]:
    """Return the passes that make weights canonical and store each once."""
    steps = (
        Step(RemoveIdentitiesPass(), "an alias hides a weight from every pass that follows"),
        Step(LiftConstantsPass(), "a weight in a Constant node is a weight like any other"),
        Step(
            FoldWeightTransformsPass(),
            "one stored form per weight, before equal forms are looked for",
        ),
        Step(
            StoreTablesByRowsPass(),
            "a table tied to a product in its usual form, which the passes on tied tables know",
        ),
        Step(
            DeduplicateInitializersPass(),
            "exporters store one copy per Parameter object, slimmers one per use",
        ),
        Step(MergeTransposedTwinsPass(), "after equal copies are gone each twin is a pair"),
        Step(MergePackedCopiesPass(), "packed and separate Q, K, V are copies across tensors"),
        Step(
            MergeEqualNodesPass(),
            "nodes that became equal with their weights; what layers compute alike from outer "
            "values, such as the mask, then stands outside of them",
        ),
        Step(RemoveUnusedPass(), "last: drops what the passes before left without a user"),
    )
    return (Stage(steps, rounds=_ROUNDS),)


def fuse_recipe(keep: Sequence[Keep] = ()) -> tuple[Stage, ...]:
    """Return the fusions that keep sharing and were measured to gain.

    Args:
        keep: weights that are to stay as they are, and so by themselves.
    """
    steps = (
        Step(
            PackParallelProductsPass(keep),
            "Q, K and V of one input, once equal weights are one; before layers are rolled, "
            "so that it sees every use of them",
        ),
        Step(RemoveUnusedPass(), "drops the parts that are now packed"),
    )
    return (Stage(steps),)


def finish_recipe() -> tuple[Stage, ...]:
    """Return the passes whose results no other pass should see."""
    why = "last of all: what reads weights by their MatMul would miss a Gemm"
    return (Stage((Step(UseGemmForTiedTablesPass(), why),)),)


def store_recipe(precision: Precision) -> tuple[Stage, ...]:
    """Return the passes that store a finished graph's weights in ``precision``.

    After the last fusion, so that a weight is quantized in the form it is multiplied in.
    """
    if not precision.rules:
        return ()
    steps = (
        *(Step(_store_pass(rule, precision.keep), rule.why) for rule in precision.rules),
        Step(RemoveUnusedPass(), "drops what only the float weights needed"),
        Step(
            StripTypesPass(),
            "last: what runtimes infer anyway is a thousandth of a file this small",
        ),
    )
    return (Stage(steps),)


def _store_pass(rule: Rule, keep: Sequence[Keep]) -> StoreWeightsPass[Any]:
    store = rule.store
    if isinstance(store, Float16):
        return StoreAsFloat16Pass(rule.operators, keep)
    if isinstance(store, Int4):
        return QuantizeToInt4Pass(store, rule.operators, keep)
    return QuantizeToInt8Pass(store, rule.operators, keep)


def run_recipe(
    model: ir.Model, stages: Sequence[Stage], contract: SharingContract | None = None
) -> tuple[PassRecord, ...]:
    """Run ``stages`` on ``model`` in place, checking ``contract`` after each pass.

    A graph that starts above the contract's limit may only shrink; one that has reached
    it must stay below; at the end all must.

    Returns:
        One record per pass that ran; later rounds are recorded where they changed something.

    Raises:
        PassError: a pass failed or broke the contract; the text names the tensors.
    """
    records: list[PassRecord] = []
    before = _Size.of(model)
    for stage in stages:
        for number in range(stage.rounds):
            start = len(records)
            for step in stage.steps:
                record, before = _run_step(model, step, before, contract)
                if record.modified or number == 0:
                    records.append(record)
            if not any(record.modified for record in records[start:]):
                break
    if contract is not None and before.stored_bytes > contract.limit_bytes:
        raise PassError(_broken("the recipe", model, contract))
    return tuple(records)


@dataclass(frozen=True)
class _Size:
    """What is cheap to know of a graph after every pass: no values are read."""

    nodes: int
    stored_bytes: int

    @classmethod
    def of(cls, model: ir.Model) -> _Size:
        return cls(count_nodes(model), stored_bytes(model))


def _run_step(
    model: ir.Model, step: Step, before: _Size, contract: SharingContract | None
) -> tuple[PassRecord, _Size]:
    name = type(step.transformation).__name__
    try:
        result = step.transformation(model)
    except Exception as error:
        reason = error.__cause__ or error
        if isinstance(reason, PassError):  # a line of its own that says what to do
            raise reason from error
        raise PassError(f"{name} failed: {type(reason).__name__}: {reason}") from error
    after = _Size.of(model) if result.modified else before
    if contract is not None and after.stored_bytes > max(contract.limit_bytes, before.stored_bytes):
        raise PassError(_broken(name, model, contract))
    record = PassRecord(
        name=name,
        modified=result.modified,
        nodes_before=before.nodes,
        nodes_after=after.nodes,
        stored_bytes_before=before.stored_bytes,
        stored_bytes_after=after.stored_bytes,
    )
    return record, after


def _broken(name: str, model: ir.Model, contract: SharingContract) -> str:
    count = count_graph(model)
    culprits = "; ".join(
        f"{' = '.join(group.names[:3])} ({group.wasted_bytes:,} bytes)"
        for group in count.duplicates[:3]
        if group.wasted_bytes
    )
    largest = culprits or "no tensor is stored twice: weights were expanded or transformed"
    return (
        f"sharing is lost after {name}: {count.stored_bytes:,} bytes stored, at most "
        f"{contract.limit_bytes:,} expected for {contract.unique_bytes:,} unique bytes; {largest}"
    )
