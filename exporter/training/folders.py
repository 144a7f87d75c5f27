"""A folder that one command at a time works in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from exporter.errors import ArtifactError

__all__ = ["working_alone"]

_LOCK = ".lock"


@contextmanager
def working_alone(folder: Path) -> Iterator[None]:
    """Hold ``folder``, which is made where it is not there yet, against other commands.

    However the process ends, the system lets go of it.

    Raises:
        ArtifactError: another command holds it, or it cannot be written to.
    """
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ArtifactError(
            f"another command is writing to {folder}: wait until it ends, or choose another folder"
        ) from error
    except OSError as error:
        raise ArtifactError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        # Before it is let go of: who opens it now and gets the lock then sees that it is gone.
        (folder / _LOCK).unlink(missing_ok=True)
        lock.release()
