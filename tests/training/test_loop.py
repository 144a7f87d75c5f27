from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from exporter.errors import CheckpointError
from exporter.training.loop import (
    DivergedError,
    Examples,
    Objective,
    Run,
    Schedule,
    Step,
    train,
)

SCHEDULE = Schedule(epochs=3, batch_size=8, learning_rate=0.02, threads=1)


class Parity(Objective):
    """Whether the mean embedding of a sequence tells the target, with dropout on the way."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 1)
        self.dropout = nn.Dropout(0.2)
        self.seen: list[float] = []

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Mapping[str, Tensor], done: float
    ) -> Tensor:
        self.seen.append(done)
        mask = attention_mask.unsqueeze(-1)
        mean = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        logits = self.head(self.dropout(mean)).squeeze(-1)
        return nn.functional.binary_cross_entropy_with_logits(logits, targets["odd"])


def examples(count: int = 60) -> Examples:
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(5, 20, (count,), generator=generator)
    sequences = [[int(a)] * (1 + index % 4) for index, a in enumerate(first)]
    return Examples(sequences, {"odd": (first % 2).float()})


def weights(objective: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in objective.parameters()])


def run(snapshot: Path | None = None, schedule: Schedule = SCHEDULE) -> Run[Parity]:
    return train(Parity(), examples(), schedule, snapshot=snapshot)


class KilledError(Exception):
    """Stands for a process that ends between two steps."""


def test_the_loss_falls_and_the_steps_are_counted() -> None:
    steps: list[Step] = []
    schedule = dataclasses.replace(SCHEDULE, epochs=12)
    result = train(Parity(), examples(), schedule, report=steps.append)
    assert (result.step, result.steps, result.finished) == (96, 96, True)
    assert [s.step for s in steps] == list(range(1, 97))
    assert [s.epoch for s in steps] == [epoch for epoch in range(1, 13) for _ in range(8)]
    first, last = (sum(s.loss for s in part) / 8 for part in (steps[:8], steps[-8:]))
    assert last < 0.6 * first
    assert not result.result.training


def test_the_objective_is_told_how_much_is_done() -> None:
    objective = Parity()
    train(objective, examples(), SCHEDULE)
    assert objective.seen == [step / 24 for step in range(24)]


@pytest.mark.parametrize("stop", [1, 8, 13])
def test_a_killed_run_goes_on_to_the_very_weights_it_would_have_reached(
    tmp_path: Path, stop: int
) -> None:
    snapshot = tmp_path / "snapshot.pt"

    def kill(step: Step) -> None:
        if step.step == stop:
            raise KilledError

    with pytest.raises(KilledError):
        train(Parity(), examples(), SCHEDULE, snapshot=snapshot, snapshot_interval_s=0, report=kill)
    assert snapshot.is_file() == (stop > 1)
    torch.rand(7)  # what is drawn in between must not matter
    steps: list[Step] = []
    resumed = train(Parity(), examples(), SCHEDULE, snapshot=snapshot, report=steps.append)
    assert steps[0].step == stop  # one interval is lost, here one step
    assert torch.equal(weights(resumed.result), weights(run().result))


def test_a_used_up_time_budget_stops_the_run_which_then_goes_on(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.pt"
    stopped = train(Parity(), examples(), SCHEDULE, snapshot=snapshot, time_budget_s=0)
    assert (stopped.step, stopped.steps, stopped.finished) == (1, 24, False)
    resumed = run(snapshot)
    assert resumed.finished
    assert torch.equal(weights(resumed.result), weights(run().result))


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = run(tmp_path / "snapshot.pt")
    steps: list[Step] = []
    again = train(
        Parity(), examples(), SCHEDULE, snapshot=tmp_path / "snapshot.pt", report=steps.append
    )
    assert steps == []
    assert again.finished
    assert torch.equal(weights(again.result), weights(first.result))


def test_seed_and_data_decide_the_weights_and_nothing_global_changes() -> None:
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    schedule = dataclasses.replace(SCHEDULE, threads=1 if threads > 1 else 2)
    first = run(schedule=schedule)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert torch.equal(weights(run(schedule=schedule).result), weights(first.result))
    other = run(schedule=dataclasses.replace(schedule, seed=1))
    assert not torch.equal(weights(other.result), weights(first.result))


def test_the_order_of_the_examples_follows_from_the_seed_and_the_epoch() -> None:
    class Recorder(Parity):
        def forward(
            self,
            input_ids: Tensor,
            attention_mask: Tensor,
            targets: Mapping[str, Tensor],
            done: float,
        ) -> Tensor:
            order.append(input_ids[:, 0].tolist())
            return super().forward(input_ids, attention_mask, targets, done)

    orders = []
    for seed in (0, 0, 1):
        order: list[list[int]] = []
        train(Recorder(), examples(), dataclasses.replace(SCHEDULE, seed=seed))
        orders.append(order)
    first, again, other = orders
    assert first == again
    assert first[:8] != other[:8]
    assert first[:8] != first[8:16]
    assert sorted(chain(*first[:8])) == sorted(chain(*first[8:16]))


def test_without_an_average_the_last_weights_are_kept() -> None:
    objective = Parity()
    kept = train(objective, examples(), dataclasses.replace(SCHEDULE, average_decay=0.0)).result
    assert torch.equal(weights(kept), weights(objective))
    averaged = train(Parity(), examples(), SCHEDULE).result
    assert not torch.equal(weights(averaged), weights(kept))


def test_frozen_weights_stay(tmp_path: Path) -> None:
    objective = Parity()
    before = objective.embedding.weight.detach().clone()
    objective.embedding.weight.requires_grad_(False)
    kept = train(objective, examples(), SCHEDULE).result
    assert torch.equal(kept.embedding.weight, before)
    assert not torch.equal(kept.head.weight, Parity().head.weight)


def test_bf16_products_train_fp32_weights() -> None:
    kept = run(schedule=dataclasses.replace(SCHEDULE, precision="bf16")).result
    assert kept.head.weight.dtype == torch.float32
    assert not torch.equal(weights(kept), weights(run().result))


def test_a_snapshot_of_other_settings_is_refused_and_named(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.pt"
    run(snapshot)
    before = snapshot.read_bytes()
    with pytest.raises(CheckpointError, match=r"schedule\.learning_rate 0\.02, not 0\.5"):
        run(snapshot, dataclasses.replace(SCHEDULE, learning_rate=0.5))
    with pytest.raises(CheckpointError, match=r"texts unset, not \"abc\""):
        train(Parity(), examples(), SCHEDULE, snapshot=snapshot, identity={"texts": "abc"})
    for data in (examples(59), Examples(examples().sequences, {"odd": torch.ones(60)})):
        with pytest.raises(CheckpointError, match="a run with examples "):
            train(Parity(), data, SCHEDULE, snapshot=snapshot)
    assert snapshot.read_bytes() == before


def test_a_run_without_finite_gradients_stops_and_keeps_its_last_snapshot(tmp_path: Path) -> None:
    class Breaking(Parity):
        def forward(
            self,
            input_ids: Tensor,
            attention_mask: Tensor,
            targets: Mapping[str, Tensor],
            done: float,
        ) -> Tensor:
            loss = super().forward(input_ids, attention_mask, targets, done)
            return loss * float("nan") if done > 0.5 else loss

    snapshot = tmp_path / "snapshot.pt"
    with pytest.raises(DivergedError, match=r"step 14 of 24: .*learning rate below 0\.02"):
        train(Breaking(), examples(), SCHEDULE, snapshot=snapshot, snapshot_interval_s=0)
    steps: list[Step] = []
    resumed = train(Parity(), examples(), SCHEDULE, snapshot=snapshot, report=steps.append)
    assert steps[0].step == 14
    assert torch.equal(weights(resumed.result), weights(run().result))


@pytest.mark.parametrize("keep", [0, 1, 500, "other", "noise"])
def test_a_damaged_snapshot_is_one_clear_line(tmp_path: Path, keep: int | str) -> None:
    snapshot = tmp_path / "snapshot.pt"
    run(snapshot)
    if isinstance(keep, int):
        snapshot.write_bytes(snapshot.read_bytes()[:keep])
    elif keep == "noise":
        snapshot.write_bytes(np.random.default_rng(0).bytes(3000))
    else:
        torch.save([1, 2], snapshot)
    with pytest.raises(CheckpointError, match="cannot be resumed from") as caught:
        run(snapshot)
    assert "\n" not in str(caught.value)
    assert "delete it to start again" in str(caught.value)
    assert "from: ;" not in str(caught.value)
    assert "weights_only" not in str(caught.value)
