"""A folder in which ``albert-export distill`` was interrupted. No torch."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["holds_unfinished_distillation", "unfinished_notices"]


def holds_unfinished_distillation(folder: Path) -> bool:
    """Tell whether a teacher's answers lie in ``folder``: they go when the student is finished."""
    return any(folder.glob("judgements-*.npz"))


def unfinished_notices(folder: Path) -> list[str]:
    """Say of a model in ``folder`` that it is what a distillation had learned so far."""
    if not holds_unfinished_distillation(folder):
        return []
    after = ""
    try:
        lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
        # Written with the model; losses of a later call, which was killed, may follow.
        row = next(row for row in map(json.loads, reversed(lines)) if "steps" in row)
        after = f" after {row['step']:,} of {row['steps']:,} steps"
    except (OSError, ValueError, TypeError, LookupError, StopIteration):
        pass  # the log was lost, or cut: what matters is known without it
    return [
        f"{folder.name}: distillation stopped{after}; the same 'albert-export distill' command "
        "goes on from there"
    ]
