"""Workers with little time, little memory, or nobody who looks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.benchmark.outcome import is_out_of_memory
from exporter.errors import BenchmarkError
from exporter.runtimes.browser_worker import BrowserWorker
from exporter.runtimes.device import describe_python
from exporter.runtimes.line_process import LineProcess, NoAnswerError
from exporter.runtimes.web_folder import web_folder
from exporter.runtimes.worker import MessageWorker
from tests.browsers import installed
from tests.runtimes.conftest import Open, task
from tests.runtimes.models import save_rolled

HEAP = 16 * 2**20
"""What the runtime starts with; a model of that size has no place beside it."""


def test_opening_has_one_deadline_however_much_is_said_on_the_way(tmp_path: Path) -> None:
    script = """
echo '{"type": "ready"}'
while :; do echo '{"type": "progress", "step": "first run"}'; sleep 0.05; done
"""
    start = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"m\.onnx \(first run\): not done after 0\.5 s"):
        MessageWorker(
            task(tmp_path / "m.onnx", timeout_s=0.5),
            lambda: LineProcess(["/bin/sh", "-c", script]),
            {},
            lambda ready, opened: describe_python(),
        )
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("place", ("node", "chromium"), indirect=True)
def test_a_model_that_does_not_fit_into_the_heap_reads_as_out_of_memory(
    tmp_path: Path, open_in: Open
) -> None:
    path = save_rolled(tmp_path / "model.onnx", external=True, width=2048)
    assert (tmp_path / "model.onnx_data").stat().st_size > HEAP
    job = task(path, warm_first=False, heap_bytes=HEAP)
    with pytest.raises(BenchmarkError) as caught:
        open_in(job)
    assert is_out_of_memory(str(caught.value)), caught.value
    assert "\n" not in str(caught.value)
    with open_in(task(save_rolled(tmp_path / "small.onnx"), heap_bytes=HEAP)) as worker:
        assert worker.run() > 0
        assert worker.opened.memory.wasm_heap == HEAP


def test_a_page_out_of_sight_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "web"
    shutil.copytree(web_folder() / "measure", folder / "measure")
    page = folder / "measure" / "driven.html"
    covered = "<script>Object.defineProperty(document, 'hidden', { value: true });</script>"
    page.write_text(page.read_text().replace("<script", f"{covered}<script", 1))
    monkeypatch.setattr("exporter.runtimes.browser_worker.web_folder", lambda: folder)
    job = task(save_rolled(tmp_path / "model.onnx"), warm_first=False)
    with BrowserWorker(job, installed("chromium")) as worker:
        assert worker.was_hidden is True


def test_ctrl_c_in_a_terminal_does_not_reach_workers() -> None:
    channel = LineProcess([sys.executable, "-c", "import os; print(os.getsid(0), os.getpid())"])
    answer = channel._lines.get(timeout=20)
    assert answer is not None
    session, process = answer.split()
    channel.close()
    assert session == process  # what a terminal sends goes to its own session


@pytest.mark.parametrize("kind", ["cpu", "node"])
def test_a_worker_does_not_outlive_the_program_that_started_it(tmp_path: Path, kind: str) -> None:
    path = save_rolled(tmp_path / "model.onnx")
    script = f"""
import os, pathlib
from exporter.runtimes.{kind}_worker import {kind.capitalize()}Worker
from tests.runtimes.conftest import task
worker = {kind.capitalize()}Worker(task(pathlib.Path({str(path)!r}), warm_first=False))
print(worker._channel._process.pid, flush=True)
os._exit(0)  # dies, and closes nothing
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=True
    )
    process = int(done.stdout)
    end = time.monotonic() + 10
    while _runs(process) and time.monotonic() < end:
        time.sleep(0.05)
    running = _runs(process)
    if running:
        os.kill(process, signal.SIGKILL)
    assert not running


def _runs(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
