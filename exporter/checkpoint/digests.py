"""Hash what a model is loaded from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["hash_file", "hash_files"]


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_files(paths: Iterable[Path]) -> str:
    """Return one SHA-256 over the names and contents of files, in whatever order given."""
    lines = sorted(f"{hash_file(path)}  {path.name}\n" for path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
