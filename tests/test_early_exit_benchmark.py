"""What the early-exit benchmark says about its committed figures; nothing is measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.early_exit import table
from benchmarks.early_exit.table import document

FOLDER = Path(table.__file__).parent


def test_the_committed_text_is_that_of_the_committed_figures() -> None:
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    text = document(results)
    assert text == (FOLDER / "results.md").read_text(encoding="utf-8")
    assert "odd lines chose the threshold (at most 0.5 points lost) and gave the curves" in text
    assert "every other figure, 1,000 of them the latencies" in text
