"""The rules of an early exit in PyTorch, on answers written by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from exporter.models import EarlyExit
from exporter.models.early_exit import exit_signals


def logits(*chances: float) -> Tensor:
    """Two labels; each number is the probability of the first, one row each."""
    return torch.tensor([[math.log(p / (1 - p)), 0.0] for p in chances])


PASSES = [logits(0.6, 0.2), logits(0.7, 0.6), logits(0.9, 0.7), logits(0.95, 0.4)]


def used(exit_: EarlyExit, passes: list[Tensor] = PASSES, mask: Tensor | None = None) -> list[int]:
    layers = exit_.layers_used(passes, mask)
    assert layers.dtype == torch.int64
    return layers.tolist()


def test_confidence_is_the_largest_probability() -> None:
    signals = exit_signals("confidence", PASSES)
    expected = torch.tensor([[0.6, 0.8], [0.7, 0.6], [0.9, 0.7], [0.95, 0.6]])
    torch.testing.assert_close(signals, expected)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [(0.0, [1, 1]), (0.65, [2, 1]), (0.75, [3, 1]), (0.85, [3, 4]), (0.99, [4, 4]), (1.0, [4, 4])],
)
def test_a_row_leaves_after_the_first_confident_pass(threshold: float, expected: list[int]) -> None:
    assert used(EarlyExit("confidence", threshold)) == expected


def test_a_threshold_must_be_passed_not_met() -> None:
    even = [logits(0.5), logits(0.5)]
    assert used(EarlyExit("confidence", 0.5), even) == [2]
    certain = [torch.tensor([[1e4, 0.0]])] * 3
    assert used(EarlyExit("confidence", 1.0), certain) == [3]


@pytest.mark.parametrize(
    ("patience", "expected"), [(0, [1, 1]), (1, [2, 3]), (2, [3, 4]), (3, [4, 4]), (4, [4, 4])]
)
def test_patience_waits_for_so_many_passes_without_a_change(
    patience: int, expected: list[int]
) -> None:
    """The labels are 0 0 0 0 and 1 0 0 1."""
    assert used(EarlyExit("patience", patience)) == expected


def test_change_is_relative_to_the_pass_before() -> None:
    states = [torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([[3.0, 4.5], [1.0, 0.0]])]
    signals = exit_signals("change", states)
    assert signals.tolist() == [[math.inf, math.inf], [pytest.approx(0.1), math.inf]]
    states.append(states[-1])
    assert used(EarlyExit("change", 0.2), states) == [2, 3]
    assert used(EarlyExit("change", 0.0), states) == [3, 3]


def test_change_sums_over_tokens_that_are_no_padding() -> None:
    first = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    second = torch.tensor([[[1.0, 0.0], [9.0, 0.0]]])
    passes = [first, second, second]
    assert used(EarlyExit("change", 0.5), passes) == [3]
    assert used(EarlyExit("change", 0.5), passes, torch.tensor([[1, 0]])) == [2]


@pytest.mark.parametrize("rule", ["confidence", "patience", "change"])
def test_without_a_setting_all_passes_are_made(rule: str) -> None:
    assert used(EarlyExit(rule)) == [4, 4]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [(1, None, 1), (3, None, 3), (9, None, 4), (3, 2, 2), (0, 4, 1), (1, 0, 1), (2, 9, 2)],
)
def test_bounds_hold_and_the_upper_one_decides(least: int, most: int | None, expected: int) -> None:
    exit_ = EarlyExit("confidence", 0.0, min_layers=least, max_layers=most)
    assert used(exit_) == [expected] * 2


def test_patience_counts_from_the_first_pass_it_looks_at() -> None:
    assert used(EarlyExit("patience", 1, min_layers=2)) == [3, 3]


def test_each_row_has_the_answer_of_its_pass() -> None:
    answers = EarlyExit.answers(PASSES, torch.tensor([3, 1]))
    assert torch.equal(answers, torch.stack([PASSES[2][0], PASSES[0][1]]))
