"""The files that ``albert-export report`` reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.atomic_writing import write_atomically
from exporter.cli.output_files import check_report_target
from exporter.errors import BenchmarkError

__all__ = ["STDOUT", "destinations", "read_manifest", "write_all"]

STDOUT = Path("-")
SUFFIXES = {".html": "html", ".htm": "html", ".md": "md", ".json": "json"}


def destinations(
    output: Path, formats: Sequence[str] | None, results: Sequence[Path]
) -> dict[str, Path]:
    """Return where each format goes: ``output`` itself, the others beside it.

    Raises:
        BenchmarkError: two formats on standard output, or a file that would replace something else.
    """
    own = SUFFIXES.get(output.suffix.lower())
    names = tuple(formats) if formats else (own or "html",)
    if output == STDOUT:
        if len(names) > 1:
            raise BenchmarkError("standard output takes one format; choose one with --format")
        return {names[0]: STDOUT}
    if len(names) == 1 and own is None:
        paths = {names[0]: output}
    else:
        stem = output if own is None else output.with_suffix("")
        paths = {
            name: output if name == own else stem.with_name(f"{stem.name}.{name}") for name in names
        }
    for path in paths.values():
        check_report_target(path, results)
    return paths


def read_manifest(path: Path) -> Mapping[str, Any]:
    """Return the manifest of an artifact, given its folder or the manifest; named after it."""
    from exporter.artifact import Artifact

    folder = path if path.is_dir() else path.parent
    return {**Artifact.load(folder).manifest, "name": folder.resolve().name}


def write_all(texts: Mapping[Path, str]) -> Iterator[Path]:
    """Write each file whole or not at all; yield its path."""
    for path, text in texts.items():
        write_atomically(path, text.encode())
        yield path
