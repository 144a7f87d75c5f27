"""One distillation from folder to folder: resumed where one was interrupted, logged."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.errors import ArtifactError, CheckpointError
from exporter.training.depths import logits_at_every_depth
from exporter.training.distill import DistillationPlan, distill, new_student
from exporter.training.files import (
    CONFIG,
    WEIGHTS,
    remove_leftovers,
    write_atomically,
    write_model,
)
from exporter.training.judging import JUDGEMENTS, fingerprint, judge, question_key
from exporter.training.loop import Step, cpu_threads, is_main_process
from exporter.training.snapshots import Snapshot, check_snapshot, plain
from exporter.training.sources import DataError
from exporter.training.teacher import load_teacher
from exporter.training.tokenizer import save_tokenizer

__all__ = ["DistillationResult", "ProgressReport", "run_distillation"]

SNAPSHOT = "snapshot.pt"
LOG = "log.jsonl"
_STUDENT = (CONFIG, WEIGHTS, "tokenizer.json", "tokenizer_config.json")
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
        already_finished: an earlier call had done it all, and this one nothing.
    """

    step: int
    steps: int
    agreement: tuple[float, ...]
    texts: int
    aside: int
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
        progress: told what is going on, on the main process.

    Raises:
        CheckpointError: the teacher cannot be used or does not fit the plan; ``output``
            holds another model already, or the snapshot of another run.
        DataError: too few texts.
        ArtifactError: ``output`` cannot be written.
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
    every = max(_ASIDE_EVERY, len(texts) // _ASIDE_MOST)
    aside, learned = texts[::every], [t for i, t in enumerate(texts) if i % every]
    begun = {
        "plan": plain(plan),
        "texts": len(learned),
        "aside": len(aside),
        "question": question_key(loaded, texts, plan.schedule.precision),
    }
    if not snapshot.exists():
        if (row := _finished(output, begun)) is not None:
            step, shares = row["step"], tuple(row["agreement"])
            return DistillationResult(step, step, shares, len(learned), len(aside), True)
        _check_free(output)
    # All that can be refused is, before the teacher is asked, which may take hours.
    check_snapshot(Snapshot(snapshot, {"plan": plan, "texts": fingerprint(learned)}))
    with cpu_threads(plan.schedule.threads):
        beginning = new_student(loaded, learned, plan)
    if main:
        _prepare(output)

    def told(done: int, total: int) -> None:
        if main:
            progress("asking the teacher", done, total, "")

    precision = plan.schedule.precision
    with cpu_threads(plan.schedule.threads):
        judgements = judge(
            loaded, learned, cache=output, precision=precision, progress=told, stop=stop
        )
        said = judge(loaded, aside, cache=output, precision=precision, stop=stop)
    expected = said.logits.argmax(1)

    log = _Log(output / LOG, begun, progress)
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
    if main:
        log.write({"step": run.step, "steps": run.steps, "agreement": shares})
        write_model(output, student.config.to_dict(), student.state_dict())
        save_tokenizer(tokenizer, output)
        if run.finished:  # the snapshot last: without it, the student counts as finished
            for path in (*output.glob(f"{JUDGEMENTS}*.npz"), snapshot):
                path.unlink(missing_ok=True)
    return DistillationResult(run.step, run.steps, shares, len(learned), len(aside))


def _finished(output: Path, begun: dict[str, object]) -> dict[str, Any] | None:
    """Return the last line of the log if a run that began so is finished in this folder."""
    try:
        lines = (output / LOG).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        began, last = next(row for row in reversed(rows) if "plan" in row), rows[-1]
        whole = last["step"] == last["steps"]
    except (OSError, ValueError, TypeError, LookupError, StopIteration):
        return None  # no log, or none of ours
    whole = whole and all((output / name).is_file() for name in _STUDENT)
    same = began == {"step": began["step"], **json.loads(json.dumps(begun))}
    return last if whole and same else None


def _check_free(output: Path) -> None:
    """Refuse a folder in which a model would be overwritten."""
    for name in (*_STUDENT, "model.pt"):
        if (output / name).exists():
            raise CheckpointError(
                f"{output} holds a finished student or another model ({name}): "
                "choose another folder"
            )


def _prepare(output: Path) -> None:
    """Make the folder, and take away what a killed call, or a full disk, left in pieces."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        remove_leftovers(output)
        log = output / LOG
        content = log.read_bytes() if log.exists() else b""
        if (end := content.rfind(b"\n") + 1) < len(content):
            write_atomically(log, content[:end])
    except OSError as error:
        raise ArtifactError(f"cannot write to {output}: {error.strerror}") from error


class _Log:
    """A file of JSON lines, and the progress shown beside it.

    ``begun`` is written in front of the first step: a call that is refused leaves no line.
    """

    def __init__(self, path: Path, begun: dict[str, object], progress: ProgressReport) -> None:
        self._path, self._begun, self._progress = path, begun, progress
        self._losses: deque[float] = deque(maxlen=_LOG_EVERY)
        self._start = time.monotonic()

    def step(self, step: Step) -> None:
        if not self._losses:
            self.write({"step": step.step - 1, **self._begun})
        self._losses.append(step.loss)
        loss = sum(self._losses) / len(self._losses)
        self._progress("distilling", step.step, step.steps, f"loss {loss:.3f}")
        if step.step % _LOG_EVERY == 0 or step.step == step.steps:
            seconds = round(time.monotonic() - self._start, 1)
            self.write(
                {"step": step.step, "epoch": step.epoch, "loss": round(loss, 5), "seconds": seconds}
            )

    def write(self, row: dict[str, object]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
        except OSError as error:
            raise ArtifactError(f"cannot write {self._path}: {error.strerror}") from error
