"""Where a report may go: not in place of what cannot be made again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from exporter.errors import BenchmarkError

__all__ = ["check_report_target"]

_MEASURED = (".jsonl", ".sqlite", ".sqlite-wal", ".onnx")
_MANIFEST = "albert-export.json"


def check_report_target(path: Path, results: Iterable[Path] = ()) -> None:
    """Refuse a place for a report where something else would be lost.

    Args:
        path: where the report is to go.
        results: files that the report is made of.

    Raises:
        BenchmarkError: it is one of these, holds measurements, a model or a manifest, or is
            no regular file.
    """
    target = path.resolve()
    if target in {result.resolve() for result in results}:
        raise BenchmarkError(f"{path} holds the results; write the report elsewhere")
    if target.exists() and not target.is_file():
        raise BenchmarkError(f"{path} is no regular file; a report goes into one")
    if target.exists() and (target.suffix in _MEASURED or target.name == _MANIFEST):
        raise BenchmarkError(
            f"{path} holds measurements or belongs to a model; write the report elsewhere"
        )
