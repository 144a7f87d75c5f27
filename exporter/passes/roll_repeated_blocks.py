"""Roll repeated layers into ``Loop``s."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from exporter.accounting import stored_bytes
from exporter.errors import PassError
from exporter.passes.blocks.annotations import Annotations
from exporter.passes.blocks.body import build_loop
from exporter.passes.blocks.detect import find_runs
from exporter.passes.blocks.graph_index import GraphIndex
from exporter.passes.blocks.node_names import NodeNames
from exporter.passes.blocks.policy import Refusal, RollPolicy
from exporter.passes.blocks.verify import BlockRun
from exporter.passes.match import Match, ReportingPass, Skip
from exporter.passes.scopes import Names

__all__ = ["RollRepeatedBlocksPass", "RolledRun", "SkippedRun"]


@dataclass(frozen=True)
class RolledRun(Match):
    """One run that became a loop; ``value`` is the name of the ``Loop`` node.

    Args:
        blocks: iterations of the loop.
        nodes_per_block: nodes of one block.
        carried: body inputs that take each block's result to the next.
        stacks: initializers that hold the constants that differ, ``[blocks, …]`` each.
        stacked_bytes: bytes of those constants per iteration.
        scanned: values of single blocks that something outside needs.
        shared_bytes: bytes of the constants that all blocks use.
    """

    blocks: int = 0
    nodes_per_block: int = 0
    carried: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()
    stacked_bytes: int = 0
    scanned: tuple[str, ...] = ()
    shared_bytes: int = 0


@dataclass(frozen=True)
class SkippedRun(Skip):
    """A run that stays unrolled; ``value`` is what the first block begins with.

    Args:
        blocks: number of alike blocks.
        nodes_per_block: nodes of one block.
        stacked_bytes: bytes per iteration that stacks would hold.
        differing: names, in the first block, of the constants that differ.
    """

    blocks: int = 0
    nodes_per_block: int = 0
    stacked_bytes: int = 0
    differing: tuple[str, ...] = ()


class RollRepeatedBlocksPass(ReportingPass):
    """Replace each run of equal consecutive blocks by one ``Loop`` that holds the block once.

    ::

        x1 = block(x0, W)                trip_count = 3
        x2 = block(x1, W)         ->     x3 = Loop(trip_count, , x0) {
        x3 = block(x2, W)                  (i, condition, x_in): x = block(x_in, W)
                                         }

    What a run is:

    1. Two or more blocks of equal nodes: operator, attributes, numbers of inputs and outputs.
       Each input comes, in all blocks alike, from the block itself, from the block before (one
       or more values), from one value outside, or from a constant.
    2. Names, file order and what the operators mean play no part. Anything computed from
       outer values alone stays outside; equal copies of it should be merged beforehand.
    3. Of several ways to divide a stretch into blocks, the one that covers most nodes counts,
       then the one with the shortest block. Groups of layers with weights of their own become
       a loop each; several alternating layers become one block.
    4. Constants may differ between blocks: they are stacked, ``[A] x 3 -> [3, A]``, and
       gathered by the iteration number. Rows that are equal are stored once, a constant that
       is equal in all blocks stays as it is. See ``max_stacked_bytes_per_iteration``.
    5. A value inside a block that something outside needs (a graph output too) becomes a scan
       output, gathered back under its old name.

    What is left alone (the first, third and fourth are reported in ``skipped``):

    - blocks that differ in more bytes than the limit;
    - blocks in which something outside both depends on one and feeds another;
    - carried values whose types or fixed sizes change, or whose type is not known;
    - values needed outside whose shape is not known to be one in all blocks;
    - random operators, and operators with inner graphs;
    - some layers, the first or every second, of a chain in which a value that one layer gives
      on is first needed two layers later;
    - runs without a weight (a constant, or something made of one, with two dimensions or more)
      that save fewer than 16 nodes, and any run that a loop would not make smaller;
    - graphs inside nodes, and functions.

    The result computes the same operators in the same order: outputs are bit-identical as
    long as the runtime does not optimize. It stores 8 bytes more per loop (the trip count), 8
    per row gathered from a scan output, and 8 per iteration where stacked rows repeat.

    Args:
        max_stacked_bytes_per_iteration: most bytes of differing constants in one block. The
            default is 1 MiB, and no more than a third of the bytes that the blocks share: a
            number given replaces both.

    Attributes:
        matches: one :class:`RolledRun` per loop, in the order of the graph.
        skipped: one :class:`SkippedRun` per run that was found but cannot be rolled.

    Raises:
        PassError: the limit is negative.
    """

    def __init__(self, *, max_stacked_bytes_per_iteration: int | None = None) -> None:
        super().__init__()
        if max_stacked_bytes_per_iteration is not None and max_stacked_bytes_per_iteration < 0:
            raise PassError(
                "max_stacked_bytes_per_iteration must be 0 or more, not "
                f"{max_stacked_bytes_per_iteration}"
            )
        self._policy = RollPolicy(max_stacked_bytes_per_iteration)

    @property
    def rolled(self) -> list[RolledRun]:
        """Loops that the latest call made."""
        return [match for match in self.matches if isinstance(match, RolledRun)]

    @property
    def skipped_runs(self) -> list[SkippedRun]:
        """Runs that the latest call found and left unrolled."""
        return [skip for skip in self.skipped if isinstance(skip, SkippedRun)]

    def rewrite(self, model: ir.Model) -> None:
        """Roll runs until none is left."""
        names, node_names = Names(model), NodeNames(model)
        while True:
            index, annotations = GraphIndex(model.graph), Annotations(model)
            found = find_runs(index, annotations, self._policy)
            if not found.runs:
                order = {node.name: number for number, node in enumerate(model.graph)}
                self.matches.sort(key=lambda match: order[match.value])
                self.skipped.extend(_skipped(refusal) for refusal in found.refusals)
                return
            for run in found.runs:
                before = stored_bytes(model)
                built = build_loop(index, annotations, names, node_names, run)
                saved = before - stored_bytes(model)
                self.matches.append(_rolled(run, built.node, built.stacks, built.scanned, saved))


def _rolled(
    run: BlockRun,
    loop: ir.Node,
    stacks: tuple[str, ...],
    scanned: tuple[str, ...],
    saved_bytes: int,
) -> RolledRun:
    body = loop.attributes["body"].as_graph()
    return RolledRun(
        value=str(loop.name),
        detail=f"{run.count} blocks of {run.width} nodes became one Loop",
        saved_bytes=saved_bytes,
        blocks=run.count,
        nodes_per_block=run.width,
        carried=tuple(str(value.name) for value in body.inputs[2:]),
        stacks=stacks,
        stacked_bytes=run.stacked_bytes,
        scanned=scanned,
        shared_bytes=run.shared_bytes,
    )


def _skipped(refusal: Refusal) -> SkippedRun:
    run = refusal.run
    return SkippedRun(
        value=str(run.blocks[0][0].outputs[0].name),
        reason=refusal.reason,
        blocks=run.count,
        nodes_per_block=run.width,
        stacked_bytes=run.stacked_bytes,
        differing=tuple(str(values[0].name) for values in run.stacked),
    )
