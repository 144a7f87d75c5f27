"""The teacher: a trained sentence encoder, fine-tuned to classify, and what it says of texts."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from exporter.checkpoint import load_checkpoint
from exporter.checkpoint.huggingface import ByName
from exporter.errors import CheckpointError
from exporter.training.batches import encode, pad
from exporter.training.data import Rated
from exporter.training.files import write_atomically, write_model
from exporter.training.loop import (
    Examples,
    Objective,
    Run,
    Schedule,
    Step,
    device,
    is_main_process,
    train,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "ClassificationObjective",
    "FineTuningPlan",
    "Judgements",
    "Teacher",
    "fine_tune",
    "judge",
    "load_teacher",
    "save_teacher",
]

LABELS = ("negative", "positive")
JUDGEMENTS = "judgements-"
"""What the names of cached answers begin with."""


@dataclass(frozen=True)
class Teacher:
    """A classifier of sequences in Hugging Face's form, in eval mode, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: Tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes, by index."""
        names = self.model.config.id2label
        return tuple(names[index] for index in sorted(names))

    @property
    def width(self) -> int:
        """Width of the sentence embedding."""
        return int(self.model.config.hidden_size)


@dataclass(frozen=True)
class Judgements:
    """What a teacher says of ``N`` texts.

    Args:
        logits: float32 ``[N, labels]``.
        embeddings: float16 ``[N, width]``: mean of the last hidden state over the tokens.
    """

    logits: Tensor
    embeddings: Tensor


@dataclass(frozen=True)
class FineTuningPlan:
    """How a sentence encoder becomes a classifier of rated sentences.

    Args:
        target: ``soft``: cross entropy with the probability that a rating stands for;
            ``regression``: squared error of the difference of the two logits.
        sharpness: factor on a mean rating that makes it a logit.
        max_length: tokens of the longest input.
        word_dropout: share of the tokens hidden from the model.
        schedule: how long and how fast.
    """

    target: Literal["soft", "regression"] = "soft"
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
    """A classifier with two labels, and how far its logits are from what ratings stand for."""

    def __init__(self, model: nn.Module, plan: FineTuningPlan, hidden_id: int) -> None:
        super().__init__()
        self.model, self._plan, self._hidden_id = model, plan, hidden_id

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Mapping[str, Tensor], done: float
    ) -> Tensor:
        """Compare the logits with ``targets["rating"]`` ``[B]``."""
        hidden = torch.rand(input_ids.shape, device=input_ids.device) < self._plan.word_dropout
        # Ids below 1000 are BERT's special and unused tokens.
        ids = torch.where(hidden & (input_ids >= _FIRST_WORD), self._hidden_id, input_ids)
        logits = self.model(input_ids=ids, attention_mask=attention_mask).logits.float()
        wanted = self._plan.sharpness * targets["rating"]
        margin = logits[:, 1] - logits[:, 0]
        if self._plan.target == "soft":
            return F.binary_cross_entropy_with_logits(margin, torch.sigmoid(wanted))
        return F.mse_loss(margin, wanted)


_FIRST_WORD = 999


def fine_tune(
    encoder: Path,
    sentences: Sequence[Rated],
    plan: FineTuningPlan,
    *,
    snapshot: Path | None = None,
    report: Callable[[Step], None] | None = None,
    time_budget_s: float = math.inf,
) -> Run[Teacher]:
    """Fine-tune a BERT encoder to tell negative sentences from positive ones.

    Args:
        encoder: folder with ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
        sentences: what to learn from.
        plan: how.
        snapshot, report, time_budget_s: as in :func:`~exporter.training.loop.train`.

    Raises:
        CheckpointError: the folder or the snapshot cannot be used.
    """
    from transformers import BertForSequenceClassification

    tokenizer = _tokenizer(encoder, plan.max_length)
    source = _load(encoder)
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
    objective = ClassificationObjective(model, plan, mask_id)
    run = train(
        objective,
        examples,
        plan.schedule,
        snapshot=snapshot,
        identity={"plan": plan, "texts": fingerprint(texts)},
        report=report,
        time_budget_s=time_budget_s,
    )
    teacher = Teacher(cast("PreTrainedModel", run.result.model), tokenizer)
    return Run(teacher, run.step, run.steps)


def load_teacher(folder: Path) -> Teacher:
    """Read a classifier of sequences that Hugging Face's ``save_pretrained`` wrote.

    Raises:
        CheckpointError: a file is missing or damaged, or the folder holds no classifier that
            gives each text one of several labels.
    """
    model = _load(folder)
    if not type(model).__name__.endswith("ForSequenceClassification"):
        raise CheckpointError(f"{folder} holds no classifier of sequences, so no teacher")
    teacher = Teacher(model, _tokenizer(folder, int(model.config.max_position_embeddings)))
    kind = model.config.problem_type or "single_label_classification"
    if kind != "single_label_classification" or len(teacher.labels) < 2:
        raise CheckpointError(
            f"{folder} does not give a text one of several labels (problem_type {kind}, "
            f"{len(teacher.labels)} labels), so its answers cannot be distilled"
        )
    if max(teacher.tokenizer.get_vocab().values(), default=0) >= model.config.vocab_size:
        raise CheckpointError(
            f"{folder / 'tokenizer.json'} is of another model: it has more pieces than the "
            f"{model.config.vocab_size} of config.json"
        )
    return teacher


def save_teacher(teacher: Teacher, folder: Path) -> None:
    """Write the classifier and its tokenizer in Hugging Face's form."""
    content = json.loads(teacher.model.config.to_json_string(use_diff=False))
    content["architectures"] = [type(teacher.model).__name__]
    write_model(folder, content, teacher.model.state_dict())
    tokenizer = teacher.tokenizer
    limit = tokenizer.truncation["max_length"] if tokenizer.truncation else None
    config = {
        "tokenizer_class": "BertTokenizer",
        "model_max_length": limit,
        "do_lower_case": True,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_atomically(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    write_atomically(folder / "tokenizer_config.json", _json(config))


@torch.no_grad()
def judge(
    teacher: Teacher,
    texts: Sequence[str],
    *,
    cache: Path | None = None,
    cache_interval_s: float = 60,
    batch_size: int = 64,
    precision: Literal["fp32", "bf16"] = "fp32",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Judgements:
    """Run the teacher on ``texts``, once: with ``cache``, a second call reads the result.

    Args:
        teacher: the classifier.
        texts: what to judge.
        cache: folder of earlier results, each named by the teacher's weights and the texts;
            an interrupted call's is gone on with.
        cache_interval_s: seconds between two writes of what is done so far.
        batch_size: texts per run.
        precision: of weights and arithmetic.
        progress: called with how many texts are done, and of how many.

    Raises:
        CheckpointError: an answer is no finite number, or an earlier result is damaged.
        ArtifactError: the result cannot be written.
    """
    path = cache / f"{JUDGEMENTS}{_key(teacher, texts, precision)}.npz" if cache else None
    logits = torch.zeros(len(texts), len(teacher.labels))
    embeddings = torch.zeros(len(texts), teacher.width, dtype=torch.float16)
    first = _read(path, logits, embeddings) if path is not None and path.is_file() else 0
    if first == len(texts):
        return Judgements(logits, embeddings)
    sequences = encode(teacher.tokenizer, texts)
    order = sorted(range(len(texts)), key=lambda index: len(sequences[index]))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = copy.deepcopy(teacher.model).to(device(), dtype)
    written = time.monotonic()
    for start in range(first, len(order), batch_size):
        indices = order[start : start + batch_size]
        ids, mask = (part.to(device()) for part in pad([sequences[index] for index in indices]))
        result = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        weights = mask.unsqueeze(-1).float()  # [B, S, 1]
        last = result.hidden_states[-1].float()
        logits[indices] = result.logits.float().cpu()
        embeddings[indices] = ((last * weights).sum(1) / weights.sum(1)).half().cpu()
        if not (logits[indices].isfinite().all() and embeddings[indices].isfinite().all()):
            raise CheckpointError(
                "the teacher answers with what is no finite number: its weights cannot be used"
            )
        done = start + len(indices)
        progress(done, len(order))
        due = done == len(order) or time.monotonic() - written > cache_interval_s
        if path is not None and due and is_main_process():
            _store(path, logits, embeddings, done)
            written = time.monotonic()
    return Judgements(logits, embeddings)


def fingerprint(texts: Sequence[str]) -> str:
    """Return a short hash of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()[:16]


def _store(path: Path, logits: Tensor, embeddings: Tensor, done: int) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, logits=logits.numpy(), embeddings=embeddings.numpy(), done=done)
    write_atomically(path, buffer.getvalue())


def _read(path: Path, logits: Tensor, embeddings: Tensor) -> int:
    """Fill both tensors from ``path``; return how many of the texts, by length, are done."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            logits.copy_(torch.from_numpy(stored["logits"]))
            embeddings.copy_(torch.from_numpy(stored["embeddings"]))
            return int(stored["done"]) if "done" in stored else len(logits)
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} is damaged: delete it to ask the teacher again") from error


def _key(teacher: Teacher, texts: Sequence[str], precision: str) -> str:
    digest = hashlib.sha256(f"{fingerprint(texts)} {precision}".encode())
    for name, tensor in teacher.model.state_dict().items():
        digest.update(name.encode() + tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def _load(folder: Path) -> PreTrainedModel:
    """Read a model of transformers; a missing weight is an error, never a random value."""
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is no folder: give one with config.json and weights")
    module = load_checkpoint(folder).module
    if not isinstance(module, ByName):
        raise CheckpointError(f"{folder} is no Hugging Face folder")
    return cast("PreTrainedModel", module.model.eval())


def _tokenizer(folder: Path, max_length: int) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(f"{folder} holds no tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the class is plain Exception
        raise CheckpointError(f"{path} is no tokenizer: {error}") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    return tokenizer
