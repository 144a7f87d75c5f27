"""The demo model, from archives to a student: encoder, teacher, its answers, distillation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

from exporter.atomic_writing import remove_leftovers
from exporter.errors import CheckpointError
from exporter.models import SharedEncoder
from exporter.training.data import load_corpus
from exporter.training.distill import DistillationPlan, distill, student_identity
from exporter.training.fine_tuning import FineTuningPlan, fine_tune, teacher_identity
from exporter.training.folders import working_alone
from exporter.training.judging import JUDGEMENTS, judge
from exporter.training.loop import (
    Run,
    Schedule,
    Step,
    cpu_threads,
    is_main_process,
    wait_for_all,
)
from exporter.training.reviews import read_review_sentences
from exporter.training.runs import ProgressReport
from exporter.training.sentence_encoder import encoder_folder
from exporter.training.snapshots import (
    IDENTITY,
    Snapshot,
    check_identity,
    check_snapshot,
    write_identity,
)
from exporter.training.teacher import TEACHER_FILES, Teacher, load_teacher, save_teacher
from exporter.training.transfer import transfer_texts

__all__ = ["DemoPlan", "demo_teacher", "distill_demo"]

TEACHER_FOLDER = "teacher"
TEACHER_SNAPSHOT = "teacher-snapshot.pt"
STUDENT_SNAPSHOT = "student-snapshot.pt"
_TEACHER_COLLECTIONS = ("amazonReviewSnippets", "tweets")


@dataclass(frozen=True)
class DemoPlan:
    """Everything that decides the demo model, besides data, machine and libraries.

    Args:
        teacher: how the sentence encoder becomes the teacher.
        student: the student, and how it learns.
        review_sentences: so many sentences of film reviews widen the transfer set.
    """

    teacher: FineTuningPlan = field(default_factory=FineTuningPlan)
    student: DistillationPlan = field(
        default_factory=lambda: DistillationPlan(
            vocab_size=14_000,
            intermediate_size=768,
            schedule=Schedule(
                epochs=2,
                batch_size=64,
                learning_rate=8e-4,
                weight_decay=0.02,
                threads=1,
                precision="bf16",
            ),
        )
    )
    review_sentences: int = 200_000


def demo_teacher(
    data_dir: Path, work: Path, plan: FineTuningPlan, told: ProgressReport = lambda *step: None
) -> Teacher:
    """Return the teacher in ``work/teacher``; make it where it is not there, whole, yet.

    It learns from sentences that people rated: movie and product reviews, tweet-like texts
    and single words; newspaper editorials are no reviews, and are left to the student.

    Args:
        data_dir: where archives are kept.
        work: holds the teacher, and the snapshot of an unfinished one.
        plan: how it is trained.
        told: what is going on.

    Raises:
        PackageError: an archive cannot be fetched.
        CheckpointError: ``work`` holds the teacher, or its snapshot, of another plan, of other
            sentences, of another encoder or of nobody knows what.
        ArtifactError: ``work`` cannot be written, or another command is writing to it.
    """
    with working_alone(work):
        return _teacher(data_dir, work, plan, told)


def _teacher(data_dir: Path, work: Path, plan: FineTuningPlan, told: ProgressReport) -> Teacher:
    folder, snapshot, main = work / TEACHER_FOLDER, work / TEACHER_SNAPSHOT, is_main_process()
    if main:
        remove_leftovers(work, TEACHER_SNAPSHOT, STUDENT_SNAPSHOT, f"{JUDGEMENTS}*.npz")
        remove_leftovers(folder, *TEACHER_FILES, IDENTITY)
    sentences = load_corpus(data_dir, others=_TEACHER_COLLECTIONS).training
    encoder = encoder_folder(data_dir)
    identity = teacher_identity(encoder, sentences, plan)
    if not check_identity(folder, identity):
        _check_own(folder, snapshot)
        report = _report("fine-tuning the teacher", told)
        run = fine_tune(encoder, sentences, plan, snapshot=snapshot, report=report)
        if main:
            save_teacher(run.result, folder)
            write_identity(folder, identity)
        wait_for_all()
    if main:  # the snapshot last: without it, what is there without an identity is not ours
        snapshot.unlink(missing_ok=True)
    return load_teacher(folder)


def _check_own(folder: Path, snapshot: Path) -> None:
    """Refuse to overwrite a teacher that says not what it is made of, and is no killed run's."""
    if any((folder / name).exists() for name in TEACHER_FILES) and not snapshot.exists():
        raise CheckpointError(
            f"{folder} holds a teacher without {IDENTITY}, so what it is made of cannot be told: "
            "use another folder, or delete it to make the teacher anew"
        )


def distill_demo(
    data_dir: Path, work: Path, plan: DemoPlan, told: ProgressReport = lambda *step: None
) -> Run[tuple[SharedEncoder, Tokenizer]]:
    """Train the demo model; an interrupted call goes on from ``work``.

    Held-out, development and foreign sentences are not in the transfer set, not even
    without their labels.

    Args:
        data_dir: where archives are kept.
        work: holds the teacher, its answers, and the snapshot of an unfinished student.
        plan: all settings.
        told: what is going on.

    Raises:
        PackageError: an archive cannot be fetched.
        CheckpointError: ``work`` holds the run of another plan, or of other data.
        ArtifactError: ``work`` cannot be written, or another command is writing to it.
    """
    with working_alone(work):
        return _distill(data_dir, work, plan, told)


def _distill(
    data_dir: Path, work: Path, plan: DemoPlan, told: ProgressReport
) -> Run[tuple[SharedEncoder, Tokenizer]]:
    teacher = _teacher(data_dir, work, plan.teacher, told)
    snapshot, main = work / STUDENT_SNAPSHOT, is_main_process()

    def told_once(what: str, done: int, total: int) -> None:
        if main:
            told(what, done, total, "")

    with cpu_threads(plan.student.schedule.threads):
        corpus = load_corpus(data_dir)
        sentences = read_review_sentences(
            data_dir,
            corpus,
            plan.review_sentences,
            partial(told_once, "reading reviews"),
        )
        texts = transfer_texts(corpus, sentences)
        identity = student_identity(teacher, texts, plan.student)
        check_snapshot(Snapshot(snapshot, identity))  # before hours of asking
        judgements = judge(
            teacher,
            texts,
            cache=work,
            precision=plan.student.schedule.precision,
            progress=partial(told_once, "asking the teacher"),
        )
    return distill(
        teacher,
        texts,
        judgements,
        plan.student,
        snapshot=snapshot,
        report=_report("distilling", told),
    )


def _report(what: str, told: ProgressReport) -> Callable[[Step], None]:
    def report(step: Step) -> None:
        told(what, step.step, step.steps, f"loss {step.loss:.3f}")

    return report
