"""A child process that is spoken to in lines of JSON."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from exporter.errors import BenchmarkError

__all__ = ["LineProcess", "NoAnswerError", "ending"]


class NoAnswerError(BenchmarkError):
    """A worker that took longer than it may, and was ended."""


class LineProcess:
    """A :class:`~exporter.runtimes.worker.Channel` to a process's standard input and output.

    What it writes to standard error is kept, and quoted where it dies.

    Args:
        command: program and arguments.

    Raises:
        BenchmarkError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                # A terminal sends Ctrl-C to its whole group: a worker that died of it would
                # look like one that failed. It is this program that ends its workers.
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise BenchmarkError(f"{command[0]} cannot be started: {error.strerror}") from error
        # Reading in a thread lets receive() stop waiting; None marks the end.
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; a worker that is gone shows in :meth:`receive`."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next message.

        Raises:
            NoAnswerError: it said nothing for so long.
            BenchmarkError: the process ended, or said something else than a message.
        """
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._process.kill()
            raise NoAnswerError(
                f"no answer within {timeout_s:g} s; the process was ended"
            ) from None
        if line is None:
            self._lines.put(None)  # every further call says the same
            code = self._process.wait()
            raise BenchmarkError(f"the process {ending(code)}{self._last_words()}")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise BenchmarkError(f"the process said {line.strip()[:200]!r}") from error
        return dict(message)

    def close(self) -> None:
        """End the process; safe to call again."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # the process is dead already
            self._process.stdin.close()
        # It holds nothing worth keeping, and a runtime that still compiles ends slowly.
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _last_words(self) -> str:
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        telling = [line.strip() for line in lines if "error" in line.lower()]
        spoken = telling or [line.strip() for line in lines if line.strip()]
        return f": {spoken[-1][:300]}" if spoken else ""


def ending(code: int) -> str:
    """Say how a process ended: by which signal, or with which exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"
