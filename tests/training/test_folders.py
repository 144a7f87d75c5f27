from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.errors import ArtifactError
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


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(ArtifactError, match=r"cannot write to .*file/work: Not a directory"),
        working_alone(tmp_path / "file/work"),
    ):
        pass
