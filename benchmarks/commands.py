"""``albert-export`` in a process of its own, and what that took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

__all__ = ["CommandError", "Completed", "albert_export"]


class CommandError(Exception):
    """The command failed; the text is its last words."""


@dataclass(frozen=True)
class Completed:
    """A command that has ended well.

    Args:
        output: what it printed, read as JSON.
        seconds: wall time; ``cpu_seconds`` user and system time.
        peak_bytes: largest resident memory.
    """

    output: dict[str, Any]
    seconds: float
    cpu_seconds: float
    peak_bytes: int


def albert_export(*arguments: object) -> Completed:
    """Run ``albert-export ARGUMENTS --json``.

    The process that calls this should be a small one: on Linux, what it holds when it starts
    the command is the least that the command's peak can be.

    Raises:
        CommandError: the exit code is not 0.
    """
    command = [sys.executable, "-m", "exporter", *map(str, arguments), "--json"]
    # Not in memory, and the errors apart: what the parent holds counts for the child too.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            said = errors.read().decode(errors="replace")[-2000:]
            raise CommandError(f"albert-export {' '.join(map(str, arguments))}: {said}")
        return Completed(
            output=json.loads(output.read()),
            seconds=seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_bytes=usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        )
