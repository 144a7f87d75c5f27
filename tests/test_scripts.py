"""The scripts, as somebody meets them who has installed less than they need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "train_demo_model.py"


@pytest.mark.parametrize("package", ["tokenizers", "accelerate"])
def test_what_is_not_installed_is_one_line_that_says_how_to_get_it(
    tmp_path: Path, package: str
) -> None:
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError(name={package!r})")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--write-data", tmp_path / "data"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"this script needs the package {package}: pip install -c constraints.txt -e '.[train]'\n"
    )
    assert not (tmp_path / "data").exists()
