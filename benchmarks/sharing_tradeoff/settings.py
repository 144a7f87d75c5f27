"""What the study trains: sizes, budgets, and the list of runs."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from exporter.models import EncoderConfig, SharedEncoder, SharingScheme
from exporter.training.fine_tuning import FineTuningPlan
from exporter.training.loop import Schedule
from exporter.training.snapshots import plain
from exporter.training.starts import spread_embedding, spread_weights

__all__ = [
    "FULL",
    "OTHER_START",
    "SMOKE",
    "Classifying",
    "Generating",
    "Run",
    "Start",
    "Study",
    "TaskName",
    "digest",
]

TaskName = Literal["classify", "generate"]
Start = Literal["by inputs", "albert"]
_Encoder = TypeVar("_Encoder", bound=SharedEncoder)


@dataclass(frozen=True)
class Run:
    """One training and all its evaluations."""

    task: TaskName
    scheme: str
    seed: int
    distilled: bool

    @property
    def name(self) -> str:
        """Name of its files: ``classify-grouped3-distilled-1``."""
        scheme = self.scheme.replace("(", "").replace(")", "")
        return f"{self.task}-{scheme}-{'distilled' if self.distilled else 'plain'}-{self.seed}"


@dataclass(frozen=True)
class Classifying:
    """How classifiers learn; the same for all schemes.

    Args:
        schedule: of every one.
        start: deviation of the weights that training starts from: ``by inputs``, of each
            matrix the inverse root of their number; ``albert``: 0.02, but for the embedding.
        teacher: how the teacher of the distilled ones is made. Of people's ratings the plain
            ones learn the probabilities that it learned.
        temperature: of the teacher's answers.
        hidden_share: share of a text's pieces that is hidden in training.
        distilled_texts: how many more texts a distilled one sees than there are rated ones,
            each so much more seldom: the steps stay the same.
    """

    schedule: Schedule
    start: Start = "by inputs"
    teacher: FineTuningPlan = field(default_factory=FineTuningPlan)
    temperature: float = 2.0
    hidden_share: float = 0.1
    distilled_texts: int = 2


@dataclass(frozen=True)
class Generating:
    """How generators learn; the same for all schemes.

    Args:
        schedule: of every one.
        teacher: of the teacher of the distilled ones; it shares nothing.
        passages: how many passages that one learns from, and how many others all are
            measured on.
        student_passages: how many of the teacher's passages its students learn from.
        start: as in :class:`Classifying`.
        teacher_factor: width of the teacher, in widths of a student.
        teacher_share: share of the loss that compares with the teacher's answer; the rest is
            the text itself.
        likeliest: of the teacher's answer at a place, so many pieces are kept.
        tokenizer_texts: how many texts the word pieces are chosen on.
    """

    schedule: Schedule
    teacher: Schedule
    passages: tuple[int, int]
    student_passages: int
    start: Start = "albert"
    teacher_factor: int = 2
    teacher_share: float = 0.5
    likeliest: int = 8
    tokenizer_texts: int = 40_000


@dataclass(frozen=True)
class Study:
    """Everything that decides the results, besides data, machine and libraries.

    Args:
        layers, hidden_size, intermediate_size, heads: of every encoder.
        vocab_size: pieces of each task's own tokenizer.
        max_length: tokens of a text, or of a passage.
        schemes: what layers share; as many groups as layers are ``none``.
        seeds: of weights and order.
        prunings: shares of the layers' weights set to zero after training.
        classify, generate: what is the task's own.
        tasks: ``classify`` sentences; ``generate``: give the next piece of a passage.
        distilled: whether runs learn from a teacher.
        precisions: of the exported files.
        evaluation_batch: texts or passages that the files are run on at a time.
        timed: whether the first seed's plain, unpruned artifacts are kept, to be timed.
    """

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    vocab_size: int
    max_length: int
    schemes: tuple[str, ...]
    seeds: tuple[int, ...]
    prunings: tuple[float, ...]
    classify: Classifying
    generate: Generating
    tasks: tuple[TaskName, ...] = ("classify", "generate")
    distilled: tuple[bool, ...] = (False, True)
    precisions: tuple[str, ...] = ("fp32", "int8", "int4")
    evaluation_batch: int = 16
    timed: bool = True

    def runs(self) -> Iterator[Run]:
        """List all runs, seed by seed, so that an unfinished study has whole tables first."""
        for seed, task, distilled, scheme in itertools.product(
            self.seeds, self.tasks, self.distilled, self.schemes
        ):
            yield Run(task, scheme, seed, distilled)

    def encoder(
        self, task: TaskName, scheme: str, vocab_size: int, factor: int = 1
    ) -> EncoderConfig:
        """Return the configuration of an encoder, ``factor`` times as wide."""
        width = factor * self.hidden_size
        return EncoderConfig(
            vocab_size=vocab_size,
            embedding_size=width,
            hidden_size=width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=factor * self.intermediate_size,
            max_position_embeddings=self.max_length,
            sharing=SharingScheme.parse(scheme),
            head="sequence_classification" if task == "classify" else "masked_lm",
            labels=("negative", "positive") if task == "classify" else (),
        )

    def draw(self, task: TaskName, model: _Encoder) -> _Encoder:
        """Give a new model the random weights it starts from; return it."""
        start = self.classify.start if task == "classify" else self.generate.start
        return spread_weights(model) if start == "by inputs" else spread_embedding(model)

    def keeps(self, run: Run) -> bool:
        """Tell whether a run's artifact is kept, to be timed."""
        return self.timed and run.seed == self.seeds[0] and not run.distilled

    def digest(self, task: TaskName) -> str:
        """Return a short hash of what decides a run of ``task``; the list of runs does not."""
        content = plain(self)
        assert isinstance(content, dict)
        other = "generate" if task == "classify" else "classify"
        for name in ("schemes", "seeds", "tasks", "distilled", "timed", other):
            del content[name]
        return digest(content)


def digest(settings: object) -> str:
    """Return a short hash of settings: dataclasses, or mappings of what JSON can hold."""
    return hashlib.sha256(json.dumps(plain(settings), sort_keys=True).encode()).hexdigest()[:16]


FULL = Study(
    layers=6,
    hidden_size=64,
    intermediate_size=256,
    heads=4,
    vocab_size=2000,
    max_length=48,
    schemes=("none", "grouped(3)", "grouped(2)", "attention_only", "ffn_only", "all"),
    seeds=(0, 1, 2),
    prunings=(0.0, 0.3, 0.5),
    classify=Classifying(Schedule(epochs=2, batch_size=32, learning_rate=2e-3, threads=1)),
    generate=Generating(
        Schedule(epochs=1, batch_size=16, learning_rate=2e-3, threads=1),
        teacher=Schedule(epochs=2, batch_size=32, learning_rate=1e-3, threads=1),
        passages=(48_000, 400),
        student_passages=24_000,
    ),
)

OTHER_START = replace(
    FULL,
    schemes=("none", "all"),
    distilled=(False,),
    classify=replace(FULL.classify, start=FULL.generate.start),
    generate=replace(FULL.generate, start=FULL.classify.start),
    timed=False,
)
"""Both ends of sharing, plain, each task from the random weights of the other one."""

_QUICK = Schedule(epochs=2, batch_size=16, learning_rate=3e-3, average_decay=0.9, threads=1)

_QUICK_TEACHER = FineTuningPlan(
    max_length=12, schedule=Schedule(epochs=1, batch_size=64, learning_rate=1e-4, threads=1)
)

SMOKE = Study(
    layers=2,
    hidden_size=16,
    intermediate_size=32,
    heads=2,
    vocab_size=300,
    max_length=24,
    schemes=("none", "all"),
    seeds=(0,),
    prunings=(0.0, 0.5),
    classify=Classifying(_QUICK, teacher=_QUICK_TEACHER),
    generate=Generating(_QUICK, teacher=_QUICK, passages=(64, 16), student_passages=48),
)
"""The same in small, to see that everything works; its figures say nothing."""
