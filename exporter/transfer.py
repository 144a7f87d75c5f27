"""What a file takes on the wire, as brotli and as gzip."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import brotli  # type: ignore[import-untyped]

__all__ = ["BROTLI_QUALITY", "GZIP_LEVEL", "TransferBytes", "measure_transfer"]

BROTLI_QUALITY = 5
"""What web servers use for content they compress once."""

GZIP_LEVEL = 6

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class TransferBytes:
    """Bytes of a file and its external data, each compressed by itself."""

    brotli_bytes: int
    gzip_bytes: int

    def to_dict(self) -> dict[str, int]:
        """Return plain JSON values."""
        return {"brotli_bytes": self.brotli_bytes, "gzip_bytes": self.gzip_bytes}


def measure_transfer(
    files: Sequence[Path], progress: Callable[[str], None] = lambda step: None
) -> TransferBytes:
    """Compress ``files`` both ways at once, in threads, keeping a chunk of each in memory.

    Args:
        files: a model and its external data.
        progress: told the bytes read so far, in words, from the threads.
    """
    total = 2 * sum(file.stat().st_size for file in files)
    seen = _Counter(total, progress)
    with ThreadPoolExecutor(max_workers=2) as threads:
        as_brotli = [threads.submit(_brotli_bytes, file, seen) for file in files]
        as_gzip = [threads.submit(_gzip_bytes, file, seen) for file in files]
        return TransferBytes(
            brotli_bytes=sum(job.result() for job in as_brotli),
            gzip_bytes=sum(job.result() for job in as_gzip),
        )


class _Counter:
    def __init__(self, total: int, progress: Callable[[str], None]) -> None:
        self._total, self._progress = total, progress
        self._seen, self._percent = 0, -1
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._seen += count
            percent = 100 * self._seen // max(self._total, 1)
            if percent // 10 > self._percent // 10:
                self._percent = percent
                self._progress(f"compressing to see what a download takes, {percent} %")


def _brotli_bytes(path: Path, seen: _Counter) -> int:
    compressor = brotli.Compressor(quality=BROTLI_QUALITY)
    return _compressed(path, compressor.process, compressor.finish, seen)


def _gzip_bytes(path: Path, seen: _Counter) -> int:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16)  # 16: gzip's header
    return _compressed(path, compressor.compress, compressor.flush, seen)


def _compressed(
    path: Path,
    process: Callable[[bytes], bytes],
    finish: Callable[[], bytes],
    seen: _Counter,
) -> int:
    size = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            size += len(process(chunk))
            seen.add(len(chunk))
    return size + len(finish())
