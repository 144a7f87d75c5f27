from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.errors import ArtifactError
from exporter.training import folders
from exporter.training.folders import working_alone

HOLD = """
import sys
from pathlib import Path
from exporter.training.folders import working_alone
with working_alone(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_is_held_against_another_process_until_that_ends(tmp_path: Path) -> None:
    folder = tmp_path / "new/work"
    for end in ("let go", "killed"):
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other:
            assert other.stdin is not None and other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(ArtifactError, match=f"another command is writing to {folder}: wait"),
                working_alone(folder),
            ):
                pass
            if end == "killed":
                other.kill()
        with working_alone(folder):
            pass
        assert list(folder.iterdir()) == []


def test_it_is_let_go_of_after_an_error_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyError), working_alone(tmp_path):
        raise KeyError
    with working_alone(tmp_path):
        (tmp_path / "made").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
@pytest.mark.filterwarnings("error:flock not supported")
def test_where_no_locks_are_it_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with working_alone(tmp_path):
        (tmp_path / "made").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_lock_that_is_gone_or_cannot_be_removed_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working_alone(tmp_path):
        (lock,) = tmp_path.iterdir()
        lock.unlink()

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for _ in range(2):  # the second one gets it
        with monkeypatch.context() as patched, working_alone(tmp_path):
            patched.setattr(Path, "unlink", fail)


def test_another_programs_lock_stays(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    with working_alone(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_of_several_processes_the_main_one_holds_it_and_the_others_wait_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[bool] = []
    monkeypatch.setattr(folders, "wait_for_all", lambda: waited.append(any(tmp_path.iterdir())))
    with working_alone(tmp_path):
        monkeypatch.setattr(folders, "is_main_process", lambda: False)
        with working_alone(tmp_path):
            pass
        assert len(list(tmp_path.iterdir())) == 1
    assert waited == [True, True]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ArtifactError, match=r"cannot write to .*file/work: Not a directory"),
        working_alone(tmp_path / "file/work"),
    ):
        pass
