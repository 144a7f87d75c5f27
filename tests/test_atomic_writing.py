from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from exporter.atomic_writing import remove_leftovers, write_atomically
from exporter.errors import ArtifactError


def test_a_write_that_fails_leaves_the_old_content_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.json"
    write_atomically(path, b"old")
    real = Path.open

    def full(self: Path, mode: str) -> Any:
        stream = real(self, mode)
        stream.write(b"ne")

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                stream.close()

            def write(self, content: bytes) -> int:
                raise OSError(28, "No space left on device")

        return Full()

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(
            ArtifactError, match=r"cannot write .*log\.json: No space left on device"
        ):
            write_atomically(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["log.json"]
    assert path.read_bytes() == b"old"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"cannot write .*file/below/a: "):
        write_atomically(tmp_path / "file/below/a", b"")


def test_a_link_stays_one_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "deep/target")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep/target").read_bytes() == b"new"
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["target"]


def test_a_link_to_itself_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    with pytest.raises(ArtifactError, match=r"cannot write .*link: Symlink loop"):
        write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()


def test_the_first_cause_is_named_where_nothing_can_be_removed_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(message: str) -> Any:
        def act(*_: object, **__: object) -> None:
            raise OSError(5, message)

        return act

    monkeypatch.setattr(Path, "replace", fail("the first"))
    monkeypatch.setattr(Path, "unlink", fail("the second"))
    with pytest.raises(ArtifactError, match=r"cannot write .*a: the first"):
        write_atomically(tmp_path / "a", b"new")


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_who_may_read_it_is_the_users_to_say(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_only_what_killed_writes_of_these_files_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("log.json", "part-1.npz", "other.json")
    for name in names:
        write_atomically(tmp_path / name, b"1")
        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", lambda *_: None)  # as if killed just before
            write_atomically(tmp_path / name, b"2")
    theirs = [".hidden", ".log.json.partial", ".log.json-download.partial", "log.json.partial"]
    for name in theirs:
        (tmp_path / name).touch()
    assert len(list(tmp_path.iterdir())) == 10
    remove_leftovers(tmp_path, "log.json", "part-*.npz")
    left = {path.name for path in tmp_path.iterdir()} - {*names, *theirs}
    assert len(left) == 1
    assert left.pop().startswith(".other.json-")
    assert (tmp_path / "log.json").read_bytes() == b"1"
