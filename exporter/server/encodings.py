"""Compressed copies of served files, made once and kept in the cache folder.

A copy is named by the content it was made from, the coding and the quality, and written
whole or not at all: ``<sha256>.br5``. An empty file says that compressing gains nothing.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import brotli  # type: ignore[import-untyped]

from exporter.runtimes.content_types import compressible
from exporter.server.files import ServedFile

__all__ = ["LARGEST_BYTES", "Coding", "Encoding", "Encodings"]

Coding = Literal["br", "gzip"]

LARGEST_BYTES = 100 * 10**6
"""Larger files (fp32 baselines, mostly) are sent as they are: compressing them takes too long."""

_CHUNK_BYTES = 1 << 20
_WORTH = 0.98
_KEEP_DAYS = 60


@dataclass(frozen=True)
class Encoding:
    """A compressed copy: where it lies, and its size."""

    path: Path
    bytes: int


class _Compressor(Protocol):
    def process(self, data: bytes, /) -> bytes: ...

    def finish(self) -> bytes: ...


class Encodings:
    """The compressed copies that :meth:`prepare` found or made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, Coding], Encoding | None] = {}
        self._stop = threading.Event()

    def get(self, file: ServedFile, coding: Coding) -> Encoding | None:
        """Return the copy of ``file``, or ``None`` where it is sent as it is."""
        return self._known.get((file.sha256, coding))

    def transfer_bytes(self, file: ServedFile, coding: Coding) -> int:
        """Bytes on the wire for a client that accepts ``coding``."""
        copy = self.get(file, coding)
        return copy.bytes if copy else file.bytes

    def prepare(
        self, files: Sequence[ServedFile], progress: Callable[[str], None] = lambda step: None
    ) -> None:
        """Find or make the copies of ``files``, two at a time.

        Args:
            progress: told the bytes read so far, in words, from the threads.

        Raises:
            OSError: the cache folder cannot be written to; what is there already serves.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        distinct = {file.sha256: file for file in files if compressible(file.name)}
        wanted = [file for file in distinct.values() if 0 < file.bytes <= LARGEST_BYTES]
        codings: tuple[Coding, ...] = ("br", "gzip")
        jobs = [(file, coding) for file in wanted for coding in codings]
        missing = [job for job in jobs if not self._find(*job)]
        seen = _Seen(sum(file.bytes for file, _ in missing), progress)
        # Threads suffice: both libraries release the interpreter's lock while they work.
        with ThreadPoolExecutor(max_workers=2) as threads:
            running = [threads.submit(self._make, file, coding, seen) for file, coding in missing]
            try:
                for job in running:
                    job.result()
            except BaseException:  # an interrupt too: threads end at their next chunk
                self._stop.set()
                threads.shutdown(cancel_futures=True)
                raise
        self._remove_old()

    def _target(self, file: ServedFile, coding: Coding) -> Path:
        return self._folder / f"{file.sha256}.{coding}{_quality(file, coding)}"

    def _find(self, file: ServedFile, coding: Coding) -> bool:
        target = self._target(file, coding)
        try:
            os.utime(target)  # in use: not old
            size = target.stat().st_size
        except OSError:
            return False
        self._known[file.sha256, coding] = Encoding(target, size) if size else None
        return True

    def _make(self, file: ServedFile, coding: Coding, seen: _Seen) -> None:
        target = self._target(file, coding)
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".partial-")
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as output, file.open() as source:
                compressor = _compressor(file, coding)
                while chunk := source.read(_CHUNK_BYTES):
                    if self._stop.is_set():
                        return
                    output.write(compressor.process(chunk))
                    seen.add(len(chunk))
                output.write(compressor.finish())
                if output.tell() > _WORTH * file.bytes:
                    output.seek(0)
                    output.truncate()
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
        self._find(file, coding)

    def _remove_old(self) -> None:
        limit = time.time() - _KEEP_DAYS * 86_400
        for path in self._folder.glob("*.*"):
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_mtime < limit:
                    path.unlink()


def _quality(file: ServedFile, coding: Coding) -> int:
    """Brotli: weights gain nothing above 5; the runtime is worth 15 seconds, once."""
    if coding == "gzip":
        return 6
    if file.name.endswith((".onnx", ".onnx_data")):
        return 5
    if file.name.endswith(".wasm"):
        return 10
    return 11 if file.bytes < 1 << 18 else 9


def _compressor(file: ServedFile, coding: Coding) -> _Compressor:
    quality = _quality(file, coding)
    if coding == "br":
        # The largest window that browsers accept saves 2 % of the runtime.
        window = 24 if file.name.endswith(".wasm") else 22
        compressor: _Compressor = brotli.Compressor(quality=quality, lgwin=window)
        return compressor
    return _Gzip(quality)


class _Gzip:
    def __init__(self, level: int) -> None:
        self._compressor = zlib.compressobj(level, wbits=zlib.MAX_WBITS | 16)  # 16: gzip's header

    def process(self, data: bytes) -> bytes:
        return self._compressor.compress(data)

    def finish(self) -> bytes:
        return self._compressor.flush()


class _Seen:
    def __init__(self, total: int, progress: Callable[[str], None]) -> None:
        self._total, self._progress = total, progress
        self._count, self._percent = 0, -1
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._count += count
            percent = 100 * self._count // max(self._total, 1)
            if percent != self._percent:
                self._percent = percent
                self._progress(f"compressing what is served (kept for next time), {percent} %")
