from __future__ import annotations

import gzip
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import numpy as np

from exporter.inspection.transfer import measure_transfer


def test_compressed_sizes_are_those_of_the_whole_files(tmp_path: Path) -> None:
    random = np.random.default_rng(0).integers(0, 50, 2_500_000, dtype=np.uint8).tobytes()
    contents = [random, b"aaaa" * 1000]
    files = [tmp_path / name for name in ("a", "b")]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    measured = measure_transfer(files)
    assert measured.gzip_bytes == sum(len(gzip.compress(c, 6)) for c in contents)
    compressors = [brotli.Compressor(quality=5) for _ in contents]
    streamed = [c.process(d) + c.finish() for c, d in zip(compressors, contents, strict=True)]
    assert abs(measured.brotli_bytes - sum(map(len, streamed))) < 0.001 * measured.brotli_bytes
    assert measured.brotli_bytes < measured.gzip_bytes < len(random)


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(3_000_000))
    steps: list[str] = []
    measure_transfer([file], steps.append)
    assert len(steps) > 3
    assert steps[-1].endswith("100 %")
