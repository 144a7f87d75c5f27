"""Workers that die, hang, or cannot start: one clear line, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.errors import BenchmarkError
from exporter.runtimes import node_worker
from exporter.runtimes.browser_worker import Browser, BrowserWorker
from exporter.runtimes.line_process import LineProcess
from exporter.runtimes.node_worker import NodeWorker
from exporter.runtimes.page import Page
from tests.browsers import installed
from tests.runtimes.conftest import PROCESSES, Open, task
from tests.runtimes.models import save_rolled


def _children() -> list[int]:
    """Processes that this one started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def _in_group(leader: int) -> list[str]:
    """Names of the processes of a group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            fields = stat.rpartition(")")[2].split()
            if int(fields[2]) == leader and fields[0] != "Z":
                found.append(stat)
    return found


@PROCESSES
def test_a_process_that_is_killed_is_named_with_its_signal(tmp_path: Path, open_in: Open) -> None:
    before = _children()
    with open_in(task(save_rolled(tmp_path / "model.onnx"), warm_first=False)) as worker:
        (process,) = set(_children()) - set(before)
        os.kill(process, signal.SIGKILL)
        for _ in range(2):  # and again at the next call
            with pytest.raises(BenchmarkError, match=r"model\.onnx \(run\): .* SIGKILL"):
                worker.run()
    assert _children() == before


def test_a_process_that_hangs_is_ended() -> None:
    channel = LineProcess([sys.executable, "-c", "import time; time.sleep(60)"])
    start = time.monotonic()
    with pytest.raises(BenchmarkError, match=r"no answer within 0\.2 s"):
        channel.receive(0.2)
    channel.close()
    channel.close()
    assert time.monotonic() - start < 5


def test_the_last_words_of_a_process_are_quoted() -> None:
    script = "import sys; sys.exit('first line\\nMemoryError: no more\\nVersion 1')"
    channel = LineProcess([sys.executable, "-c", script])
    with pytest.raises(BenchmarkError, match=r"ended with exit code 1: MemoryError: no more$"):
        channel.receive(20)
    channel.close()


def test_a_process_that_says_no_json_is_quoted() -> None:
    channel = LineProcess([sys.executable, "-c", "print('hello')"])
    with pytest.raises(BenchmarkError, match="the process said 'hello'"):
        channel.receive(20)
    channel.close()


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(BenchmarkError, match="/no/such cannot be started: No such file"):
        LineProcess(["/no/such"])


def test_without_node_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_worker, "find_node", lambda: None)
    with pytest.raises(BenchmarkError, match="Node 20 or later is not installed"):
        NodeWorker(task(save_rolled(tmp_path / "model.onnx")))


def test_a_browser_that_is_killed_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = []

    class Kept(Page):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            pages.append(self)

    monkeypatch.setattr("exporter.runtimes.browser_worker.Page", Kept)
    job = task(save_rolled(tmp_path / "model.onnx"), warm_first=False)
    with BrowserWorker(job, installed("chromium")) as worker:
        process, profile = pages[0]._process, pages[0]._profile
        assert process is not None
        assert len(_in_group(process.pid)) > 1
        assert profile.is_dir()
        os.killpg(process.pid, signal.SIGKILL)
        with pytest.raises(BenchmarkError, match=r"the page in chromium ended"):
            worker.run()
    assert _in_group(process.pid) == []
    assert not profile.exists()
    worker.close()


def test_a_browser_that_ends_at_once_or_never_speaks_is_one_line(tmp_path: Path) -> None:
    before = _children()  # such as the servers of other tests
    program = tmp_path / "browser"
    browser = Browser("chromium", program, "1.0")
    job = task(save_rolled(tmp_path / "model.onnx"), timeout_s=1.0)
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(BenchmarkError, match="chromium ended with exit code 3 before it opened"):
        BrowserWorker(job, browser)
    program.write_text("#!/bin/sh\nsleep 60\n")
    with pytest.raises(BenchmarkError, match=r"\(start\): not done after 1 s; it was ended"):
        BrowserWorker(job, browser)
    with pytest.raises(BenchmarkError, match="chromium ended with exit code 127"):
        BrowserWorker(job, Browser("chromium", tmp_path / "gone", "1.0"))
    assert _children() == before


def test_a_browser_does_not_outlive_the_program_that_started_it(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text("#!/bin/sh\nsleep 60 &\nsleep 60\n")
    browser.chmod(0o755)
    script = f"""
import os, pathlib
from exporter.runtimes.browsers import Browser
from exporter.runtimes.page import Page
page = Page(Browser("chromium", pathlib.Path({str(browser)!r}), "1.0"), {{}})
print(page._process.pid, page._profile, flush=True)
os._exit(0)  # dies, and closes nothing
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    group, profile = done.stdout.split()
    end = time.monotonic() + 10
    while _in_group(int(group)) and time.monotonic() < end:
        time.sleep(0.05)
    assert _in_group(int(group)) == []
    Path(profile).rmdir()
