"""What the model answers after each pass in PyTorch, and what follows for exits and batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from exporter.artifact import Artifact
from exporter.checkpoint import load_checkpoint
from exporter.early_exit import LAYERS_USED, RULES
from exporter.inputs import Feeds
from exporter.models.early_exit import EarlyExit, exit_signals
from exporter.runtimes.cpu import CpuSession
from exporter.source_model import run_source

__all__ = ["agreement", "answers_of_passes", "batches"]

BATCH_SIZES = (1, 4, 16)


def answers_of_passes(model: Path, artifact: Artifact, texts: Sequence[Feeds]) -> Tensor:
    """Return the logits of PyTorch after each pass, ``[passes, texts, labels]``.

    Args:
        model: the checkpoint.
        artifact: made of it with an early exit.
        texts: one in each.
    """
    loaded = load_checkpoint(model)
    plan = loaded.depth_plan
    assert plan is not None
    answers = []
    for number in range(1, artifact.manifest["early_exit"]["layers"] + 1):
        with plan.at(number):
            rows = [torch.from_numpy(run_source(loaded, text)["logits"]) for text in texts]
        answers.append(torch.cat(rows))
    return torch.stack(answers)


def agreement(
    artifact: Artifact, texts: Sequence[Feeds], answers: Tensor, thresholds: Sequence[float]
) -> dict[str, Any]:
    """Compare exit layers and answers of the fp32 file with PyTorch's, text by text.

    A text that leaves elsewhere is listed with the distance of its nearest confidence to the
    threshold: what rounding can explain is as near as rounding errors.
    """
    session = CpuSession(artifact.models()["fp32"], threads=1)
    rows = []
    for threshold in thresholds:
        exit_ = EarlyExit("confidence", threshold)
        expected = exit_.layers_used(list(answers))
        wanted = exit_.answers(list(answers), expected).numpy()
        signals = exit_signals("confidence", list(answers)).numpy()
        gaps = np.abs(signals - np.float32(threshold)).min(0)
        setting = RULES["confidence"].feeds(threshold)
        given = [session.run(text | setting) for text in texts]
        used = np.concatenate([one[LAYERS_USED] for one in given])
        same = used == expected.numpy()
        worst = np.abs(np.concatenate([one["logits"] for one in given]) - wanted)[same]
        rows.append(
            {
                "threshold": threshold,
                "equal": int(same.sum()),
                "distances_of_others": gaps[~same].tolist(),
                "largest_difference": float(worst.max()),
                "layers": np.bincount(used, minlength=len(answers) + 1)[1:].tolist(),
            }
        )
    return {"sentences": len(texts), "thresholds": rows}


def batches(
    answers: Tensor, truth: np.ndarray, thresholds: Sequence[float]
) -> list[dict[str, Any]]:
    """Compare what a row can do when it is done before others of its batch.

    Either way the batch takes as many passes as its slowest row. Batches are of texts that
    follow each other in the file.

    Args:
        answers: ``[passes, texts, labels]``.
        truth: the right classes, ``[texts]``.
        thresholds: of the confidence.
    """
    rows = []
    for threshold in thresholds:
        exit_ = EarlyExit("confidence", threshold)
        used = exit_.layers_used(list(answers))
        for size in BATCH_SIZES:
            parts = [used[start : start + size] for start in range(0, len(used), size)]
            passes = torch.cat([part.max().expand(len(part)) for part in parts])
            correct = {
                name: int((exit_.answers(list(answers), left).argmax(-1).numpy() == truth).sum())
                for name, left in (("keeps", used), ("goes_on", passes))
            }
            of = len(truth)
            rows.append(
                {"threshold": threshold, "size": size, "passes": passes.double().mean().item()}
                | {name: number / of for name, number in correct.items()}
            )
    return rows
