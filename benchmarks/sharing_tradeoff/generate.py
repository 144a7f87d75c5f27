"""Giving the next piece of real text: what is learned, and what is measured."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.sharing_tradeoff.causal import CausalEncoder, save_program
from benchmarks.sharing_tradeoff.places import Places
from benchmarks.sharing_tradeoff.settings import Run, Study
from benchmarks.sharing_tradeoff.texts import PASSAGES, read_texts
from exporter.artifact import Artifact
from exporter.atomic_writing import write_atomically
from exporter.models import SharedEncoder
from exporter.runtimes.cpu import CpuSession
from exporter.training.loop import Examples, Objective, Schedule, train
from exporter.training.sources import DataError
from exporter.training.tokenizer import train_tokenizer

__all__ = ["evaluate", "learn", "pack", "prepare", "write_source"]


class GenerateObjective(Objective):
    """Cross entropy with the next piece, and where there are answers with the teacher's.

    Targets: none, or ``pieces`` and ``shares`` ``[B, S, K]``: the likeliest next pieces
    after each place, and their probabilities.

    Args:
        model: what learns.
        teacher_share: share of the loss that is the teacher's.
    """

    def __init__(self, model: CausalEncoder, teacher_share: float) -> None:
        super().__init__()
        self.model, self._teacher_share = model, teacher_share

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, targets: Mapping[str, Tensor], done: float
    ) -> Tensor:
        """Return the mean over all places but the last."""
        given = F.log_softmax(self.model(input_ids)[:, :-1], dim=-1)  # [B, S - 1, V]
        loss = F.nll_loss(given.flatten(0, 1), input_ids[:, 1:].flatten())
        if "pieces" in targets:
            pieces, shares = targets["pieces"][:, :-1].long(), targets["shares"][:, :-1].float()
            shares = shares / shares.sum(-1, keepdim=True)
            taught = -(shares * given.gather(-1, pieces)).sum(-1).mean()
            loss = (1 - self._teacher_share) * loss + self._teacher_share * taught
        return loss


def prepare(study: Study, places: Places) -> None:
    """Pack the texts; for distilled runs train the teacher of this task, and keep its answers."""
    own, base = study.generate, places.base
    passages = _passages(study, places)
    if (base / "answers.npz").is_file() or not any(study.distilled):
        return
    teacher = _model(study, "none", passages, own.teacher.seed, factor=own.teacher_factor)
    if (base / "teacher.pt").is_file():
        teacher.load_state_dict(torch.load(base / "teacher.pt", weights_only=True))
    else:
        objective = GenerateObjective(teacher, own.teacher_share)
        snapshot = base / "teacher-run.pt"
        teacher = _train(objective, passages["learned"], {}, own.teacher, snapshot)
        buffer = io.BytesIO()
        torch.save(teacher.state_dict(), buffer)
        write_atomically(base / "teacher.pt", buffer.getvalue())
        # Dask runs this again, elsewhere, if it loses a worker from sight.
        snapshot.unlink(missing_ok=True)
    pieces, shares = _ask(teacher.eval(), passages["learned"], own.likeliest)
    _save(base / "answers.npz", pieces=pieces, shares=shares)


def learn(study: Study, run: Run, places: Places) -> CausalEncoder:
    """Train one generator, with the teacher's answers or without."""
    own = study.generate
    passages = _passages(study, places)
    count = own.student_passages
    targets = {}
    if run.distilled:
        with np.load(places.base / "answers.npz", allow_pickle=False) as stored:
            targets = {n: torch.from_numpy(stored[n][:count]) for n in ("pieces", "shares")}
    model = _model(study, run.scheme, passages, run.seed)
    objective = GenerateObjective(model, own.teacher_share)
    schedule = dataclasses.replace(own.schedule, seed=run.seed)
    learned = passages["learned"][:count]
    return _train(objective, learned, targets, schedule, places.snapshot(run), run)


def write_source(model: SharedEncoder, places: Places, folder: Path) -> Path:
    """Write what is exported: a program of ``torch.export``."""
    save_program(model, folder / "source.pt2")
    return folder / "source.pt2"


def evaluate(artifact: Artifact, study: Study, places: Places) -> dict[str, dict[str, Any]]:
    """Sum per variant the losses on held-out passages, and count the pieces given right.

    The loss is in nats over all places: ``exp(loss / of)`` is the perplexity.
    """
    passages = _passages(study, places)["held_out"].astype(np.int64)
    found: dict[str, dict[str, Any]] = {}
    for variant, path in artifact.models().items():
        session = CpuSession(path, threads=1, inputs=artifact.inputs)
        loss, correct = 0.0, 0
        for start in range(0, len(passages), study.evaluation_batch):
            ids = passages[start : start + study.evaluation_batch]
            (output,) = session.run({"input_ids": ids}).values()
            logits, following = torch.from_numpy(output)[:, :-1], torch.from_numpy(ids[:, 1:])
            flat = logits.flatten(0, 1).double()
            loss += F.cross_entropy(flat, following.flatten(), reduction="sum").item()
            correct += int((logits.argmax(-1) == following).sum())
        places = passages[:, 1:].size
        found[variant] = {"loss": round(loss, 6), "correct": correct, "of": places}
    return found


def pack(texts: Sequence[Sequence[int]], length: int) -> np.ndarray:
    """Lay texts end to end and cut them into rows ``[N, length]``; a rest is dropped."""
    stream = np.concatenate([np.asarray(ids, dtype=np.int16) for ids in texts])
    return stream[: len(stream) // length * length].reshape(-1, length)


def _passages(study: Study, places: Places) -> dict[str, Any]:
    """Return ``learned`` and ``held_out``, int16 ``[N, S]``, and ``pieces``, the vocabulary.

    The passage between both is in neither: a text may lie across it.
    """
    path = places.base / "passages.npz"
    if not path.is_file():
        texts = read_texts(places.folder, PASSAGES)
        tokenizer = train_tokenizer(
            texts[: study.generate.tokenizer_texts],
            vocab_size=study.vocab_size,
            max_length=10 * study.max_length,
        )
        # The piece that begins a text says nothing here; the one that ends it stays.
        rows = pack([e.ids[1:] for e in tokenizer.encode_batch(texts)], study.max_length)
        learned, held_out = study.generate.passages
        if len(rows) < learned + held_out + 1:
            raise DataError(f"the texts hold {len(rows):,} passages; set `passages` lower")
        _save(
            path,
            held_out=rows[:held_out],
            learned=rows[held_out + 1 :][:learned],
            pieces=np.array(tokenizer.get_vocab_size()),
        )
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def _model(
    study: Study, scheme: str, passages: Mapping[str, Any], seed: int, factor: int = 1
) -> CausalEncoder:
    config = study.encoder("generate", scheme, int(passages["pieces"]), factor)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return study.draw("generate", CausalEncoder(config))


def _train(
    objective: GenerateObjective,
    passages: np.ndarray,
    targets: Mapping[str, Tensor],
    schedule: Schedule,
    snapshot: Path,
    run: Run | None = None,
) -> CausalEncoder:
    done = train(
        objective,
        Examples(passages.tolist(), targets),
        schedule,
        snapshot=snapshot,
        snapshot_interval_s=30,
        identity={"run": run} if run else {},
    )
    return done.result.model


@torch.no_grad()
def _ask(
    teacher: CausalEncoder, passages: np.ndarray, likeliest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the likeliest next pieces, int16 ``[N, S, K]``, and their shares, float16."""
    pieces, shares = [], []
    for start in range(0, len(passages), 64):
        ids = torch.from_numpy(passages[start : start + 64].astype(np.int64))
        likely = teacher(ids).softmax(-1).topk(likeliest)
        pieces.append(likely.indices.short().numpy())
        shares.append(likely.values.half().numpy())
    return np.concatenate(pieces), np.concatenate(shares)


def _save(path: Path, **arrays: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())
