from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from exporter.errors import ArtifactError
from exporter.training.files import remove_leftovers, write_atomically


def test_a_write_that_fails_leaves_the_old_content_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.json"
    write_atomically(path, b"old")
    real = os.fdopen

    def full(descriptor: int, mode: str) -> Any:
        stream = real(descriptor, mode)
        stream.write(b"ne")

        class Full:
            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_: object) -> None:
                stream.close()

            def write(self, content: bytes) -> int:
                raise OSError(28, "No space left on device")

        return Full()

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(ArtifactError, match=r"cannot write .*log\.json: No space left on device"):
        write_atomically(path, b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["log.json"]
    assert path.read_bytes() == b"old"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"cannot write .*file/below/a: "):
        write_atomically(tmp_path / "file/below/a", b"")


def test_only_what_killed_writes_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_atomically(tmp_path / "a", b"1")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", lambda *_: None)  # as if killed just before
        write_atomically(tmp_path / "a", b"2")
    (tmp_path / ".hidden").touch()
    assert len(list(tmp_path.iterdir())) == 3
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "a"]
    assert (tmp_path / "a").read_bytes() == b"1"
