"""Writing files so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import secrets
from contextlib import suppress
from pathlib import Path

from exporter.errors import ArtifactError

__all__ = ["remove_leftovers", "write_atomically"]

_PARTIAL = ".partial"
_RANDOM_BYTES = 4


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` to a temporary file beside ``path``, then put it in its place.

    Where ``path`` is a link, that is the file it leads to.

    Raises:
        ArtifactError: it cannot be written; what was at ``path`` is still there.
    """
    try:
        target = path.resolve()
    except RuntimeError as error:  # a link that leads to itself
        raise ArtifactError(f"cannot write {path}: {error}") from error
    mark = secrets.token_hex(_RANDOM_BYTES)
    temporary = target.with_name(f".{target.name}-{mark}{_PARTIAL}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as stream:
                stream.write(content)
            temporary.replace(target)
        except BaseException:
            with suppress(OSError):  # where nothing can be written, nothing can be removed
                temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error.strerror}") from error


def remove_leftovers(folder: Path, *names: str) -> None:
    """Remove the temporary files of killed writes in ``folder``.

    Args:
        folder: where; nobody else may be writing these files there.
        names: of the files that were to be written; may hold wildcards.
    """
    mark = "[0-9a-f]" * (2 * _RANDOM_BYTES)
    for name in names:
        for path in folder.glob(f".{name}-{mark}{_PARTIAL}"):
            path.unlink(missing_ok=True)
