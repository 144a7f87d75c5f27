"""The log of a distillation: a JSON object a line, and what a finished one says."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exporter.atomic_writing import write_atomically
from exporter.errors import ArtifactError
from exporter.training.loop import Step

__all__ = ["ProgressReport", "RunLog", "last_line_of", "mend_log"]

_EVERY = 50

ProgressReport = Callable[[str, int, int, str], None]
"""Called with what is going on, how much of it is done, of how much, and a remark."""


class RunLog:
    """A file of JSON lines, and the progress shown beside it.

    ``begun`` is written in front of the first step: a call that is refused leaves no line.
    """

    def __init__(self, path: Path, begun: Mapping[str, object], progress: ProgressReport) -> None:
        self._path, self._begun, self._progress = path, begun, progress
        self._losses: deque[float] = deque(maxlen=_EVERY)
        self._start = time.monotonic()

    def step(self, step: Step) -> None:
        """Show a step, and write every 50th and the last."""
        if not self._losses:
            self.write({"step": step.step - 1, **self._begun})
        self._losses.append(step.loss)
        loss = sum(self._losses) / len(self._losses)
        self._progress("distilling", step.step, step.steps, f"loss {loss:.3f}")
        if step.step % _EVERY == 0 or step.step == step.steps:
            seconds = round(time.monotonic() - self._start, 1)
            self.write(
                {"step": step.step, "epoch": step.epoch, "loss": round(loss, 5), "seconds": seconds}
            )

    def write(self, row: Mapping[str, object]) -> None:
        """Add a line.

        Raises:
            ArtifactError: it cannot be written.
        """
        try:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
        except OSError as error:
            raise ArtifactError(f"cannot write {self._path}: {error.strerror}") from error


def mend_log(path: Path) -> None:
    """Take away what a killed call, or a full disk, left of a line.

    Raises:
        ArtifactError: the log cannot be read or written.
    """
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror}") from error
    if (end := content.rfind(b"\n") + 1) < len(content):
        write_atomically(path, content[:end])


def last_line_of(path: Path, begun: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the last line of the log at ``path`` if a run that began so is finished there."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        began, last = next(row for row in reversed(rows) if "plan" in row), rows[-1]
        whole = last["step"] == last["steps"]
    except (OSError, ValueError, TypeError, LookupError, StopIteration):
        return None  # no log, or none of ours
    same = began == {"step": began["step"], **json.loads(json.dumps(begun))}
    return last if whole and same else None
