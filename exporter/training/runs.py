"""One distillation from folder to folder: resumed where one was interrupted, logged."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from exporter.atomic_writing import remove_leftovers
from exporter.checkpoint import load_checkpoint
from exporter.errors import CheckpointError
from exporter.models.saving import CONFIG, WEIGHTS, write_model
from exporter.training.depths import logits_at_every_depth
from exporter.training.distill import (
    DistillationPlan,
    NewStudent,
    distill,
    new_student,
    student_identity,
)
from exporter.training.folders import working_alone
from exporter.training.judging import JUDGEMENTS, judge, question_key
from exporter.training.loop import cpu_threads, is_main_process
from exporter.training.run_log import ProgressReport, RunLog, last_line_of, mend_log
from exporter.training.snapshots import Snapshot, check_snapshot, plain
from exporter.training.sources import DataError
from exporter.training.teacher import load_teacher
from exporter.training.tokenizer import save_tokenizer

__all__ = ["DistillationResult", "ProgressReport", "run_distillation"]

SNAPSHOT = "snapshot.pt"
LOG = "log.jsonl"
_STUDENT = (CONFIG, WEIGHTS, "tokenizer.json", "tokenizer_config.json")
_FEWEST_TEXTS = 20
_ASIDE_EVERY = 50
_ASIDE_MOST = 1000


@dataclass(frozen=True)
class DistillationResult:
    """What a call did.

    Args:
        step: how many are done, over all calls.
        steps: of the whole plan; more than ``step`` where the time was used up.
        agreement: share of the texts set aside to which student and teacher give the same
            label, after each layer.
        texts: learned from; ``aside`` of the file's were not.
        most_frequent: share of the latter to which the teacher gives its most frequent label:
            an agreement that is not above it tells nothing.
        already_finished: an earlier call had done it all, and this one nothing.
    """

    step: int
    steps: int
    agreement: tuple[float, ...]
    texts: int
    aside: int
    most_frequent: float
    already_finished: bool = False


def run_distillation(
    teacher: Path,
    texts: list[str],
    plan: DistillationPlan,
    output: Path,
    *,
    time_budget_s: float = math.inf,
    snapshot_interval_s: float = 120,
    stop: Callable[[], bool] = lambda: False,
    started: Callable[[NewStudent], None] = lambda student: None,
    progress: ProgressReport = lambda what, done, total, remark: None,
) -> DistillationResult:
    """Distill the teacher in a folder into a student in a folder.

    Every 50th text (at most 1,000) is set aside, to measure how often student and teacher
    agree. While the run is not finished, ``output`` holds ``snapshot.pt`` and the teacher's
    answers; another call with the same arguments goes on from them. Where the run is finished,
    such a call changes nothing and returns what the last one did.

    ``log.jsonl`` has a JSON object a line, each with its ``step`` (how many are done):

    - where a call begins to train, ``plan``, how many ``texts`` are learned from and ``aside``,
      and ``question``, a hash of texts and teacher; ``step`` is 0, or the one that the call
      goes on from;
    - every 50 steps and after the last one, ``epoch`` (from 1), ``loss``: the mean of the
      call's last 50 steps, and ``seconds`` since it began to train;
    - where it ends, ``steps`` of the plan, and ``agreement`` after each layer.

    A call that goes on from a snapshot repeats the lines of the steps that were lost.

    Args:
        teacher: a Hugging Face folder, as in :func:`~exporter.training.teacher.load_teacher`.
        texts: what the teacher is asked about.
        plan: the student and how it learns.
        output: where ``config.json``, ``model.safetensors``, ``tokenizer.json`` and
            ``tokenizer_config.json`` go: a folder that can be exported as it is.
        time_budget_s: seconds after which training stops, and the student so far is written;
            the teacher is asked, and one step is done, in any case.
        snapshot_interval_s: seconds between two snapshots.
        stop: asked after each step, and while the teacher is asked, whether to stop there; the
            student so far is written, as when the time is used up.
        started: told of the student that a new run begins with, on the main process.
        progress: told what is going on, on the main process.

    Raises:
        CheckpointError: the teacher cannot be used or does not fit the plan; ``output``
            holds another model already, or the snapshot of another run.
        DataError: too few texts.
        ArtifactError: ``output`` cannot be written, or another command is writing to it.
        DivergedError: the learning rate is too high.
        AskingStoppedError: ``stop`` said so before the teacher had answered; there is no student.
    """
    start = time.monotonic()
    snapshot, main = output / SNAPSHOT, is_main_process()
    if len(texts) < _FEWEST_TEXTS:
        raise DataError(
            f"{len(texts)} texts are too few to learn from: give at least {_FEWEST_TEXTS}"
        )
    loaded = load_teacher(teacher)
    learned, aside = _divided(texts)
    precision = plan.schedule.precision
    begun = {
        "plan": plain(plan),
        "texts": len(learned),
        "aside": len(aside),
        "question": question_key(loaded, texts, precision),
    }
    if (done := _finished(output, begun)) is not None:
        return done

    # All that can be refused is, before the teacher is asked, which may take hours.
    identity = student_identity(loaded, learned, plan)
    _check_free(output)
    check_snapshot(Snapshot(snapshot, identity))
    beginning = new_student(loaded, learned, plan)

    def told(done: int, total: int) -> None:
        if main:
            progress("asking the teacher", done, total, "")

    with working_alone(output):
        # Once more: until now, another command may have worked here.
        if (done := _finished(output, begun)) is not None:
            return done
        _check_free(output)
        check_snapshot(Snapshot(snapshot, identity))
        if main:
            remove_leftovers(output, *_STUDENT, LOG, SNAPSHOT, f"{JUDGEMENTS}*.npz")
            mend_log(output / LOG)
            if not snapshot.exists():
                started(beginning)
        with cpu_threads(plan.schedule.threads):
            ask = partial(judge, loaded, cache=output, precision=precision, stop=stop)
            judgements = ask(learned, progress=told)
            expected = ask(aside).logits.argmax(1)
        log = RunLog(output / LOG, begun, progress)
        run = distill(
            loaded,
            learned,
            judgements,
            plan,
            student=beginning,
            snapshot=snapshot,
            snapshot_interval_s=snapshot_interval_s,
            report=log.step,
            time_budget_s=max(0.0, time_budget_s - (time.monotonic() - start)),
            stop=stop,
        )
        student, tokenizer = run.result
        with cpu_threads(plan.schedule.threads):
            given = logits_at_every_depth(student, tokenizer, aside).argmax(-1)
        shares = tuple((given == expected).float().mean(1).tolist())
        frequent = expected.bincount().max().item() / len(aside)
        if main:
            measured = {"agreement": shares, "most_frequent": frequent}
            log.write({"step": run.step, "steps": run.steps, **measured})
            write_model(output, student.config.to_dict(), student.state_dict())
            save_tokenizer(tokenizer, output)
            if run.finished:  # the snapshot last: without it, the student counts as finished
                for path in (*output.glob(f"{JUDGEMENTS}*.npz"), snapshot):
                    path.unlink(missing_ok=True)
    return DistillationResult(run.step, run.steps, shares, len(learned), len(aside), frequent)


def _divided(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts to learn from, and those set aside."""
    every = max(_ASIDE_EVERY, math.ceil(len(texts) / _ASIDE_MOST))
    return [text for i, text in enumerate(texts) if i % every], [*texts[::every]]


def _finished(output: Path, begun: Mapping[str, Any]) -> DistillationResult | None:
    """Return what the log says if a run that began so is finished in this folder."""
    whole = all((output / name).is_file() for name in _STUDENT)
    row = last_line_of(output / LOG, begun) if whole and not (output / SNAPSHOT).exists() else None
    if row is None or "most_frequent" not in row:
        return None
    load_checkpoint(output)  # what is damaged is not called finished
    return DistillationResult(
        step=row["step"],
        steps=row["step"],
        agreement=tuple(row["agreement"]),
        texts=begun["texts"],
        aside=begun["aside"],
        most_frequent=row["most_frequent"],
        already_finished=True,
    )


def _check_free(output: Path) -> None:
    """Refuse a folder in which a model would be overwritten that is not a run's own."""
    if (output / SNAPSHOT).exists():
        return
    for name in (*_STUDENT, "model.pt"):
        if (output / name).exists():
            raise CheckpointError(
                f"{output} holds a finished student or another model ({name}): "
                "choose another folder, or empty this one"
            )
