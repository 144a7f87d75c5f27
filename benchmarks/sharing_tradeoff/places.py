"""Where the study keeps its files: the texts once, and apart what each settings make of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.sharing_tradeoff.settings import Run, Study, TaskName, digest
from exporter.training.fine_tuning import FineTuningPlan

__all__ = ["Places"]


@dataclass(frozen=True)
class Places:
    """Where a task's files are, at the same paths for all workers.

    Args:
        folder: holds the texts.
        base: holds what the task makes of them: tokenizer, a teacher's answers, snapshots,
            artifacts.
    """

    folder: Path
    base: Path

    @classmethod
    def of(cls, task: TaskName, study: Study, folder: Path) -> Places:
        """Return those of a task; other settings have another ``base``."""
        return cls(folder, folder / f"{task}-{study.digest(task)}")

    def teacher(self, plan: FineTuningPlan) -> Path:
        """Folder that holds the ``teacher`` a plan makes, whatever other settings there are."""
        return self.folder / f"teacher-{digest(plan)}"

    def snapshot(self, run: Run) -> Path:
        """Where an unfinished training is kept."""
        return self.base / "runs" / f"{run.name}.pt"

    def artifact(self, run: Run) -> Path:
        """Where the artifact of a run is kept, of those that are timed."""
        return self.base / "artifacts" / run.name
