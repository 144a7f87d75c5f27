"""A folder that one command at a time works in."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from exporter.errors import ArtifactError
from exporter.training.loop import is_main_process, wait_for_all

__all__ = ["working_alone"]

_LOCK = ".albert-export.lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""What a file system answers that knows no locks, as some of networks do not."""


@contextmanager
def working_alone(folder: Path) -> Iterator[None]:
    """Hold ``folder``, which is made where it is not there yet, against other commands.

    Of a command's several processes the main one holds it, and all go on together from there.
    However the process ends, the system lets go of it. Where the file system knows no locks,
    it is not held: to work there alone is left to whoever gives the commands.

    Raises:
        ArtifactError: another command holds it, or it cannot be written to.
    """
    with _held(folder) if is_main_process() else nullcontext():
        wait_for_all()
        yield


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    # A soft lock would outlive a killed process, and nobody could tell from another machine.
    lock = FileLock(folder / _LOCK, timeout=0, fallback_to_soft=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ArtifactError(
            f"another command is writing to {folder}: wait until it ends, or choose another folder"
        ) from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise ArtifactError(f"cannot write to {folder}: {error.strerror}") from error
    try:
        yield
    finally:
        # Before it is let go of: who opens it now and gets the lock then sees that it is gone.
        with suppress(OSError):
            (folder / _LOCK).unlink()
        lock.release()
