"""Find runs of equal consecutive blocks in a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

import onnx_ir as ir

from exporter.passes.blocks.annotations import Annotations
from exporter.passes.blocks.graph_index import GraphIndex
from exporter.passes.blocks.grow import propose_blocks
from exporter.passes.blocks.levels import SameConstant, levels_match
from exporter.passes.blocks.policy import Refusal, RollPolicy, judge, pays_off
from exporter.passes.blocks.verify import BlockRun, Conflict, verify_blocks

__all__ = ["Detection", "find_runs"]

_LARGEST_PERIOD = 8
_CUTS_TRIED = 8


@dataclass
class Detection:
    """Runs to roll, none overlapping another, and runs that are refused."""

    runs: list[BlockRun] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


def find_runs(index: GraphIndex, annotations: Annotations, policy: RollPolicy) -> Detection:
    """Find the runs around the largest constant that repeated blocks have in common.

    Nodes of one signature that take one value at one input, each depending on the one before,
    are the anchors of a run; see ``grow``. Constants come first, the largest before others,
    then any other value. The blocks may hold 1 to 8 anchors each. Of all ways to roll the
    blocks around one value the best covers the most nodes, then needs no stacks, then leaves
    the fewest nodes. Roll what is found and search again to find the rest.
    """
    detection = Detection()
    refused: set[ir.Node] = set()
    for chain in _anchor_chains(index):
        if all(index.nodes[node] in refused for node in chain):
            continue
        plan = _best_plan(index, chain, annotations, policy)
        if plan.runs:
            detection.runs = plan.runs
            return detection
        for refusal in plan.refusals:
            nodes = {node for block in refusal.run.blocks for node in block}
            if not nodes & refused:  # otherwise the same blocks, cut elsewhere
                detection.refusals.append(refusal)
            refused |= nodes
    return detection


def _anchor_chains(index: GraphIndex) -> Iterator[list[int]]:
    uses: dict[tuple[Hashable, int, int], list[int]] = defaultdict(list)
    nbytes: dict[tuple[Hashable, int, int], int] = {}
    origins = _constant_origins(index)
    for number, node in enumerate(index.nodes):
        for slot, value in enumerate(node.inputs):
            if value is not None:
                origin, size = origins.get(value, (value, -1))
                use = (origin, index.signature[number], slot)
                uses[use].append(number)
                nbytes[use] = size
    repeated = [use for use, nodes in uses.items() if len(nodes) > 1]
    for use in sorted(repeated, key=lambda use: (-nbytes[use], uses[use][0], use[2])):
        yield from (chain for chain in _chains(index, uses[use]) if len(chain) > 1)


def _constant_origins(index: GraphIndex) -> dict[ir.Value, tuple[Hashable, int]]:
    """Each value made of constants alone → what it is made of and how, and of how many bytes.

    Equal origins mean equal values: weights stored twice, or dequantized before each use.
    """
    origins: dict[ir.Value, tuple[Hashable, int]] = {
        value: (index.content(value), index.nbytes(value)) for value in index.constants
    }
    for number, node in enumerate(index.nodes):
        given = [origins.get(value) for value in node.inputs if value is not None]
        known = [origin for origin in given if origin is not None]
        if known and len(known) == len(given):
            made_of = tuple(origin for origin, _ in known)
            size = sum(size for _, size in known)
            for output, value in enumerate(node.outputs):
                origins[value] = ((index.signature[number], output, made_of), size)
    return origins


def _chains(index: GraphIndex, nodes: Sequence[int]) -> list[list[int]]:
    """Split ``nodes`` (producers first) into lists in which each depends on the one before."""
    chains: list[list[int]] = []
    for node in nodes:
        for chain in chains:
            if index.ancestors[node] >> chain[-1] & 1:
                chain.append(node)
                break
        else:
            chains.append([node])
    return chains


def _best_plan(
    index: GraphIndex, chain: list[int], annotations: Annotations, policy: RollPolicy
) -> Detection:
    best, best_score = Detection(), (0, False, 0)
    refusals: list[Refusal] = []
    levels = _constants_per_level(index, chain)
    for exact in (True, False):
        for period in range(1, min(_LARGEST_PERIOD, len(chain) // 2) + 1):
            if not _promising(index, levels, period, policy, exact=exact):
                continue
            for plan in _plans(index, chain[::period], annotations, policy, exact=exact):
                refusals += plan.refusals
                score = _score(plan.runs, exact)
                if score > best_score:
                    best, best_score = plan, score
            if best.runs and period == 1 and _covers(index, best.runs, chain):
                return Detection(best.runs)
    if not best.runs:
        best.refusals = sorted(refusals, key=lambda r: (-r.run.count, r.run.width))[:1]
    return best


def _constants_per_level(index: GraphIndex, chain: Sequence[int]) -> list[dict[str, int]]:
    """Digest → bytes of the constants that each node of ``chain`` needs beyond the one before."""
    used = [
        {index.content(v): index.nbytes(v) for v in node.inputs if v in index.constants}
        for node in index.nodes
    ]
    levels = []
    for before, anchor in pairwise(chain):
        level = index.ancestors[anchor] & ~index.ancestors[before] | 1 << anchor
        constants: dict[str, int] = {}
        while level:
            node = level.bit_length() - 1
            level ^= 1 << node
            constants.update(used[node])
        levels.append(constants)
    return levels


def _promising(
    index: GraphIndex,
    levels: Sequence[dict[str, int]],
    period: int,
    policy: RollPolicy,
    *,
    exact: bool,
) -> bool:
    """Whether any two blocks of ``period`` anchors could use constants alike enough.

    Cheap, and wrong only where it says yes.
    """
    if len(levels) < 2 * period or (period == 1 and not exact):
        return True  # too few to compare; or the attempt whose refusal is to be reported
    for start in range(len(levels) - 2 * period + 1):
        one = _union(levels[start : start + period])
        other = _union(levels[start + period : start + 2 * period])
        differing = sum(size for digest, size in one.items() if digest not in other)
        shared = sum(size for digest, size in one.items() if digest in other)
        if differing <= (0 if exact else policy.limit_bytes(shared)):
            return True
    return False


def _union(levels: Sequence[dict[str, int]]) -> dict[str, int]:
    merged: dict[str, int] = {}
    for level in levels:
        merged.update(level)
    return merged


def _plans(
    index: GraphIndex,
    anchors: Sequence[int],
    annotations: Annotations,
    policy: RollPolicy,
    *,
    exact: bool,
) -> Iterator[Detection]:
    if exact:
        yield _roll_along(index, anchors, index.same_constant, annotations, policy)
        return
    plan = _roll_along(index, anchors, index.stackable, annotations, policy)
    yield plan
    while any(refusal.run.stacked for refusal in plan.refusals):
        # Where large tensors differ between groups of blocks and small ones within, only a
        # split between the groups leaves runs that are small enough.
        limit = max(
            index.nbytes(values[0]) for refusal in plan.refusals for values in refusal.run.stacked
        )
        plan = _roll_along(index, anchors, _smaller(index, limit), annotations, policy)
        yield plan


def _smaller(index: GraphIndex, limit: int) -> SameConstant:
    def same(one: ir.Value, other: ir.Value) -> bool:
        if index.nbytes(one) >= limit:
            return index.same_constant(one, other)
        return index.stackable(one, other)

    return same


def _score(runs: Sequence[BlockRun], exact: bool) -> tuple[int, bool, int]:
    covered = sum(run.count * run.width for run in runs)
    return covered, exact, sum((run.count - 1) * run.width for run in runs)


def _covers(index: GraphIndex, runs: Sequence[BlockRun], chain: Sequence[int]) -> bool:
    rolled = {node for run in runs for block in run.blocks for node in block}
    return all(index.nodes[node] in rolled for node in chain)


def _roll_along(
    index: GraphIndex,
    anchors: Sequence[int],
    same: SameConstant,
    annotations: Annotations,
    policy: RollPolicy,
) -> Detection:
    """Split ``anchors`` into runs of alike levels, and realize each."""
    found = Detection()
    taken: set[ir.Node] = set()
    start = 0
    while start + 1 < len(anchors):
        end = start + 1
        while end + 1 < len(anchors) and levels_match(index, anchors[end - 1 : end + 2], same):
            end += 1
        if end - start == 1 and len(anchors) > 3:
            # Two blocks alone have something in common that no third one has: a shorter chain.
            start = end
            continue
        # The last block may lack its end, or the first one its start.
        whole = anchors[start : end + 1]
        results = {(start, end): _realize(index, whole, same, annotations, policy)}
        if end - start > 1 and not isinstance(results[start, end], BlockRun):
            for first, last in ((start, end - 1), (start + 1, end)):
                part = anchors[first : last + 1]
                results[first, last] = _realize(index, part, same, annotations, policy)
        runs = {place: run for place, run in results.items() if isinstance(run, BlockRun)}
        if not runs:
            found.refusals += [r for r in results.values() if isinstance(r, Refusal)][:1]
            start = end
            continue
        (_, last), run = min(runs.items(), key=lambda item: len(item[1].carried))
        nodes = {node for block in run.blocks for node in block}
        if not nodes & taken:
            found.runs.append(run)
            taken |= nodes
        start = last + 1
    return found


def _realize(
    index: GraphIndex,
    anchors: Sequence[int],
    same: SameConstant,
    annotations: Annotations,
    policy: RollPolicy,
) -> BlockRun | Refusal | None:
    refusal: Refusal | None = None
    for blocks in islice(propose_blocks(index, anchors, same), _CUTS_TRIED):
        result = verify_blocks(index, blocks, annotations)
        if isinstance(result, BlockRun):
            return judge(result, policy)
        if isinstance(result, Conflict) and refusal is None and pays_off(result.run):
            text = f"{result.run.count} blocks of {result.run.width} nodes: {result.reason}"
            refusal = Refusal(result.run, text)
    return refusal
