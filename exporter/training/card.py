"""The figures in the model card: written by the measurement, and checked against it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from exporter.artifact import sha256_file
from exporter.atomic_writing import write_atomically
from exporter.errors import VerificationError
from exporter.training.demo import CHECKPOINT
from exporter.training.evaluate import Score
from exporter.training.sources import DataError

__all__ = [
    "BEGIN",
    "END",
    "check_figures",
    "figures_table",
    "metrics_json",
    "read_part",
    "write_figures",
    "write_part",
]

BEGIN = "<!-- figures: begin, written by scripts/train_demo_model.py -->"
END = "<!-- figures: end -->"
CARD = "README.md"
METRICS = "metrics.json"


def figures_table(scores: Mapping[str, Score]) -> str:
    """Write the scores as a Markdown table, one set a row, in per cent."""
    lines = [
        "| sentences | n | accuracy | 95 % interval | majority baseline | above it |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, score in scores.items():
        low, high = score.interval
        lines.append(
            f"| {name} | {score.sentences:,} | {score.accuracy:.1%} | {low:.1%} to {high:.1%} "
            f"| {score.majority:.1%} | {score.gain_points:+.1f} points |"
        )
    return "\n".join(lines)


def metrics_json(scores: Mapping[str, Score], model_sha256: str) -> str:
    """Write the scores as JSON; shares are from 0 to 1, rounded to 6 digits.

    Args:
        scores: of each set of sentences, by name.
        model_sha256: hash of the checkpoint that has them.
    """
    figures = {
        name: {
            "sentences": score.sentences,
            "correct": score.correct,
            "accuracy": round(score.accuracy, 6),
            "interval_95": [round(bound, 6) for bound in score.interval],
            "majority_baseline": round(score.majority, 6),
        }
        for name, score in scores.items()
    }
    return json.dumps({"model_sha256": model_sha256, "scores": figures}, indent=2) + "\n"


def write_figures(folder: Path, scores: Mapping[str, Score]) -> None:
    """Write ``metrics.json``, and the figures in ``README.md`` where ``folder`` has one.

    Args:
        folder: holds the checkpoint.
        scores: of this checkpoint.

    Raises:
        DataError: the card has no place marked for figures.
        OSError: there is no checkpoint.
    """
    metrics = _metrics(folder, scores)
    if (folder / CARD).is_file():
        write_part(folder, BEGIN, END, figures_table(scores))
    write_atomically(folder / METRICS, metrics.encode())


def read_part(folder: Path, begin: str, end: str) -> str:
    """Return the text between two marks of the card in ``folder``.

    Raises:
        DataError: there is no card, or it lacks a mark.
    """
    return _divide(folder / CARD, begin, end)[1].strip()


def write_part(folder: Path, begin: str, end: str, text: str) -> None:
    """Put ``text`` between two marks of the card in ``folder``.

    Raises:
        DataError: there is no card, or it lacks a mark.
    """
    before, _, after = _divide(folder / CARD, begin, end)
    write_atomically(folder / CARD, f"{before}{begin}\n\n{text}\n\n{end}{after}".encode())


def check_figures(folder: Path, scores: Mapping[str, Score]) -> None:
    """Compare the card and ``metrics.json`` of ``folder`` with a fresh measurement.

    Raises:
        DataError: a file is missing, or the card has no place marked for figures.
        VerificationError: a figure differs, or the metrics are of another checkpoint; it shows
            the first such line.
    """
    _compare(CARD, read_part(folder, BEGIN, END), figures_table(scores))
    if not (folder / METRICS).is_file():
        raise DataError(f"{folder} holds no {METRICS}")
    _compare(METRICS, (folder / METRICS).read_text(encoding="utf-8"), _metrics(folder, scores))


def _metrics(folder: Path, scores: Mapping[str, Score]) -> str:
    return metrics_json(scores, sha256_file(folder / CHECKPOINT))


def _compare(name: str, stated: str, measured: str) -> None:
    if stated == measured:
        return
    old, new = stated.splitlines(), measured.splitlines()
    pairs = zip(old + [""] * len(new), new + [""] * len(old), strict=True)
    said, found = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    raise VerificationError(f"{name} states {said.strip()!r}, but measured was {found.strip()!r}")


def _divide(card: Path, begin: str, end: str) -> tuple[str, str, str]:
    if not card.is_file():
        raise DataError(f"{card.parent} holds no {card.name}")
    before, found, rest = card.read_text(encoding="utf-8").partition(begin)
    stated, closed, after = rest.partition(end)
    if not (found and closed):
        raise DataError(f"{card} does not mark where figures go: {begin} … {end}")
    return before, stated, after
