"""Python environments for tools that this project must not depend on, one each.

Torch is too large to install once per tool, and its default wheel brings CUDA: a tool that
needs it gets a link to the one of this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Environment", "ToolError", "offline", "run_logged"]

_TORCH = ("torch", "torchgen", "functorch", "torch-*.dist-info")
_LAST_LINES = 4000


class ToolError(Exception):
    """A tool, or the installation of it, that failed; the text is its last words."""


@dataclass(frozen=True)
class Environment:
    """What one tool needs.

    Args:
        name: of its folder.
        requirements: for pip, pinned.
        constraints: a file that pins everything else.
        borrows_torch: whether this process's torch is lent to it.
    """

    name: str
    requirements: tuple[str, ...]
    constraints: Path | None = None
    borrows_torch: bool = False

    def python(self, folder: Path) -> Path:
        """Return its interpreter; what is not there yet is made in ``folder``.

        Raises:
            ToolError: pip failed.
        """
        home = folder / "environments" / self.name
        python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        if (home / "complete").exists():
            return python
        print(f"installing {self.name} …", file=sys.stderr)
        venv.create(home, with_pip=True, clear=True)
        if self.borrows_torch:
            # Before the installation: pip then sees that torch is there.
            _lend_torch(python, home / "borrowed")
        command = [str(python), "-m", "pip", "install", "--quiet", *self.requirements]
        if self.constraints is not None and self.constraints.exists():
            command += ["--constraint", str(self.constraints)]
        _checked(command, home / "install.log")
        (home / "complete").touch()
        return python

    def run(self, folder: Path, arguments: Sequence[str], log: Path) -> None:
        """Run its Python with ``arguments``; what it says goes to ``log``.

        Raises:
            ToolError: it failed, or could not be installed.
        """
        _checked([str(self.python(folder)), *arguments], log, offline())

    def packages(self, folder: Path) -> list[str]:
        """Return what it holds, as ``name==version``; torch, which it borrows, left out."""
        command = [str(self.python(folder)), "-m", "pip", "freeze", "--exclude", "torch"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.split("\n")[:-1]


def offline() -> dict[str, str]:
    """Return this process's environment, with hubs and trackers off.

    They cannot be reached everywhere, and waiting for them is no result.
    """
    switches = ("HF_HUB_OFFLINE", "DO_NOT_TRACK", "OLIVE_DISABLE_TELEMETRY", "PYTHONUTF8")
    return {**os.environ, **dict.fromkeys(switches, "1")}


def run_logged(command: Sequence[str], log: Path) -> None:
    """Run ``command``; what it says goes to ``log``.

    Raises:
        ToolError: it failed.
    """
    _checked([*command], log, offline())


def _checked(command: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
    with log.open("w", encoding="utf-8") as lines:
        done = subprocess.run(
            command, stdout=lines, stderr=subprocess.STDOUT, env=environment, check=False
        )
    if done.returncode:
        said = log.read_text(encoding="utf-8", errors="replace")[-_LAST_LINES:]
        raise ToolError(f"exit code {done.returncode}: {said.strip()}")


def _lend_torch(python: Path, borrowed: Path) -> None:
    borrowed.mkdir()
    # Torch alone: whatever else lies beside it here would pass for the tool's own.
    packages = Path(sysconfig.get_path("purelib"))
    for pattern in _TORCH:
        for found in packages.glob(pattern):
            (borrowed / found.name).symlink_to(found)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    told = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True)
    link = Path(told.stdout.strip()) / "borrowed.pth"
    link.write_text(f"{borrowed}\n", encoding="utf-8")
