from __future__ import annotations

import gzip
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import numpy as np

from exporter.transfer import measure_transfer


def test_compressed_sizes_are_those_of_the_whole_files(tmp_path: Path) -> None:
    random = np.random.default_rng(0).integers(0, 50, 2_500_000, dtype=np.uint8).tobytes()
    contents = [random, b"aaaa" * 1000]
    files = [tmp_path / name for name in ("a", "b")]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    measured = measure_transfer(files)
    assert measured.gzip_bytes == sum(len(gzip.compress(c, 6)) for c in contents)
    assert measured.brotli_bytes < measured.gzip_bytes < len(random)


def test_brotli_has_the_quality_that_is_reported(tmp_path: Path) -> None:
    steps = np.random.default_rng(0).integers(-2, 3, 100_000)
    content = " ".join(map(str, steps.cumsum())).encode()  # below one chunk, so sizes are exact
    (tmp_path / "a").write_bytes(content)
    compressor = brotli.Compressor(quality=5)
    expected = len(compressor.process(content) + compressor.finish())
    assert measure_transfer([tmp_path / "a"]).brotli_bytes == expected
    assert expected != len(brotli.compress(content, quality=4))


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(bytes(3_000_000))
    steps: list[str] = []
    measure_transfer([file], steps.append)
    assert len(steps) > 3
    assert steps[-1].endswith("100 %")
