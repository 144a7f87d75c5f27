"""Share weights, roll layers, choose a layout: what both kinds of source go through. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import onnx_ir as ir

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
        loops: per loop: iterations, nodes of the body, bytes stacked per iteration.
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
        records += run_recipe(model, (_one(UnrollLoopsPass(), "asked for"),), contract)
    elif early_exit is not None:
        rolled = model.clone()
        run_recipe(rolled, finish_recipe())
        records += run_recipe(model, (_one(early_exit, "asked for"),), contract)
    elif elastic:
        records += run_recipe(model, (_one(MakeDepthElasticPass(), "asked for"),), contract)
    records += run_recipe(model, finish_recipe(), contract)
    return LaidOut(model, unrolled, rolled, tuple(records), _report(asked, roll, depths))


def _one(transformation: ir.passes.PassBase, why: str) -> Stage:
    clean = Step(RemoveUnusedPass(), "drops what the pass before left without a user")
    return Stage((Step(transformation, why), clean))


def _report(
    asked: LayoutChoice, roll: RollRepeatedBlocksPass, depths: Sequence[int] | None
) -> LayoutReport:
    rolled = roll.rolled
    loops = tuple(
        {
            "loop": run.value,
            "iterations": depths[index] if depths is not None else run.blocks,
            "nodes": run.nodes_per_block,
            "stacked_bytes_per_iteration": run.stacked_bytes,
        }
        for index, run in enumerate(rolled)
    )
    skipped = tuple({"first_value": skip.value, "reason": skip.reason} for skip in roll.skipped)
    if asked == "unrolled":
        return LayoutReport(asked, "unrolled", "asked for", (), skipped)
    if loops:
        why = "asked for" if asked == "rolled" else _WHY_ROLLED
        return LayoutReport(asked, "rolled", why, loops, skipped)
    why = skipped[0]["reason"] if skipped else "no run of equal layers was found"
    return LayoutReport(asked, "unrolled", why, (), skipped)


_WHY_ROLLED = (
    "a loop holds the layer once: fewer nodes to load, the same arithmetic; "
    "onnxruntime runs it on the CPU and in WebAssembly"
)
