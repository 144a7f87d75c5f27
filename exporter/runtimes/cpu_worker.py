"""A process that loads one model on the CPU and runs it when told.

Each measured file gets a process of its own, so that its memory and its caches are its
alone, while the parent decides whose turn it is. Requests and answers are one line of
JSON each, on standard input and output.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from exporter.errors import BenchmarkError
from exporter.inputs import ModelInputs

__all__ = ["CpuWorker"]

_STOP_SECONDS = 5


class CpuWorker:
    """The parent's side of one worker; a context manager that ends the process.

    Args:
        path: the model file.
        inputs: what it takes.
        sizes: size of each symbolic dimension of a run.
        threads: compute threads.

    Attributes:
        load_ms: creating the session.
        first_ms: the first run, which fills caches and buffers.
        added_rss_bytes: memory that loading and the first run added; ``None`` where the
            platform cannot tell.

    Raises:
        BenchmarkError: the process died; the text says with what.
    """

    def __init__(
        self, path: Path, inputs: ModelInputs, sizes: dict[str, int], threads: int
    ) -> None:
        self._path = path
        self._process = subprocess.Popen(
            # -P: a folder or file of the caller's must not be imported in place of ours.
            [sys.executable, "-P", "-m", "exporter.runtimes.cpu_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        case = {
            "path": str(path),
            "inputs": inputs.to_dict(),
            "sizes": sizes,
            "threads": threads,
        }
        try:
            opened = self._ask(case)
        except BaseException:
            self.close()
            raise
        self.load_ms: float = opened["load_ms"]
        self.first_ms: float = opened["first_ms"]
        self.added_rss_bytes: int | None = opened["added_rss_bytes"]

    def run(self) -> float:
        """Run the model once; return milliseconds."""
        return float(self._ask("run")["ms"])

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # the process is dead already
                    pipe.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> CpuWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, request: object) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            raise BenchmarkError(f"measuring {self._path} ended with exit code {code}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(answer["error"])
        return answer


def _serve() -> None:
    """Run in the worker: the first line opens the model, each further one runs it."""
    from exporter.errors import ExportError
    from exporter.runtimes.cpu import CpuSession

    case = json.loads(sys.stdin.readline())
    inputs = ModelInputs.from_dict(case["inputs"])
    before = _rss_bytes()
    try:
        feeds = inputs.draw(case["sizes"])
        inputs.check(feeds)
        session = CpuSession(Path(case["path"]), threads=case["threads"])
        start = time.perf_counter()
        session.run(feeds)
        first_ms = (time.perf_counter() - start) * 1e3
    except ExportError as error:
        _answer({"error": str(error)})
        return
    after = _rss_bytes()
    added = None if before is None or after is None else after - before
    _answer({"load_ms": session.load_ms, "first_ms": first_ms, "added_rss_bytes": added})
    for _ in sys.stdin:
        start = time.perf_counter()
        session.run(feeds)
        _answer({"ms": (time.perf_counter() - start) * 1e3})


def _answer(values: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def _rss_bytes() -> int | None:
    """Resident memory of this process now, in bytes."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    _serve()
