"""Telling positive sentences from negative ones: what is learned, and what is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

from benchmarks.sharing_tradeoff.places import Places
from benchmarks.sharing_tradeoff.settings import Run, Study
from benchmarks.sharing_tradeoff.texts import LABELLED, TEXTS, UNRATED, read_rated, read_texts
from exporter.artifact import Artifact
from exporter.evaluation import EvaluationOptions, evaluate_artifact
from exporter.models import SharedEncoder, save_folder
from exporter.training.batches import encode, hide_tokens
from exporter.training.distilled_demo import TEACHER_FOLDER, demo_teacher
from exporter.training.judging import judge
from exporter.training.loop import Examples, Objective, train
from exporter.training.runs import ProgressReport
from exporter.training.sources import DataError
from exporter.training.teacher import load_teacher
from exporter.training.tokenizer import save_tokenizer, train_tokenizer

__all__ = ["evaluate", "learn", "make_teacher", "prepare", "write_source"]


class ClassifyObjective(Objective):
    """Divergence from the probabilities that ``targets["logits"]`` ``[B, 2]`` stand for.

    Args:
        model: what learns.
        temperature: that both sides' logits are divided by.
        hidden_share: share of the tokens that is hidden from the model.
    """

    def __init__(self, model: SharedEncoder, temperature: float, hidden_share: float) -> None:
        super().__init__()
        self.model, self._temperature, self._hidden = model, temperature, hidden_share

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Mapping[str, Tensor], done: float
    ) -> Tensor:
        """Return the mean over the batch, times temperature²."""
        logits = self.model(hide_tokens(input_ids, self._hidden), attention_mask)
        wanted = F.log_softmax(targets["logits"] / self._temperature, dim=-1)
        given = F.log_softmax(logits / self._temperature, dim=-1)
        divergence = (wanted.exp() * (wanted - given)).sum(-1).mean()
        return self._temperature**2 * divergence


def make_teacher(data_dir: Path, study: Study, places: Places, progress: ProgressReport) -> None:
    """Fine-tune the teacher of the distilled runs where it is not there yet.

    Raises:
        ExportError: an archive cannot be fetched or read.
    """
    plan = study.classify.teacher
    demo_teacher(data_dir, places.teacher(plan), plan, progress)


def prepare(study: Study, places: Places) -> None:
    """Train the tokenizer, and where there are distilled runs ask the teacher about all texts."""
    rated = [sentence.text for sentence in read_rated(places.folder)]
    tokenizer = train_tokenizer(rated, vocab_size=study.vocab_size, max_length=study.max_length)
    save_tokenizer(tokenizer, places.base)
    if any(study.distilled):
        _answers(study, places)


def learn(study: Study, run: Run, places: Places) -> SharedEncoder:
    """Train one encoder, on people's ratings or on the teacher's answers."""
    own = study.classify
    tokenizer = Tokenizer.from_file(str(places.base / "tokenizer.json"))
    schedule = dataclasses.replace(own.schedule, seed=run.seed)
    if run.distilled:
        texts, logits = _answers(study, places)
        schedule = dataclasses.replace(schedule, epochs=schedule.epochs // own.distilled_texts)
    else:
        rated = read_rated(places.folder)
        texts = [sentence.text for sentence in rated]
        ratings = torch.tensor([sentence.rating for sentence in rated])
        logits = torch.stack([0 * ratings, own.teacher.sharpness * ratings], dim=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        config = study.encoder("classify", run.scheme, tokenizer.get_vocab_size())
        model = study.draw("classify", SharedEncoder(config))
    temperature = own.temperature if run.distilled else 1.0
    objective = ClassifyObjective(model, temperature, own.hidden_share)
    examples = Examples(encode(tokenizer, texts), {"logits": logits})
    done = train(
        objective,
        examples,
        schedule,
        snapshot=places.snapshot(run),
        snapshot_interval_s=30,
        identity={"run": run},
    )
    return done.result.model


def write_source(model: SharedEncoder, places: Places, folder: Path) -> Path:
    """Write what is exported: a folder with configuration, weights and tokenizer."""
    save_folder(model, folder / "source", tokenizer=places.base)
    return folder / "source"


def evaluate(artifact: Artifact, study: Study, places: Places) -> dict[str, dict[str, Any]]:
    """Count per variant what it labels right of each file of labelled sentences."""
    found: dict[str, dict[str, Any]] = {}
    options = EvaluationOptions(variants=study.precisions, batch=study.evaluation_batch)
    for name in LABELLED:
        for model in evaluate_artifact(artifact, places.folder / TEXTS / name, options).models:
            record = model.record
            own = found.setdefault(record.variant, {"correct": 0, "of": 0})
            own[Path(name).stem] = [record.correct, record.rows]
            own["correct"] += record.correct
            own["of"] += record.rows
    return found


def _answers(study: Study, places: Places) -> tuple[list[str], Tensor]:
    """Return the transfer set and the teacher's logits ``[N, 2]``; it is asked only once."""
    count = study.classify.distilled_texts * len(read_rated(places.folder))
    texts = read_texts(places.folder, UNRATED)[:count]
    if len(texts) < count:
        raise DataError(f"{count:,} texts are needed for distillation, not {len(texts):,}")
    teacher = load_teacher(places.teacher(study.classify.teacher) / TEACHER_FOLDER)
    return texts, judge(teacher, texts, cache=places.base).logits
