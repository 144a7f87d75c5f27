from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from exporter.errors import PassError
from exporter.passes.deduplicate_initializers import DeduplicateInitializersPass
from exporter.passes.recipes import (
    SharingContract,
    Stage,
    Step,
    capture_recipe,
    finish_recipe,
    fuse_recipe,
    run_recipe,
    share_recipe,
    store_recipe,
)
from exporter.precision import PRECISIONS, find_precision

SIZE = 5_000
"""Elements of a weight: 20,000 bytes, more than the contract's fixed overhead."""


def weights(*values: float) -> ir.Model:
    """``y = x + w0 + w1 + …``, each weight filled with its value."""
    total = "x"
    lines = []
    for index in range(len(values)):
        lines.append(f"s{index} = Add({total}, w{index})")
        total = f"s{index}"
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]>\n'
        f"main (float[{SIZE}] x) => (float[{SIZE}] {total}) {{ {' '.join(lines)} }}"
    )
    known = {v.name: v for node in model.graph for v in node.inputs if v is not None}
    for index, value in enumerate(values):
        weight = known[f"w{index}"]
        weight.const_value = ir.Tensor(np.full(SIZE, value, np.float32), name=weight.name)
        model.graph.register_initializer(weight)
    return model


class Do(ir.passes.InPlacePass):
    """Do what it is given; report what it is told."""

    def __init__(self, change: Callable[[ir.Model], object], modified: bool = True) -> None:
        super().__init__()
        self.change = change
        self.modified = modified

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        self.change(model)
        return ir.passes.PassResult(model, self.modified)


def once(*transformations: ir.passes.PassBase) -> list[Stage]:
    return [Stage(tuple(Step(one, "") for one in transformations))]


def nothing(model: ir.Model) -> None:
    """Leave the model as it is."""


def add_copy(model: ir.Model) -> None:
    name = f"copy_{len(model.graph.initializers)}"
    tensor = ir.Tensor(np.full(SIZE, 1.0, np.float32), name=name)
    model.graph.register_initializer(ir.Value(name=name, const_value=tensor))


def test_the_limit_is_the_unique_bytes_a_thousandth_and_16_kib() -> None:
    assert SharingContract(1_000_000).limit_bytes == pytest.approx(1_001_000 + 16_384, abs=1)
    assert SharingContract(0).limit_bytes == 16_384


def test_records_hold_the_bytes_and_nodes_of_each_pass() -> None:
    model = weights(1.0, 1.0, 2.0)
    stages = once(Do(nothing, False), DeduplicateInitializersPass())
    first, second = run_recipe(model, stages, SharingContract(40_000))
    assert first.to_dict() == {
        "name": "Do",
        "modified": False,
        "nodes_before": 3,
        "nodes_after": 3,
        "stored_bytes_before": 60_000,
        "stored_bytes_after": 60_000,
    }
    assert (second.name, second.modified) == ("DeduplicateInitializersPass", True)
    assert (second.stored_bytes_before, second.stored_bytes_after) == (60_000, 40_000)


def test_a_pass_that_grows_a_graph_past_the_limit_fails_and_names_the_tensors() -> None:
    model = weights(1.0)
    with pytest.raises(PassError) as raised:
        run_recipe(model, once(Do(add_copy)), SharingContract(20_000))
    message = str(raised.value)
    assert message.startswith("sharing is lost after Do: 40,000 bytes stored, at most 36,40")
    assert "w0 = copy_1 (20,000 bytes)" in message


def test_a_graph_above_the_limit_may_shrink_but_not_grow() -> None:
    growing = once(Do(add_copy), DeduplicateInitializersPass())
    with pytest.raises(PassError, match="sharing is lost after Do"):
        run_recipe(weights(1.0, 1.0, 1.0), growing, SharingContract(20_000))
    shrinking = once(DeduplicateInitializersPass())
    run_recipe(weights(1.0, 1.0, 1.0), shrinking, SharingContract(20_000))


def test_a_graph_that_ends_above_the_limit_fails_the_recipe() -> None:
    with pytest.raises(PassError, match=r"after the recipe: .*w0 = w1 = w2 \(40,000 bytes\)"):
        run_recipe(weights(1.0, 1.0, 1.0), once(Do(nothing)), SharingContract(20_000))


def test_expanded_weights_without_duplicates_are_said_to_be_so() -> None:
    with pytest.raises(PassError, match="no tensor is stored twice: weights were expanded"):
        run_recipe(weights(1.0, 2.0), once(Do(nothing)), SharingContract(20_000))


def test_without_a_contract_nothing_is_held_against_a_graph() -> None:
    (record,) = run_recipe(weights(1.0, 1.0), once(Do(add_copy)))
    assert record.stored_bytes_after == record.stored_bytes_before + 20_000


def test_a_failing_pass_is_named() -> None:
    def fail(model: ir.Model) -> None:
        raise KeyError("w9")

    with pytest.raises(PassError, match=r"Do failed: .*w9"):
        run_recipe(weights(1.0), once(Do(fail)), None)


def test_an_error_of_a_pass_that_says_what_to_do_is_passed_on_as_it_is() -> None:
    def refuse(model: ir.Model) -> None:
        raise PassError("needs opset 13; convert it first")

    with pytest.raises(PassError) as raised:
        run_recipe(weights(1.0), once(Do(refuse)))
    assert str(raised.value) == "needs opset 13; convert it first"


class Times(ir.passes.InPlacePass):
    """Report a modification as many times as it is told, then none."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times
        self.calls = 0

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        self.calls += 1
        self.left -= 1
        return ir.passes.PassResult(model, self.left >= 0)


@pytest.mark.parametrize(("times", "rounds", "calls"), [(0, 4, 1), (2, 4, 3), (9, 4, 4), (9, 1, 1)])
def test_a_stage_runs_again_while_something_changes_up_to_its_rounds(
    times: int, rounds: int, calls: int
) -> None:
    change, idle = Times(times), Times(0)
    records = run_recipe(weights(1.0), [Stage((Step(change, ""), Step(idle, "")), rounds)])
    assert (change.calls, idle.calls) == (calls, calls)
    assert len(records) == 1 + max(1, min(times, rounds))  # later rounds: what changed


def test_every_step_of_every_recipe_says_why_it_stands_there() -> None:
    stages = (*capture_recipe(), *share_recipe(), *fuse_recipe(), *finish_recipe())
    stages += tuple(stage for precision in PRECISIONS for stage in store_recipe(precision))
    assert all(step.why for stage in stages for step in stage.steps)
    assert all(stage.steps for stage in stages)


def test_the_sharing_recipe_stores_equal_weights_once_and_the_capture_recipe_none() -> None:
    model = weights(1.0, 1.0)
    run_recipe(model, capture_recipe())
    assert list(model.graph.initializers) == ["w0", "w1"]
    run_recipe(model, share_recipe(), SharingContract(20_000))
    assert list(model.graph.initializers) == ["w0"]


def test_the_recipe_of_a_precision_has_a_pass_per_rule_then_cleans_up() -> None:
    (stage,) = store_recipe(find_precision("int8-int4-tables"))
    names = [type(step.transformation).__name__ for step in stage.steps]
    assert names == [
        "QuantizeToInt4Pass",
        "QuantizeToInt8Pass",
        "RemoveUnusedPass",
        "StripTypesPass",
    ]
    assert stage.steps[0].why == find_precision("int8-int4-tables").rules[0].why
    assert store_recipe(find_precision("fp32")) == ()
