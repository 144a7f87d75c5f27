from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.errors import CheckpointError
from exporter.models import SharedEncoder, SharingScheme
from exporter.training import distill as distilling
from exporter.training.depths import at_every_depth, logits_at_every_depth
from exporter.training.distill import (
    DistillationObjective,
    DistillationPlan,
    distill,
    new_student,
)
from exporter.training.judging import Judgements, judge
from exporter.training.loop import Step, cpu_threads
from exporter.training.tokenizer import MASK_ID, SPECIAL_TOKENS, UNK_ID
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
    student, *_ = new_student(teacher(width=width), TEXTS, plan)
    nn.init.normal_(student.classifier.weight, generator=torch.Generator().manual_seed(0))
    return DistillationObjective(student, plan, width)


Term = Callable[[Tensor, Tensor], Tensor]

IDS = torch.tensor([[2, 9, 8, 3], [2, 7, 3, 0]])
MASK = (IDS > 0).long()
TARGETS = {
    "logits": torch.tensor([[2.0, -1.0], [0.5, 0.0]]),
    "embedding": torch.randn(2, 16, generator=torch.Generator().manual_seed(3)).half(),
}


def test_a_student_learns_the_task_at_every_depth() -> None:
    schedule = dataclasses.replace(PLAN.schedule, epochs=25, learning_rate=1e-2)
    plan = dataclasses.replace(PLAN, start="random", schedule=schedule)
    losses: list[float] = []
    run = distill(teacher(), TEXTS, ideal(), plan, report=lambda step: losses.append(step.loss))
    student, tokenizer = run.result
    assert run.finished
    assert sum(losses[-5:]) < 0.2 * sum(losses[:5])
    fresh = sentences(60, seed=9)
    said = logits_at_every_depth(student, tokenizer, [s.text for s in fresh]).argmax(-1)
    truth = torch.tensor([s.rating > 0 for s in fresh])
    assert [torch.equal(depth.bool(), truth) for depth in said] == [True] * 3
    assert not student.training
    assert str(student.config.sharing) == "all"


def _divergence(logits: Tensor, temperature: float) -> Tensor:
    wanted = F.softmax(TARGETS["logits"] / temperature, -1)
    given = F.log_softmax(logits / temperature, -1)
    return temperature**2 * (wanted * (wanted.log() - given)).sum(-1).mean()


def _distance(embeddings: Tensor) -> Tensor:
    return (1 - F.cosine_similarity(embeddings, TARGETS["embedding"].float(), dim=-1)).mean()


def _both(logits: Tensor, embeddings: Tensor) -> Tensor:
    return _divergence(logits, 2.0) + _distance(embeddings)


def _expected(model: DistillationObjective, ids: Tensor, term: Term) -> Tensor:
    logits, embeddings = at_every_depth(model.student, ids, MASK)
    losses = [term(logits[depth], embeddings[depth]) for depth in range(3)]
    return (losses[0] + 2 * losses[1] + 3 * losses[2]) / 6  # deeper ones count more


@pytest.mark.parametrize(
    ("weights", "term"),
    [
        ((1.0, 0.0), lambda logits, embeddings: _divergence(logits, 2.0)),
        ((0.0, 1.0), lambda logits, embeddings: _distance(embeddings)),
        (
            (0.5, 2.0),
            lambda logits, embeddings: 0.5 * _divergence(logits, 2.0) + 2 * _distance(embeddings),
        ),
    ],
)
def test_the_loss_is_the_stated_one_over_all_depths(
    weights: tuple[float, float], term: Term
) -> None:
    plan = dataclasses.replace(PLAN, logit_weight=weights[0], embedding_weight=weights[1])
    model = objective(plan).eval()
    expected = _expected(model, IDS, term)
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


def test_hidden_tokens_are_hidden_from_the_student_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = dataclasses.replace(PLAN, word_dropout=1.0)
    seen: list[Tensor] = []

    def spy(student: SharedEncoder, ids: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        seen.append(ids)
        return at_every_depth(student, ids, *rest)

    monkeypatch.setattr(distilling, "at_every_depth", spy)
    model = objective(plan).eval()
    loss = model(IDS, MASK, TARGETS, 0.0)
    (ids,) = seen
    special = len(SPECIAL_TOKENS) > IDS
    assert torch.equal(ids[special], IDS[special])
    assert set(ids[~special].tolist()) <= {MASK_ID, UNK_ID}
    # What the teacher says is not of these, but of the whole texts.
    torch.testing.assert_close(loss, _expected(model, ids, _both), atol=1e-5, rtol=1e-4)


def test_a_teacher_of_another_width_is_seen_through_a_bridge() -> None:
    targets = {**TARGETS, "embedding": torch.randn(2, 32)}
    wide = objective(PLAN, width=32)
    assert torch.equal(wide.bridge.weight, objective(PLAN, width=32).bridge.weight)
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


@pytest.mark.parametrize(
    ("scheme", "layers"),
    [
        ("all", [2, 2, 4, 6]),
        ("grouped(2)", [6, 6, 4, 6]),  # of (0, 0, 0, 1, 1, 1) two layers are one group
        ("grouped(3)", [6, 6, 6, 6]),  # of (0, 0, 1, 1, 2, 2) four are two groups
    ],
)
def test_a_phase_that_leaves_a_block_out_runs_all_layers(scheme: str, layers: list[int]) -> None:
    plan = DistillationPlan(sharing=SharingScheme.parse(scheme))
    assert plan.layers == 6
    assert [plan.layers_at(done) for done in (0.0, 0.49, 0.5, 0.8)] == layers


def test_the_start_takes_the_teachers_embeddings_and_mean_layer() -> None:
    plan = dataclasses.replace(PLAN, embedding_size=16)
    source = teacher()
    student, tokenizer, *_ = new_student(source, TEXTS, plan)
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
        new_student(source, TEXTS, other).model.token_embedding.weight,
        student.token_embedding.weight,
    )


@pytest.mark.parametrize("threads", [1, 3])
def test_a_new_student_is_the_same_whatever_the_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Small matrices would come out the same anyway: it is the number itself that is looked at.
    seen = []
    shares = distilling.shrink_embedding

    def shrink(*arguments: Any) -> Any:
        seen.append(torch.get_num_threads())
        return shares(*arguments)

    monkeypatch.setattr(distilling, "shrink_embedding", shrink)
    with cpu_threads(threads):
        new_student(teacher(), TEXTS, PLAN)
        assert torch.get_num_threads() == threads
    assert seen == [2]


def test_what_has_another_shape_starts_at_random() -> None:
    plan = dataclasses.replace(PLAN, intermediate_size=40)
    student, *_ = new_student(teacher(), TEXTS, plan)
    again, *_ = new_student(teacher(), TEXTS, plan)
    assert tuple(student.ffn_blocks[0].up.weight.shape) == (40, 16)
    assert torch.equal(student.ffn_blocks[0].up.weight, again.ffn_blocks[0].up.weight)
    same, *_ = new_student(teacher(), TEXTS, PLAN)
    assert torch.equal(
        student.attention_blocks[0].norm.weight, same.attention_blocks[0].norm.weight
    )


def test_a_new_student_tells_what_it_took_over_and_which_sizes_are_other_ones() -> None:
    same = new_student(teacher(), TEXTS, dataclasses.replace(PLAN, embedding_size=16))
    classifier = sum(p.numel() for p in same.model.classifier.parameters())
    count = sum(p.numel() for p in same.model.parameters())
    assert same.taken_over == pytest.approx(1 - classifier / count)
    assert same.fitting == {}
    narrow = new_student(teacher(), TEXTS, dataclasses.replace(PLAN, intermediate_size=40))
    lost = sum(p.numel() for n, p in narrow.model.named_parameters() if ".up." in n)
    lost += narrow.model.ffn_blocks[0].down.weight.numel() + classifier
    count = sum(p.numel() for p in narrow.model.parameters())
    assert narrow.taken_over == pytest.approx(1 - lost / count)
    assert narrow.fitting == {"intermediate_size": 24}
    wide = new_student(teacher(width=32), TEXTS, PLAN)
    bias = wide.model.ffn_blocks[0].up.bias.numel()
    assert wide.taken_over == pytest.approx(bias / sum(p.numel() for p in wide.model.parameters()))
    assert wide.fitting == {"hidden_size": 32}
    unlike = new_student(teacher(), TEXTS, dataclasses.replace(PLAN, start="random"))
    assert (unlike.taken_over, unlike.fitting) == (0.0, {})


def test_a_plan_that_is_no_encoder_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no such student: hidden_size 16 is not a multiple"):
        new_student(teacher(), TEXTS, dataclasses.replace(PLAN, heads=5))


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
    for other, said, message in (
        (source, ideal(texts), "a run with examples "),
        (teacher(seed=1), judgements, "a run with question "),
    ):
        with pytest.raises(CheckpointError, match=message):
            distill(other, texts, said, plan, snapshot=snapshot)


def _equal(a: SharedEncoder, b: SharedEncoder) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
