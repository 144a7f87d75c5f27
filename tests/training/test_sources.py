from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from exporter.training import sources
from exporter.training.sources import DataError, Source, fetch, read_member

CONTENT = b"the archive"
SOURCE = Source("thing", "1.0", "npm", "thing-1.0.tgz", hashlib.sha256(CONTENT).hexdigest())


class Registry:
    """Stands in for a registry's client, and counts what it is asked for."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.calls = 0

    def __call__(self, source: Source, folder: Path) -> None:
        self.calls += 1
        if self.content is not None:
            (folder / source.archive).write_bytes(self.content)


def test_an_archive_is_fetched_once(tmp_path: Path) -> None:
    registry = Registry(CONTENT)
    folder = tmp_path / "cache"
    first = fetch(SOURCE, folder, download=registry)
    assert first.read_bytes() == CONTENT
    assert fetch(SOURCE, folder, download=registry) == first
    assert registry.calls == 1
    assert list(folder.iterdir()) == [first]  # nothing half-done is left


def test_an_archive_cut_short_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / SOURCE.archive).write_bytes(CONTENT[:3])
    assert fetch(SOURCE, tmp_path, download=Registry(CONTENT)).read_bytes() == CONTENT


def test_an_archive_with_another_hash_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not the pinned"):
        fetch(SOURCE, tmp_path, download=Registry(b"tampered"))
    assert list(tmp_path.iterdir()) == []


def test_a_client_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"npm wrote no thing-1\.0\.tgz"):
        fetch(SOURCE, tmp_path, download=Registry(None))


def test_a_missing_client_is_said_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(DataError, match=r"npm is not installed .* put thing-1\.0\.tgz into"):
        fetch(SOURCE, tmp_path)


def test_a_failing_client_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    lines = ("npm notice", "npm error offline", "npm error see the log")
    script = "".join(f"echo '{line}' >&2\n" for line in lines)
    npm.write_text(f"#!/bin/sh\n{script}exit 1\n")
    npm.chmod(0o755)
    monkeypatch.setattr(sources.shutil, "which", lambda name: str(npm))
    with pytest.raises(DataError, match=r"thing 1\.0 through npm: npm error offline"):
        fetch(SOURCE, tmp_path / "cache")


def _archive(path: Path, members: dict[str, bytes], link: str | None = None) -> bytes:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if link is not None:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info)
    return path.read_bytes()


def test_a_member_of_an_archive_in_an_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    inner = _archive(tmp_path / "inner.tgz", {"data/a.txt": b"a line"})
    outer = tmp_path / "outer.tgz"
    _archive(outer, {"x/inner.tgz": inner, "../escape.txt": b"no"})
    before = sorted(tmp_path.rglob("*"))
    assert read_member(outer, "x/inner.tgz", "data/a.txt") == b"a line"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    _archive(archive, {}, link="data.txt")
    with pytest.raises(DataError, match=r"data\.txt in a\.tgz is not a plain file"):
        read_member(archive, "data.txt")


def test_a_missing_member_and_a_damaged_archive_are_named(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    content = _archive(archive, {"a": b"1" * 5000})
    with pytest.raises(DataError, match=r"a\.tgz holds no b"):
        read_member(archive, "b")
    for damaged in (b"", content[:40], b"no archive"):
        archive.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.tgz cannot be read"):
            read_member(archive, "a")
