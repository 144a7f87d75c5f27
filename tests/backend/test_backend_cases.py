"""The backend test cases of the ``onnx`` package, before and after the whole recipe.

What onnxruntime computes as the cases expect, it must still compute, bit for bit, with graph
optimizations off. Cases are models of single operators that are fed everything; two variations
give them weights: everything fixed and stored twice, and a stack of equal layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache

import onnx
import pytest

from tests.backend.cases import (
    STORED_KINDS,
    Case,
    node_cases,
    node_modules,
    real_case,
    real_names,
    stored_cases,
)
from tests.backend.sweep import (
    Feeds,
    Unrunnable,
    apply_recipe,
    assert_unchanged,
    outputs_as_it_is,
    passes_as_it_is,
)
from tests.backend.variations import frozen_twice, stacked

# Module of the package that makes no case of its own, only data for another.
WITHOUT_CASES = {"_image_decoder_data"}

# Of graphs above this size, each sequence of operators is varied once per module: they are the
# definitions of a few operators, written out for hundreds of cases.
MANY_NODES = 20

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # from the package's own numpy


@dataclass
class Tally:
    """What became of some cases.

    Args:
        unrunnable: cases that onnxruntime does not pass as they are, with its reason.
        unchanged: by kind (``as it is``, ``frozen``, ``stacked``), how many models came
            through unchanged.
        loops: how many loops were made of stacks.
        faults: what changed, one line each.
    """

    unrunnable: dict[str, str] = field(default_factory=dict)
    unchanged: Counter[str] = field(default_factory=Counter)
    loops: int = 0
    faults: list[str] = field(default_factory=list)


def sweep(cases: Iterable[Case]) -> Tally:
    """Put cases and their variations through the recipe; go on after a fault."""
    tally = Tally()
    seen: set[tuple[str, ...]] = set()
    for case in cases:
        try:
            expected = passes_as_it_is(case)
        except Unrunnable as reason:
            tally.unrunnable[case.name] = str(reason)
            continue
        check(tally, "as it is", case.name, case.proto, case.feeds, expected)
        operators = tuple(node.op_type for node in case.proto.graph.node)
        if len(operators) > MANY_NODES and operators in seen:
            continue
        seen.add(operators)
        vary(tally, "frozen", case, frozen_twice)
        vary(tally, "stacked", case, stacked)
    return tally


def vary(
    tally: Tally, kind: str, case: Case, make: Callable[[Case], onnx.ModelProto | None]
) -> None:
    """Check a variation, if the case has it and onnxruntime runs it."""
    proto = make(case)
    if proto is None:
        return
    feeds = [{info.name: case.feeds[0][info.name] for info in proto.graph.input}]
    try:
        expected = outputs_as_it_is(proto, feeds)
    except Unrunnable:
        return
    check(tally, kind, case.name, proto, feeds, expected)


def check(
    tally: Tally,
    kind: str,
    name: str,
    proto: onnx.ModelProto,
    feeds: Iterable[Feeds],
    expected: list[list[object]],
) -> None:
    """Count a model as unchanged, or note what changed."""
    stage = "recipe"
    try:
        laid = apply_recipe(proto)
        for layout, after in laid.layouts.items():
            stage = layout
            assert_unchanged(proto, after, list(feeds), expected)
    except Exception as error:  # whatever it is, the other cases are worth a look too
        tally.faults.append(f"{name}, {kind}, {stage}: {type(error).__name__}: {error}")
        return
    tally.unchanged[kind] += 1
    tally.loops += laid.loops


@cache
def node_tally(module: str) -> Tally:
    """Sweep the cases of one operator, once per run."""
    return sweep(node_cases(module))


@cache
def stored_tally(kind: str) -> Tally:
    """Sweep one folder of stored models, once per run."""
    return sweep(stored_cases(kind))


@pytest.mark.parametrize("module", node_modules())
def test_an_operators_cases_compute_the_same_bits_after_the_recipe(module: str) -> None:
    tally = node_tally(module)
    assert tally.faults == []
    assert bool(tally.unchanged or tally.unrunnable) is (module not in WITHOUT_CASES)


@pytest.mark.parametrize("kind", STORED_KINDS)
def test_stored_models_compute_the_same_bits_after_the_recipe(kind: str) -> None:
    assert stored_tally(kind).faults == []


@pytest.mark.parametrize("name", real_names())
def test_networks_compute_the_same_bits_after_the_recipe(name: str) -> None:
    case, tally = real_case(name), Tally()
    check(tally, "as it is", case.name, case.proto, case.feeds, passes_as_it_is(case))
    assert tally.faults == []


def test_the_sweep_is_not_empty() -> None:
    nodes = [node_tally(module) for module in node_modules()]
    stored = [stored_tally(kind) for kind in STORED_KINDS]
    counts = sum((tally.unchanged for tally in nodes), Counter())
    # Of 1,884 node cases; what is missing onnxruntime has no kernel for, or does otherwise.
    assert counts["as it is"] >= 1_650
    assert counts["frozen"] >= 1_550
    assert counts["stacked"] >= 700
    assert sum(tally.loops for tally in nodes) >= 300
    assert sum(tally.unchanged["as it is"] for tally in stored) >= 95


def test_every_case_that_is_left_out_is_left_out_by_onnxruntime() -> None:
    tallies = [node_tally(module) for module in node_modules()]
    tallies += [stored_tally(kind) for kind in STORED_KINDS]
    left_out = {name: why for tally in tallies for name, why in tally.unrunnable.items()}
    reasons = ("NOT_IMPLEMENTED", "is not a registered", "gives something else", "ONNXRuntimeError")
    assert {n: w for n, w in left_out.items() if not any(r in w for r in reasons)} == {}
    assert len(left_out) <= 200  # of 2,024
