from __future__ import annotations

import gzip
import os
import time
from pathlib import Path
from typing import Any

import brotli  # type: ignore[import-untyped]
import pytest

from exporter.artifact import artifact_names
from exporter.benchmark.subjects import model_file
from exporter.errors import ArtifactError
from exporter.runtimes.content_types import content_type
from exporter.server import encodings as encodings_module
from exporter.server.catalogue import catalogue
from exporter.server.encodings import Encodings
from exporter.server.files import Pages, ServedFile, Site, check_hashes, read_artifacts
from tests.server.samples import FILES, NOISE, WEIGHTS, sha256, write_artifact


def served(folder: Path, name: str, content: bytes) -> ServedFile:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)
    return ServedFile.read(folder, name)


def test_copies_hold_the_content_and_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = served(tmp_path, "model.onnx", WEIGHTS)
    page = served(tmp_path, "index.html", b"<p>" * 1000)
    first = Encodings(tmp_path / "cache")
    steps: list[str] = []
    first.prepare([model, page], steps.append)
    for file in (model, page):
        packed, zipped = first.get(file, "br"), first.get(file, "gzip")
        assert packed is not None and zipped is not None
        content = file.path.read_bytes()
        assert brotli.decompress(packed.path.read_bytes()) == content
        assert gzip.decompress(zipped.path.read_bytes()) == content
        assert packed.bytes == packed.path.stat().st_size == first.transfer_bytes(file, "br")
        assert zipped.bytes == first.transfer_bytes(file, "gzip") < file.bytes
    assert steps[-1] == "compressing what is served (kept for next time), 100 %"
    names = sorted(path.name.rpartition(".")[2] for path in (tmp_path / "cache").iterdir())
    assert names == ["br11", "br5", "gzip6", "gzip6"]

    def fail(*_: Any) -> None:
        raise AssertionError("compressed again")

    monkeypatch.setattr(Encodings, "_make", fail)
    second = Encodings(tmp_path / "cache")
    second.prepare([model, page])
    assert second.get(model, "br") == first.get(model, "br")


def test_what_compressing_does_not_make_smaller_stays_as_it_is(tmp_path: Path) -> None:
    noise = served(tmp_path, "noise.onnx", NOISE)
    picture = served(tmp_path, "picture.png", b"\0" * 1000)
    nothing = served(tmp_path, "empty.js", b"")
    for _ in range(2):  # found the second time
        encodings = Encodings(tmp_path / "cache")
        encodings.prepare([noise, picture, nothing])
        for file in (noise, picture, nothing):
            assert encodings.get(file, "br") is None
            assert encodings.transfer_bytes(file, "gzip") == file.bytes


def test_large_files_are_not_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (served(tmp_path, f"{size}.onnx", b"x" * size) for size in (1000, 1001))
    monkeypatch.setattr(encodings_module, "LARGEST_BYTES", 1000)
    encodings = Encodings(tmp_path / "cache")
    encodings.prepare([small, large])
    assert encodings.get(small, "br") is not None
    assert encodings.get(large, "br") is None


def test_the_runtime_is_compressed_best(tmp_path: Path) -> None:
    runtime = served(tmp_path, "runtime.wasm", WEIGHTS)
    Encodings(tmp_path / "cache").prepare([runtime])
    assert (tmp_path / f"cache/{runtime.sha256}.br10").is_file()


def test_an_interrupt_leaves_no_half_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [served(tmp_path, f"{number}.onnx", bytes([number]) * 5000) for number in range(6)]
    monkeypatch.setattr(encodings_module, "_CHUNK_BYTES", 500)

    def interrupt(step: str) -> None:
        if "50 %" in step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Encodings(tmp_path / "cache").prepare(files, interrupt)
    for path in (tmp_path / "cache").iterdir():
        assert not path.name.startswith(".partial")
        if ".br" in path.name:
            assert len(brotli.decompress(path.read_bytes())) == 5000
    encodings = Encodings(tmp_path / "cache")
    encodings.prepare(files)
    assert all(encodings.get(file, "br") for file in files)


def test_a_folder_that_cannot_be_written_to_is_an_error_of_the_system(tmp_path: Path) -> None:
    model = served(tmp_path, "model.onnx", WEIGHTS)
    (tmp_path / "file").write_text("")
    encodings = Encodings(tmp_path / "file/cache")
    with pytest.raises(OSError, match="file"):
        encodings.prepare([model])
    assert encodings.transfer_bytes(model, "br") == model.bytes


def test_copies_that_nobody_used_for_long_are_removed(tmp_path: Path) -> None:
    model = served(tmp_path, "model.onnx", WEIGHTS)
    cache = tmp_path / "cache"
    cache.mkdir()
    old, used = cache / f"{sha256(b'old')}.br5", cache / f"{model.sha256}.br5"
    long_ago = time.time() - 100 * 86_400
    for path in (old, used):
        path.write_bytes(brotli.compress(WEIGHTS))
        os.utime(path, (long_ago, long_ago))
    Encodings(cache).prepare([model])
    assert used.is_file()
    assert not old.exists()


def test_a_file_that_is_not_the_one_of_the_manifest_stops_the_start(tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "model-onnx")
    check_hashes(read_artifacts([folder]))
    (folder / "onnx/model.onnx").write_bytes(WEIGHTS[::-1])
    with pytest.raises(ArtifactError, match=r"model\.onnx is not the file its manifest describes"):
        check_hashes(read_artifacts([folder]))


def test_each_artifact_has_a_name_of_its_own_and_that_of_the_benchmark(tmp_path: Path) -> None:
    folders = [
        write_artifact(tmp_path / name, {"config.json": FILES["config.json"]})
        for name in ("a/model", "b/model", "c/a-model", "d/.. my <model> é", "e/…")
    ]
    folders.append(folders[-1])
    found = read_artifacts(folders)
    names = ["a/model", "b/model", "a-model", ".. my <model> é", "…", "…#2"]
    assert [artifact.name for artifact in found] == names
    assert artifact_names(folders) == names
    assert [artifact.slug for artifact in found] == [
        "a-model",
        "b-model",
        "a-model-2",
        "my-model",
        "artifact",
        "2",
    ]


def test_a_model_has_the_hash_that_the_benchmark_gives_it(tmp_path: Path) -> None:
    (served,) = read_artifacts([write_artifact(tmp_path / "model-onnx")])
    site = Site([served], [], Pages(tmp_path))
    (entry,) = catalogue(site, Encodings(tmp_path / "cache"), isolated=True)["artifacts"]
    for variant in entry["variants"]:
        expected = model_file(served.artifact, variant["variant"])
        assert variant["sha256"] == expected.sha256
        assert variant["model"]["path"] == expected.path
        assert variant["file_bytes"] == expected.file_bytes
    assert len({variant["sha256"] for variant in entry["variants"]}) == 3


def test_media_types_do_not_depend_on_the_system() -> None:
    assert content_type("a/ORT.WASM") == "application/wasm"
    assert content_type("x.mjs") == content_type("x.js") == "text/javascript; charset=utf-8"
    assert content_type("model.onnx_data") == "application/octet-stream"
    assert content_type("unknown.xyz") == content_type("unknown") == "application/octet-stream"
