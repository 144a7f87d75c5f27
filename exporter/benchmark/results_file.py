"""The results file: one record a line, each on disk before the next is measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from exporter.errors import BenchmarkError
from exporter.records import Record, RecordError, parse_record, to_json

__all__ = ["ResultsWriter", "read_results"]


def read_results(
    path: Path, notice: Callable[[str], None] = lambda text: None
) -> tuple[Record, ...]:
    """Read a results file that this program wrote, to continue it.

    A last line that is cut off, as an interruption leaves it, is passed over with a notice.

    Raises:
        BenchmarkError: another line is no valid record; the text names it.
        OSError: the file cannot be read.
    """
    content = path.read_bytes()
    records = []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(parse_record(line))
        except RecordError as error:
            if number == len(lines):  # it has no end
                notice(f"{path} ends within line {number}, which is passed over")
                break
            raise BenchmarkError(f"{path}, line {number}: {error}") from error
    return tuple(records)


class ResultsWriter:
    """Appends records to a file; a context manager that closes it.

    The file is not touched before the first record.

    Args:
        path: the file.
        add: append to a file that exists; a last line cut off by an interruption goes.
        notice: told where such a line goes.

    Raises:
        BenchmarkError: the file exists and ``add`` is not set, it cannot be written, it is no
            regular file, or it holds something else.
    """

    def __init__(
        self, path: Path, *, add: bool = False, notice: Callable[[str], None] = lambda text: None
    ) -> None:
        self.path = path
        self._notice = notice
        if path.exists() and not path.is_file():  # closing would remove a device
            raise BenchmarkError(f"{path} is no regular file; records go into one")
        if not add and path.exists() and path.stat().st_size:
            raise BenchmarkError(
                f"{path} exists; --resume continues it, --append adds to it, "
                "or choose another file with --out"
            )
        try:
            # Without a buffer, which would try again on closing what could not be written.
            self._stream = FileIO(path, "ab+")
        except OSError as error:
            raise BenchmarkError(f"cannot write {path}: {error.strerror}") from error
        self._stream.seek(0)
        if self._stream.read(1) not in (b"", b"{"):
            self._stream.close()
            raise BenchmarkError(
                f"{path} holds something else than records; choose another file with --out"
            )
        self._mended = False

    def write(self, record: Record) -> None:
        """Append one record; it is on disk when this returns.

        Raises:
            BenchmarkError: there is no room, say; the file then ends with the record before.
        """
        rest = memoryview(to_json(record).encode() + b"\n")
        whole = self._stream.seek(0, os.SEEK_END)
        try:
            if not self._mended:
                whole = self._mend_end()
            while rest:
                rest = rest[self._stream.write(rest) :]
            os.fsync(self._stream.fileno())
        except OSError as error:
            self._mended = False
            with suppress(OSError):
                self._stream.truncate(whole)
            raise BenchmarkError(
                f"cannot write a record to {self.path}: {error.strerror}; those before it are "
                "whole; make room and run the command again"
            ) from error

    def close(self) -> None:
        """Close the file; one that nothing was written to is removed."""
        self._stream.close()
        if self.path.exists() and not self.path.stat().st_size:
            self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _mend_end(self) -> int:
        """Make the file end with a whole line; return where."""
        self._mended = True
        self._stream.seek(0)
        content = self._stream.read()
        if not content or content.endswith(b"\n"):
            return len(content)
        start = content.rfind(b"\n") + 1
        try:
            parse_record(content[start:])
        except RecordError:
            self._stream.truncate(start)
            self._notice(f"{self.path}: its last line was cut off and is gone now")
            return start
        self._stream.write(b"\n")
        return len(content) + 1
