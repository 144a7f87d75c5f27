"""Distillation: a small encoder with shared layers learns what a teacher says of real text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.errors import CheckpointError
from exporter.models import EncoderConfig, SharedEncoder, SharingScheme
from exporter.training.batches import encode, hide_tokens
from exporter.training.convert import from_bert, share_layers, shrink_embedding
from exporter.training.depths import at_every_depth
from exporter.training.judging import Judgements, question_key
from exporter.training.loop import Examples, Objective, Run, Schedule, Step, cpu_threads, train
from exporter.training.starts import spread_embedding
from exporter.training.teacher import Teacher
from exporter.training.vocabulary import kept_rows, trim_tokenizer

__all__ = [
    "DistillationObjective",
    "DistillationPlan",
    "NewStudent",
    "distill",
    "new_student",
    "student_identity",
]

_START_THREADS = 2


@dataclass(frozen=True)
class DistillationPlan:
    """A student's shape and how it learns: with teacher and texts, all that decides it.

    Args:
        sharing: scheme of the student.
        layers: depth; with full sharing, passes through the one layer.
        vocab_size: pieces kept of the teacher's vocabulary.
        embedding_size: width of the factorized embedding.
        hidden_size, intermediate_size, heads: of the encoder.
        max_length: tokens of the longest input.
        dropout: of embeddings, attention and both halves' outputs.
        word_dropout: share of the tokens hidden from the student, not from the teacher.
        start: ``teacher``: embeddings and whatever else has the same shape come from the
            teacher, layers averaged into the scheme's groups; ``random``: nothing does. How
            much that is, :class:`NewStudent` tells.
        temperature: softens both sides' probabilities, so that more than the better
            label is learned.
        logit_weight: of the divergence of those probabilities, times temperature².
        embedding_weight: of 1 - cosine between both sides' sentence embeddings.
        shallow_phases: ``(until, layers)``, by ``until``: up to this share of the steps only
            so many layers, which costs less time; where the scheme then leaves a block
            without use, all layers run instead.
        schedule: how long and how fast.
    """

    sharing: SharingScheme = field(default_factory=SharingScheme)
    layers: int = 6
    vocab_size: int = 12_000
    embedding_size: int = 192
    hidden_size: int = 384
    intermediate_size: int = 768
    heads: int = 12
    max_length: int = 128
    dropout: float = 0.0
    word_dropout: float = 0.1
    start: Literal["teacher", "random"] = "teacher"
    temperature: float = 2.0
    logit_weight: float = 1.0
    embedding_weight: float = 1.0
    shallow_phases: tuple[tuple[float, int], ...] = ((0.5, 2), (0.8, 4))
    schedule: Schedule = field(
        default_factory=lambda: Schedule(
            epochs=6, batch_size=64, learning_rate=1e-3, weight_decay=0.02, threads=1
        )
    )

    def layers_at(self, done: float) -> int:
        """Layers to train with when this share (0 to 1) of the steps is done."""
        layers = next((few for until, few in self.shallow_phases if done < until), self.layers)
        layers = min(layers, self.layers)
        return layers if self._blocks(layers) == self._blocks(self.layers) else self.layers

    def _blocks(self, layers: int) -> set[tuple[str, int]]:
        used = range(layers)
        return {("attention", self.sharing.attention_block(i, self.layers)) for i in used} | {
            ("ffn", self.sharing.ffn_block(i, self.layers)) for i in used
        }


class NewStudent(NamedTuple):
    """A student before any training.

    Args:
        model: the encoder.
        tokenizer: its own.
        taken_over: share of its weights, from 0 to 1, that are the teacher's or a mean of them.
        fitting: sizes of the plan that are not the teacher's, by name, and what the teacher's
            are: with these its layers would be taken over whole.
    """

    model: SharedEncoder
    tokenizer: Tokenizer
    taken_over: float
    fitting: Mapping[str, int]


class DistillationObjective(Objective):
    """The student, judged after every layer; deeper ones count more.

    Targets: ``logits`` ``[B, labels]`` and ``embedding`` ``[B, width]``, the teacher's.
    """

    def __init__(self, student: SharedEncoder, plan: DistillationPlan, teacher_width: int) -> None:
        super().__init__()
        self.student, self._plan = student, plan
        # Only the loss needs it: a teacher of another width sees the student through it.
        same = teacher_width == student.config.hidden_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.schedule.seed)
            self.bridge = (
                nn.Identity() if same else nn.Linear(student.config.hidden_size, teacher_width)
            )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Mapping[str, Tensor], done: float
    ) -> Tensor:
        """Return the mean over the batch, weighted over depths and kinds of loss."""
        plan = self._plan
        ids = hide_tokens(input_ids, plan.word_dropout)
        logits, embeddings = at_every_depth(self.student, ids, attention_mask, plan.layers_at(done))
        losses = torch.zeros(len(logits), device=logits.device)
        logits = logits.float()
        if plan.logit_weight:
            wanted = F.log_softmax(targets["logits"] / plan.temperature, dim=-1)
            given = F.log_softmax(logits / plan.temperature, dim=-1)
            divergence = (wanted.exp() * (wanted - given)).sum(-1).mean(-1)
            losses = losses + plan.logit_weight * plan.temperature**2 * divergence
        if plan.embedding_weight:
            seen = self.bridge(embeddings).float()
            cosine = F.cosine_similarity(seen, targets["embedding"].float(), dim=-1)
            losses = losses + plan.embedding_weight * (1 - cosine).mean(-1)
        weights = torch.arange(1.0, len(losses) + 1, device=losses.device)
        return (losses * weights).sum() / weights.sum()


def student_identity(
    teacher: Teacher, texts: Sequence[str], plan: DistillationPlan
) -> dict[str, object]:
    """Return what tells the student that :func:`distill` makes of these from all others."""
    return {"plan": plan, "question": question_key(teacher, texts, plan.schedule.precision)}


@cpu_threads(_START_THREADS)
def new_student(teacher: Teacher, texts: Sequence[str], plan: DistillationPlan) -> NewStudent:
    """Build the student before any training, and its tokenizer.

    Threads decide the last bits of what is factorized and averaged here, and from other last
    bits another student comes out. So their number is always the same, whatever the machine
    has and the schedule says.

    Raises:
        CheckpointError: the teacher's tokenizer or sizes do not fit the plan.
    """
    tokenizer = trim_tokenizer(
        teacher.tokenizer, texts, vocab_size=plan.vocab_size, max_length=plan.max_length
    )
    try:
        config = EncoderConfig(
            vocab_size=tokenizer.get_vocab_size(),
            embedding_size=plan.embedding_size,
            hidden_size=plan.hidden_size,
            num_hidden_layers=plan.layers,
            num_attention_heads=plan.heads,
            intermediate_size=plan.intermediate_size,
            max_position_embeddings=plan.max_length,
            sharing=plan.sharing,
            head="sequence_classification",
            labels=teacher.labels,
            dropout=plan.dropout,
        )
    except ValueError as error:
        raise CheckpointError(f"no such student: {error}") from error
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.schedule.seed)
        student = spread_embedding(SharedEncoder(config))
    if plan.start == "random":
        return NewStudent(student, tokenizer, 0.0, {})
    try:
        taken = _take_over(student, teacher, kept_rows(tokenizer, teacher.tokenizer))
    except ValueError as error:
        raise CheckpointError(f"no such student: {error}; or start at random") from error
    return NewStudent(student, tokenizer, taken, _fitting(teacher, plan))


def distill(
    teacher: Teacher,
    texts: Sequence[str],
    judgements: Judgements,
    plan: DistillationPlan,
    *,
    student: NewStudent | None = None,
    snapshot: Path | None = None,
    snapshot_interval_s: float = 120,
    report: Callable[[Step], None] | None = None,
    time_budget_s: float = math.inf,
    stop: Callable[[], bool] = lambda: False,
) -> Run[tuple[SharedEncoder, Tokenizer]]:
    """Train a student on what ``teacher`` says of ``texts``.

    Args:
        teacher: gives the vocabulary and the start.
        texts: the transfer set.
        judgements: the teacher's, of these texts.
        plan: everything else.
        student: what :func:`new_student` made of these very arguments, where that is at hand.
        snapshot, snapshot_interval_s, report, time_budget_s, stop: as in
            :func:`~exporter.training.loop.train`; a step's ``average.student`` is the
            student.

    Raises:
        CheckpointError: teacher and plan do not fit, or ``snapshot`` holds another run.
    """
    model, tokenizer, *_ = student or new_student(teacher, texts, plan)
    targets = {"logits": judgements.logits, "embedding": judgements.embeddings}
    run = train(
        DistillationObjective(model, plan, teacher.width),
        Examples(encode(tokenizer, texts), targets),
        plan.schedule,
        snapshot=snapshot,
        snapshot_interval_s=snapshot_interval_s,
        identity=student_identity(teacher, texts, plan),
        report=report,
        time_budget_s=time_budget_s,
        stop=stop,
    )
    return Run((run.result.student, tokenizer), run.step, run.steps)


@torch.no_grad()
def _take_over(student: SharedEncoder, teacher: Teacher, rows: Sequence[int]) -> float:
    """Load whatever the teacher, converted, has in the student's shape; return which share."""
    config = student.config
    source = from_bert(teacher.model, max_length=config.max_position_embeddings)
    source = share_layers(source, config.sharing, config.num_hidden_layers)
    if config.hidden_size == source.config.hidden_size:
        source = shrink_embedding(source, rows, config.embedding_size)
    own = student.state_dict()
    found = source.state_dict()
    same = {
        name: found[name] for name in own if name in found and found[name].shape == own[name].shape
    }
    student.load_state_dict({**own, **same})
    # The converted classifier is zeros: nothing that a teacher knows.
    taken = sum(values.numel() for name, values in same.items() if "classifier" not in name)
    return taken / sum(values.numel() for values in own.values())


def _fitting(teacher: Teacher, plan: DistillationPlan) -> dict[str, int]:
    config = teacher.model.config
    sizes = {
        "hidden_size": config.hidden_size,
        "heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
    }
    return {name: size for name, size in sizes.items() if size != getattr(plan, name)}
