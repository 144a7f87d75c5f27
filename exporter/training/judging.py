"""What a teacher says of texts: its logits and sentence embeddings, asked once and kept."""

from __future__ import annotations

import copy
import hashlib
import io
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from exporter.atomic_writing import write_atomically
from exporter.errors import CheckpointError, ExportError
from exporter.training.batches import batches_by_length
from exporter.training.digests import digest_model, digest_texts
from exporter.training.loop import device, is_main_process
from exporter.training.teacher import Teacher

__all__ = ["JUDGEMENTS", "AskingStoppedError", "Judgements", "judge", "question_key"]

JUDGEMENTS = "judgements-"
"""What the names of cached answers begin with."""


class AskingStoppedError(ExportError):
    """The teacher was asked no further; its answers so far are kept where there is a cache."""


@dataclass(frozen=True)
class Judgements:
    """What a teacher says of ``N`` texts.

    Args:
        logits: float32 ``[N, labels]``.
        embeddings: float16 ``[N, width]``: mean of the last hidden state over the tokens.
    """

    logits: Tensor
    embeddings: Tensor


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
    stop: Callable[[], bool] = lambda: False,
) -> Judgements:
    """Run the teacher on ``texts``, once: with ``cache``, a second call reads the result.

    Args:
        teacher: the classifier.
        texts: what to judge.
        cache: folder of earlier results, each named by its :func:`question_key`; an
            interrupted call's is gone on with.
        cache_interval_s: seconds between two writes of what is done so far.
        batch_size: texts per run.
        precision: of weights and arithmetic.
        progress: called with how many texts are done, and of how many.
        stop: asked after each run, but the last, whether to stop there.

    Raises:
        CheckpointError: an answer is no finite number, or an earlier result is damaged.
        ArtifactError: the result cannot be written.
        AskingStoppedError: ``stop`` said so.
    """
    path = cache / f"{JUDGEMENTS}{question_key(teacher, texts, precision)}.npz" if cache else None
    logits = torch.zeros(len(texts), len(teacher.labels))
    embeddings = torch.zeros(len(texts), teacher.width, dtype=torch.float16)
    first = _read(path, logits, embeddings) if path is not None and path.is_file() else 0
    if first == len(texts):
        return Judgements(logits, embeddings)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = copy.deepcopy(teacher.model).to(device(), dtype)
    written, done = time.monotonic(), first
    batches = batches_by_length(teacher.tokenizer, texts, batch_size, first=first)
    for indices, *batch in batches:
        ids, mask = (part.to(device()) for part in batch)
        result = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        weights = mask.unsqueeze(-1).float()  # [B, S, 1]
        states = result.hidden_states[-1].float()
        logits[indices] = result.logits.float().cpu()
        embeddings[indices] = ((states * weights).sum(1) / weights.sum(1)).half().cpu()
        if not (logits[indices].isfinite().all() and embeddings[indices].isfinite().all()):
            raise CheckpointError(
                "the teacher answers with what is no finite number: its weights cannot be used"
            )
        done += len(indices)
        progress(done, len(texts))
        last = done == len(texts)
        stopping = not last and stop()
        due = last or stopping or time.monotonic() - written > cache_interval_s
        if path is not None and due and is_main_process():
            _store(path, logits, embeddings, done)
            written = time.monotonic()
        if stopping:
            raise AskingStoppedError(
                f"Stopped after the teacher's answers to {done:,} of {len(texts):,} texts"
            )
    return Judgements(logits, embeddings)


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


def question_key(teacher: Teacher, texts: Sequence[str], precision: str) -> str:
    """Return a short hash of all that decides the answers, besides machine and libraries."""
    asked = digest_model(teacher.model, teacher.tokenizer), digest_texts(texts), precision
    return hashlib.sha256(" ".join(asked).encode()).hexdigest()[:16]
