"""Share weights, roll layers, choose a layout: what both kinds of source go through. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import onnx_ir as ir

from exporter.inspection.structure import find_loops
from exporter.inspection.tensors import graph_labels
from exporter.passes.exit_early import ExitEarlyPass
from exporter.passes.make_depth_elastic import MakeDepthElasticPass
from exporter.passes.recipes import (
    PassRecord,
    SharingContract,
    Stage,
    Step,
    finish_recipe,
    fuse_recipe,
    run_recipe,
    share_recipe,
)
from exporter.passes.remove_unused import RemoveUnusedPass
from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from exporter.passes.set_depth import SetDepthPass
from exporter.passes.unroll_loops import UnrollLoopsPass
from exporter.precision import Keep

__all__ = [
    "CAPTURE_PASSES",
    "DepthMismatchError",
    "LaidOut",
    "LayoutChoice",
    "LayoutReport",
    "lay_out",
]

CAPTURE_PASSES = 2
"""Passes through a repeated block that show how one leads to the next."""

LayoutChoice = Literal["auto", "rolled", "unrolled"]


class DepthMismatchError(Exception):
    """A shallow capture did not become the loops that its depth plan names."""


@dataclass(frozen=True)
class LayoutReport:
    """Which layout a graph has, and why.

    Args:
        asked: what the person asked for.
        chosen: ``rolled`` or ``unrolled``.
        why: the reason, for people.
        loops: per loop of the finished graph: iterations, nodes of the body, bytes stacked per
            iteration. Those that came with the source stand last; iterations are ``None`` where
            they are computed.
        unrolled_runs: runs of alike blocks that stay written out, with the reason.
    """

    asked: LayoutChoice
    chosen: Literal["rolled", "unrolled"]
    why: str
    loops: tuple[dict[str, Any], ...] = ()
    unrolled_runs: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class LaidOut:
    """A graph in its final layout.

    Args:
        model: the graph.
        unrolled: the same graph with every layer written out, for the unshared baseline.
        rolled: the same graph with repeated layers as loops, whatever was asked for.
        records: what each pass did.
        report: the layout; ``None`` where the graph was kept as it came.
    """

    model: ir.Model
    unrolled: ir.Model
    rolled: ir.Model
    records: tuple[PassRecord, ...]
    report: LayoutReport | None


def lay_out(
    model: ir.Model,
    asked: LayoutChoice,
    contract: SharingContract | None,
    *,
    depths: Sequence[int] | None = None,
    elastic: bool = False,
    early_exit: ExitEarlyPass | None = None,
    fuse: bool = True,
    keep: Sequence[Keep] = (),
) -> LaidOut:
    """Make weights canonical and shared, roll repeated layers, apply the layout asked for.

    Args:
        model: the graph; changed in place.
        asked: ``auto`` rolls whatever repeats.
        contract: checked after each pass.
        depths: passes through each loop, where ``model`` was captured with
            :data:`CAPTURE_PASSES` through each.
        elastic: make the number of passes an optional input.
        early_exit: lets the loop end early.
        fuse: also run the fusions that keep sharing.
        keep: weights that no fusion may touch, since they are to stay as they are.

    Raises:
        PassError: the contract is broken, the depth cannot be an input, or no loop end early.
        DepthMismatchError: ``depths`` do not fit the loops that were found.
    """
    roll = RollRepeatedBlocksPass()
    records = list(run_recipe(model, share_recipe(), contract))
    if fuse:
        records += run_recipe(model, fuse_recipe(keep), contract)
    records += run_recipe(model, (_one(roll, "layers are equal once weights are"),), contract)
    if depths is not None:
        # A layer of two equal halves, say, would show twice as many blocks.
        if [run.blocks for run in roll.rolled] != [CAPTURE_PASSES] * len(depths):
            raise DepthMismatchError
        records += run_recipe(model, (_one(SetDepthPass(depths), "the model's own depth"),))
    unrolled, rolled = model.clone(), model
    run_recipe(unrolled, (_one(UnrollLoopsPass(), "every layer by itself"),))
    if asked == "unrolled":
        rolled = model.clone()
        run_recipe(rolled, finish_recipe())
        unroll = UnrollLoopsPass()
        records += run_recipe(model, (_one(unroll, "asked for"),), contract)
    elif early_exit is not None:
        rolled = model.clone()
        run_recipe(rolled, finish_recipe())
        records += run_recipe(model, (_one(early_exit, "asked for"),), contract)
    elif elastic:
        records += run_recipe(model, (_one(MakeDepthElasticPass(), "asked for"),), contract)
    records += run_recipe(model, finish_recipe(), contract)
    if asked == "unrolled":
        report = _report_unrolled(roll, unroll, _loops(model))
    else:
        report = _report(asked, roll, _loops(model))
    return LaidOut(model, unrolled, rolled, tuple(records), report)


def _one(transformation: ir.passes.PassBase, why: str) -> Stage:
    clean = Step(RemoveUnusedPass(), "drops what the pass before left without a user")
    return Stage((Step(transformation, why), clean))


def _loops(model: ir.Model) -> tuple[dict[str, Any], ...]:
    """Describe the loops that ``model`` has."""
    return tuple(
        {
            "loop": loop.name,
            "iterations": loop.iterations,
            "nodes": loop.nodes,
            "stacked_bytes_per_iteration": loop.stacked_bytes // max(loop.iterations or 1, 1),
        }
        for loop in find_loops(model, graph_labels(model))
        if loop.graph == "main"
    )


def _report_unrolled(
    roll: RollRepeatedBlocksPass, unroll: UnrollLoopsPass, left: tuple[dict[str, Any], ...]
) -> LayoutReport:
    skipped = _skipped(roll)
    if not left:
        return LayoutReport("unrolled", "unrolled", "asked for", (), skipped)
    why = f"a loop of the source cannot be written out: {unroll.skipped[0].reason}"
    return LayoutReport("unrolled", "rolled", why, left, skipped)


def _report(
    asked: LayoutChoice, roll: RollRepeatedBlocksPass, found: tuple[dict[str, Any], ...]
) -> LayoutReport:
    """Describe the loops of the finished graph, those that were made here first."""
    stacked = {run.value: run.stacked_bytes for run in roll.rolled}
    loops = tuple(
        {**loop, "stacked_bytes_per_iteration": stacked[loop["loop"]]}
        for loop in found
        if loop["loop"] in stacked
    )
    given = tuple(loop for loop in found if loop["loop"] not in stacked)
    skipped = _skipped(roll)
    if loops:
        why = "asked for" if asked == "rolled" else _WHY_ROLLED
        return LayoutReport(asked, "rolled", why, (*loops, *given), skipped)
    why = skipped[0]["reason"] if skipped else "no run of equal layers was found"
    if given:
        why = f"the source came with loops; beyond them, {why}"
        return LayoutReport(asked, "rolled", why, given, skipped)
    return LayoutReport(asked, "unrolled", why, (), skipped)


def _skipped(roll: RollRepeatedBlocksPass) -> tuple[dict[str, Any], ...]:
    return tuple({"first_value": skip.value, "reason": skip.reason} for skip in roll.skipped)


_WHY_ROLLED = (
    "a loop holds the layer once: fewer nodes to load, the same arithmetic; "
    "onnxruntime runs it on the CPU and in WebAssembly"
)
