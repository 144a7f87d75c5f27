from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.errors import CheckpointError
from exporter.models import SharedEncoder, SharingScheme
from exporter.training.data import Labelled
from exporter.training.depths import at_every_depth, score_depths
from exporter.training.distill import (
    DistillationObjective,
    DistillationPlan,
    distill,
    new_student,
)
from exporter.training.judging import Judgements, judge
from exporter.training.loop import Step
from tests.training.tiny import PLAN, sentences, teacher

TEXTS = list(dict.fromkeys(s.text for s in sentences(300)))
TRUTH = {s.text: s.rating for s in sentences(300)}


def ideal(texts: list[str] = TEXTS) -> Judgements:
    """What a perfect teacher would say; its embedding tells the side as well."""
    ratings = torch.tensor([TRUTH[text] for text in texts])
    logits = torch.stack([-ratings, ratings], dim=1)
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(2, 16, generator=generator)
    return Judgements(logits, directions[(ratings > 0).long()].half())


def objective(plan: DistillationPlan, width: int = 16) -> DistillationObjective:
    student, _ = new_student(teacher(width=width), TEXTS, plan)
    nn.init.normal_(student.classifier.weight, generator=torch.Generator().manual_seed(0))
    return DistillationObjective(student, plan, width)


IDS = torch.tensor([[2, 9, 8, 3], [2, 7, 3, 0]])
MASK = (IDS > 0).long()
TARGETS = {
    "logits": torch.tensor([[2.0, -1.0], [0.5, 0.0]]),
    "embedding": torch.randn(2, 16, generator=torch.Generator().manual_seed(3)).half(),
    "label": torch.tensor([[0.2, 0.8], [float("nan")] * 2]),
}


def test_a_student_learns_the_task_at_every_depth() -> None:
    schedule = dataclasses.replace(PLAN.schedule, epochs=25, learning_rate=1e-2)
    plan = dataclasses.replace(PLAN, start="random", schedule=schedule)
    losses: list[float] = []
    run = distill(teacher(), TEXTS, ideal(), plan, report=lambda step: losses.append(step.loss))
    student, tokenizer = run.result
    assert run.finished
    assert sum(losses[-5:]) < 0.2 * sum(losses[:5])
    fresh = [Labelled(s.text, s.rating > 0) for s in sentences(60, seed=9)]
    assert [score.accuracy for score in score_depths(student, tokenizer, fresh)] == [1.0] * 3
    assert not student.training
    assert str(student.config.sharing) == "all"


def _divergence(logits: Tensor, temperature: float) -> Tensor:
    wanted = F.softmax(TARGETS["logits"] / temperature, -1)
    given = F.log_softmax(logits / temperature, -1)
    return temperature**2 * (wanted * (wanted.log() - given)).sum(-1).mean()


def _distance(embeddings: Tensor) -> Tensor:
    return (1 - F.cosine_similarity(embeddings, TARGETS["embedding"].float(), dim=-1)).mean()


def _entropy(logits: Tensor) -> Tensor:
    # The mean over the batch: what has no label adds nothing.
    return -(TARGETS["label"][0] * F.log_softmax(logits[0], -1)).sum() / 2


@pytest.mark.parametrize(
    ("weights", "term"),
    [
        ((1.0, 0.0, 0.0), lambda logits, embeddings: _divergence(logits, 2.0)),
        ((0.0, 1.0, 0.0), lambda logits, embeddings: _distance(embeddings)),
        ((0.0, 0.0, 1.0), lambda logits, embeddings: _entropy(logits)),
        (
            (0.5, 2.0, 3.0),
            lambda logits, embeddings: (
                0.5 * _divergence(logits, 2.0) + 2 * _distance(embeddings) + 3 * _entropy(logits)
            ),
        ),
    ],
)
def test_the_loss_is_the_stated_one_over_all_depths(
    weights: tuple[float, float, float], term: Callable[[Tensor, Tensor], Tensor]
) -> None:
    logit, embedding, label = weights
    plan = dataclasses.replace(
        PLAN, logit_weight=logit, embedding_weight=embedding, label_weight=label
    )
    model = objective(plan).eval()
    logits, embeddings = at_every_depth(model.student, IDS, MASK)
    losses = [term(logits[depth], embeddings[depth]) for depth in range(3)]
    expected = (losses[0] + 2 * losses[1] + 3 * losses[2]) / 6  # deeper ones count more
    torch.testing.assert_close(model(IDS, MASK, TARGETS, 0.0), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("scheme", ["none", "all", "grouped(3)"])
def test_every_block_and_the_classifier_get_a_gradient(scheme: str) -> None:
    plan = dataclasses.replace(PLAN, sharing=SharingScheme.parse(scheme))
    model = objective(plan)
    model(IDS, MASK, TARGETS, 0.0).backward()
    without = [
        name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().any()
    ]
    assert without == []


def test_hidden_tokens_are_hidden_from_the_student_alone() -> None:
    plan = dataclasses.replace(PLAN, word_dropout=1.0)
    student = objective(plan)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hidden = student(IDS, MASK, TARGETS, 0.0)
        clear = objective(PLAN)(IDS, MASK, TARGETS, 0.0)
    assert not torch.allclose(hidden, clear)


def test_a_teacher_of_another_width_is_seen_through_a_bridge() -> None:
    targets = {**TARGETS, "embedding": torch.randn(2, 32)}
    wide = objective(PLAN, width=32)
    loss = wide(IDS, MASK, targets, 0.0)
    loss.backward()
    assert isinstance(wide.bridge, nn.Linear)
    assert wide.bridge.weight.grad is not None
    assert isinstance(objective(PLAN).bridge, nn.Identity)


def test_a_shared_student_may_start_with_fewer_layers_and_others_do_not() -> None:
    phases = ((0.5, 1), (0.8, 2))
    shared = dataclasses.replace(PLAN, shallow_phases=phases)
    assert [shared.layers_at(done) for done in (0.0, 0.49, 0.5, 0.8, 1.0)] == [1, 1, 2, 3, 3]
    for scheme in ("none", "attention_only", "grouped(3)"):
        plan = dataclasses.replace(shared, sharing=SharingScheme.parse(scheme))
        assert plan.layers_at(0.0) == 3
    # Two layers hold both groups of (0, 0, 1) not; of (0, 1) both.
    grouped = dataclasses.replace(shared, sharing=SharingScheme("grouped", 2))
    assert [grouped.layers_at(done) for done in (0.0, 0.6)] == [3, 3]


def test_the_start_takes_the_teachers_embeddings_and_mean_layer() -> None:
    plan = dataclasses.replace(PLAN, embedding_size=16)
    source = teacher()
    student, tokenizer = new_student(source, TEXTS, plan)
    bert = source.model.bert
    old, new = source.tokenizer.token_to_id("lovely"), tokenizer.token_to_id("lovely")
    assert old != new
    words, types = (
        getattr(bert.embeddings, name).weight
        for name in ("word_embeddings", "token_type_embeddings")
    )
    assert torch.equal(student.token_embedding.weight[new], words[old] + types[0])
    mean = torch.stack([layer.intermediate.dense.weight for layer in bert.encoder.layer]).mean(0)
    torch.testing.assert_close(student.ffn_blocks[0].up.weight, mean)
    other = dataclasses.replace(plan, start="random")
    assert not torch.equal(
        new_student(source, TEXTS, other)[0].token_embedding.weight, student.token_embedding.weight
    )


def test_what_has_another_shape_starts_at_random() -> None:
    plan = dataclasses.replace(PLAN, intermediate_size=40)
    student, _ = new_student(teacher(), TEXTS, plan)
    again, _ = new_student(teacher(), TEXTS, plan)
    assert tuple(student.ffn_blocks[0].up.weight.shape) == (40, 16)
    assert torch.equal(student.ffn_blocks[0].up.weight, again.ffn_blocks[0].up.weight)
    same, _ = new_student(teacher(), TEXTS, PLAN)
    assert torch.equal(
        student.attention_blocks[0].norm.weight, same.attention_blocks[0].norm.weight
    )


def test_a_plan_that_is_no_encoder_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no such student: hidden_size 16 is not a multiple"):
        new_student(teacher(), TEXTS, dataclasses.replace(PLAN, heads=5))
    with pytest.raises(CheckpointError, match="a label weight needs labels"):
        distill(teacher(), TEXTS, ideal(), dataclasses.replace(PLAN, label_weight=1.0))


class KilledError(Exception):
    """Stands for a process that ends between two steps."""


def test_a_killed_distillation_resumes_bit_by_bit(tmp_path: Path) -> None:
    def kill(step: Step) -> None:
        if step.step == 5:
            raise KilledError

    texts, snapshot = TEXTS[:64], tmp_path / "snapshot.pt"
    plan = dataclasses.replace(PLAN, dropout=0.1, word_dropout=0.2)
    source = teacher()
    judgements = judge(source, texts)
    with pytest.raises(KilledError):
        distill(
            source, texts, judgements, plan, snapshot=snapshot, snapshot_interval_s=0, report=kill
        )
    resumed, _ = distill(source, texts, judgements, plan, snapshot=snapshot).result
    whole, _ = distill(source, texts, judgements, plan).result
    assert _equal(resumed, whole)
    with pytest.raises(CheckpointError, match="teacher"):
        distill(source, texts, ideal(texts), plan, snapshot=snapshot)


def _equal(a: SharedEncoder, b: SharedEncoder) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
