"""Sentence encoder → teacher: fine-tuning on sentences that people rated."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.errors import CheckpointError
from exporter.training.batches import chosen_tokens, encode, ordinary_pieces
from exporter.training.data import Rated
from exporter.training.digests import digest_model, digest_texts
from exporter.training.loop import Examples, Objective, Run, Schedule, Step, train
from exporter.training.teacher import Teacher, read_model, read_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["LABELS", "ClassificationObjective", "FineTuningPlan", "fine_tune", "teacher_identity"]

LABELS = ("negative", "positive")


@dataclass(frozen=True)
class FineTuningPlan:
    """How a sentence encoder becomes a classifier of rated sentences.

    Args:
        sharpness: factor on a mean rating that makes it a logit, whose probability is learned.
        max_length: tokens of the longest input.
        word_dropout: share of the tokens hidden from the model.
        schedule: how long and how fast.
    """

    sharpness: float = 1.75
    max_length: int = 128
    word_dropout: float = 0.1
    schedule: Schedule = field(
        default_factory=lambda: Schedule(
            epochs=2,
            batch_size=64,
            learning_rate=1e-4,
            weight_decay=0.01,
            average_decay=0.99,
            threads=1,
            precision="bf16",
        )
    )


class ClassificationObjective(Objective):
    """A classifier with two labels, and how far its logits are from what ratings stand for.

    Args:
        model: the classifier.
        plan: how it learns.
        ordinary: which ids may be hidden, bool ``[V]``.
        hidden_id: what is in their place then.
    """

    def __init__(
        self, model: nn.Module, plan: FineTuningPlan, ordinary: Tensor, hidden_id: int
    ) -> None:
        super().__init__()
        self.model, self._plan = model, plan
        self._ordinary, self._hidden_id = ordinary, hidden_id

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Mapping[str, Tensor], done: float
    ) -> Tensor:
        """Compare the logits with ``targets["rating"]`` ``[B]``."""
        ordinary = self._ordinary.to(input_ids.device)[input_ids]
        hidden = chosen_tokens(ordinary, self._plan.word_dropout)
        ids = torch.where(hidden, self._hidden_id, input_ids)
        logits = self.model(input_ids=ids, attention_mask=attention_mask).logits.float()
        wanted = self._plan.sharpness * targets["rating"]
        margin = logits[:, 1] - logits[:, 0]
        return F.binary_cross_entropy_with_logits(margin, torch.sigmoid(wanted))


def teacher_identity(
    encoder: Path, sentences: Sequence[Rated], plan: FineTuningPlan
) -> dict[str, object]:
    """Return what tells the teacher that :func:`fine_tune` makes of these from all others.

    Raises:
        CheckpointError: the folder cannot be used.
    """
    source, tokenizer = read_model(encoder), read_tokenizer(encoder, plan.max_length)
    return _identity(source, tokenizer, sentences, plan)


def _identity(
    source: PreTrainedModel, tokenizer: Tokenizer, sentences: Sequence[Rated], plan: FineTuningPlan
) -> dict[str, object]:
    return {
        "plan": plan,
        "encoder": digest_model(source, tokenizer),
        "sentences": digest_texts([f"{s.rating!r} {s.text}" for s in sentences]),
    }


def fine_tune(
    encoder: Path,
    sentences: Sequence[Rated],
    plan: FineTuningPlan,
    *,
    snapshot: Path | None = None,
    report: Callable[[Step], None] | None = None,
) -> Run[Teacher]:
    """Fine-tune a BERT encoder to tell negative sentences from positive ones.

    Args:
        encoder: folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
        sentences: what to learn from.
        plan: how.
        snapshot, report: as in :func:`~exporter.training.loop.train`.

    Raises:
        CheckpointError: the folder or the snapshot cannot be used.
    """
    from transformers import BertForSequenceClassification

    tokenizer = read_tokenizer(encoder, plan.max_length)
    source = read_model(encoder)
    if source.config.model_type != "bert":
        raise CheckpointError(f"{encoder} holds no BERT, but {source.config.model_type}")
    config = copy.deepcopy(source.config)
    config.num_labels = len(LABELS)
    config.id2label = dict(enumerate(LABELS))
    config.label2id = {label: index for index, label in enumerate(LABELS)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(plan.schedule.seed)
        model = BertForSequenceClassification(config)
    # A checkpoint without the pooler starts with a new one.
    model.base_model.load_state_dict(source.base_model.state_dict(), strict=False)
    # The rated sentences hold a small part of the vocabulary; the rest must stay beside it.
    model.get_input_embeddings().weight.requires_grad_(False)
    texts = [sentence.text for sentence in sentences]
    ratings = torch.tensor([sentence.rating for sentence in sentences])
    examples = Examples(encode(tokenizer, texts), {"rating": ratings})
    mask_id = tokenizer.token_to_id("[MASK]")
    if mask_id is None:
        raise CheckpointError(f"the tokenizer of {encoder} has no [MASK]")
    objective = ClassificationObjective(model, plan, ordinary_pieces(tokenizer), mask_id)
    run = train(
        objective,
        examples,
        plan.schedule,
        snapshot=snapshot,
        identity=_identity(source, tokenizer, sentences, plan),
        report=report,
    )
    teacher = Teacher(cast("PreTrainedModel", run.result.model), tokenizer)
    return Run(teacher, run.step, run.steps)
