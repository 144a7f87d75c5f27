"""One distillation from folder to folder: resumed where one was interrupted, logged."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exporter.errors import CheckpointError
from exporter.training.demo import CHECKPOINT, save_demo
from exporter.training.depths import logits_at_every_depth
from exporter.training.distill import DistillationPlan, distill
from exporter.training.loop import Step, cpu_threads, is_main_process
from exporter.training.snapshots import plain
from exporter.training.sources import DataError
from exporter.training.teacher import judge, load_teacher

__all__ = ["DistillationResult", "ProgressReport", "run_distillation"]

SNAPSHOT = "snapshot.pt"
LOG = "log.jsonl"
_LOG_EVERY = 50
_FEWEST_TEXTS = 20
_ASIDE_EVERY = 50
_ASIDE_MOST = 1000

ProgressReport = Callable[[str, int, int, str], None]
"""Called with what is going on, how much of it is done, of how much, and a remark."""


@dataclass(frozen=True)
class DistillationResult:
    """What a call did.

    Args:
        step: how many are done, over all calls.
        steps: of the whole plan; more than ``step`` where the time was used up.
        agreement: share of the texts set aside to which student and teacher give the same
            label, after each layer.
        texts: learned from; ``aside`` of the file's were not.
    """

    step: int
    steps: int
    agreement: tuple[float, ...]
    texts: int
    aside: int


def run_distillation(
    teacher: Path,
    texts: list[str],
    plan: DistillationPlan,
    output: Path,
    *,
    time_budget_s: float = math.inf,
    snapshot_interval_s: float = 120,
    progress: ProgressReport = lambda what, done, total, remark: None,
) -> DistillationResult:
    """Distill the teacher in a folder into a student in a folder.

    Every 50th text (at most 1,000) is set aside, to measure how often student and teacher
    agree. While the run is not finished, ``output`` holds ``snapshot.pt``; another call
    with the same arguments goes on from it. ``log.jsonl`` has a line per 50 steps.

    Args:
        teacher: a Hugging Face folder, as in :func:`~exporter.training.teacher.load_teacher`.
        texts: what the teacher is asked about.
        plan: the student and how it learns.
        output: where ``model.pt``, ``tokenizer.json`` and ``tokenizer_config.json`` go.
        time_budget_s: seconds after which the student so far is written.
        snapshot_interval_s: seconds between two snapshots.
        progress: told what is going on.

    Raises:
        CheckpointError: the teacher cannot be used or does not fit the plan; ``output``
            holds a finished student, or the snapshot of another run.
        DataError: too few texts.
    """
    start = time.monotonic()
    snapshot = output / SNAPSHOT
    if (output / CHECKPOINT).is_file() and not snapshot.is_file():
        raise CheckpointError(f"{output} holds a finished student: choose another folder")
    if len(texts) < _FEWEST_TEXTS:
        raise DataError(f"{len(texts)} texts are too few to learn from")
    loaded = load_teacher(teacher)
    every = max(_ASIDE_EVERY, len(texts) // _ASIDE_MOST)
    aside, learned = texts[::every], [t for i, t in enumerate(texts) if i % every]

    def told(done: int, total: int) -> None:
        progress("asking the teacher", done, total, "")

    precision = plan.schedule.precision
    with cpu_threads(plan.schedule.threads):
        judgements = judge(loaded, learned, cache=output, precision=precision, progress=told)
        expected = judge(loaded, aside, cache=output, precision=precision).logits.argmax(1)

    log = _Log(output / LOG, progress)
    log.write({"plan": plain(plan), "texts": len(learned), "aside": len(aside)})
    run = distill(
        loaded,
        learned,
        judgements,
        plan,
        snapshot=snapshot,
        snapshot_interval_s=snapshot_interval_s,
        report=log.step,
        time_budget_s=max(0.0, time_budget_s - (time.monotonic() - start)),
    )
    student, tokenizer = run.result
    with cpu_threads(plan.schedule.threads):
        given = logits_at_every_depth(student, tokenizer, aside).argmax(-1)
    shares = tuple((given == expected).float().mean(1).tolist())
    log.write({"step": run.step, "steps": run.steps, "agreement": shares})
    if is_main_process():
        save_demo(*run.result, output)
        if run.finished:
            snapshot.unlink(missing_ok=True)
    return DistillationResult(run.step, run.steps, shares, len(learned), len(aside))


class _Log:
    """A file of JSON lines, and the progress shown beside it."""

    def __init__(self, path: Path, progress: ProgressReport) -> None:
        self._path, self._progress = path, progress
        self._losses: list[float] = []
        self._start = time.monotonic()

    def step(self, step: Step) -> None:
        self._losses.append(step.loss)
        recent = self._losses[-_LOG_EVERY:]
        loss = sum(recent) / len(recent)
        self._progress("distilling", step.step, step.steps, f"loss {loss:.3f}")
        if step.step % _LOG_EVERY == 0 or step.step == step.steps:
            seconds = round(time.monotonic() - self._start, 1)
            self.write(
                {"step": step.step, "epoch": step.epoch, "loss": round(loss, 5), "seconds": seconds}
            )

    def write(self, row: dict[str, object]) -> None:
        if not is_main_process():
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
