from __future__ import annotations

import logging
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporter.source_model import export_conditions, run_source, source_runner
from tests.samples import Own, as_loaded, ids_inputs, tiny_encoder

FEEDS = {"x": np.ones((2, 3, 8), np.float32)}
Pair = namedtuple("Pair", ["left", "right"])


def names(result: Any) -> list[str]:
    return list(run_source(as_loaded(Own(lambda m, x: result(x))), FEEDS))


def test_outputs_are_named_after_what_the_forward_returns() -> None:
    assert names(lambda x: x) == ["output"]
    assert names(lambda x: (x,)) == ["output"]
    assert names(lambda x: [x, x]) == ["output_0", "output_1"]
    assert names(lambda x: {"logits": x, "loss": None}) == ["logits"]
    assert names(lambda x: {"a": (x, x), "b": {"c": x}}) == ["a_0", "a_1", "b_c"]
    assert names(lambda x: Pair(x, x)) == ["left", "right"]
    assert names(lambda x: {"a": Pair(x, x)}) == ["a_left", "a_right"]


def test_the_source_runs_in_eval_mode_without_gradients_and_its_mode_is_restored() -> None:
    seen: list[bool] = []

    def forward(m: Own, x: Tensor) -> Tensor:
        seen.append(m.training or torch.is_grad_enabled())
        return nn.functional.dropout(m.linear(x), 0.9, training=m.training)

    module = Own(forward).train()
    loaded = as_loaded(module)
    outputs = run_source(loaded, FEEDS)
    assert seen == [False]
    assert module.training
    assert module.linear.training
    with torch.no_grad():
        expected = module.linear(torch.ones(2, 3, 8)).numpy()
    assert np.array_equal(outputs["output"], expected)


def test_a_weight_that_needs_gradients_can_be_an_output() -> None:
    module = Own(lambda m, x: m.linear.weight)
    assert np.array_equal(
        run_source(as_loaded(module), FEEDS)["output"], module.linear.weight.detach().numpy()
    )


def test_inputs_reach_the_parameters_of_their_names_whatever_the_order_of_feeds() -> None:
    inputs = ids_inputs(100, 24)
    loaded = as_loaded(tiny_encoder(), inputs.specs, inputs.limits)
    feeds = inputs.draw({"batch": 2, "sequence": 5}, lengths=[5, 2])
    backwards = dict(reversed(feeds.items()))
    one, other = source_runner(loaded)(feeds), source_runner(loaded)(backwards)
    assert np.array_equal(one["output"], other["output"])


def test_log_levels_and_warnings_are_restored() -> None:
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        with pytest.raises(KeyError), export_conditions(nn.Linear(1, 1)):
            assert logger.level == logging.ERROR
            raise KeyError
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(before)


def test_random_numbers_of_the_forward_do_not_advance_the_callers() -> None:
    noisy = as_loaded(Own(lambda m, x: m.linear(x) + torch.rand(1)))
    state = torch.random.get_rng_state()
    run_source(noisy, FEEDS)
    assert torch.equal(torch.random.get_rng_state(), state)
