from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnxruntime
import pytest

from exporter import packages
from exporter.benchmark import InstalledRuntimes, launcher
from exporter.errors import BenchmarkError
from exporter.packages import PackageError
from exporter.runtimes.browsers import Browser
from exporter.runtimes.worker import Task
from tests.benchmark.fakes import arm, subject

CPU = arm().case
NODE = arm(runtime="node").case
CHROMIUM = arm(runtime="browser", browser="chromium").case
FIREFOX = arm(runtime="browser", browser="firefox").case


@pytest.fixture(autouse=True)
def one_browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = [Browser("chromium", Path("/usr/bin/chromium"), "140.0.1")]
    monkeypatch.setattr(launcher, "find_browsers", lambda: found)
    monkeypatch.setattr(packages, "runtime_files", lambda: Path("/nowhere"))
    launcher._found_browsers.cache_clear()
    yield
    launcher._found_browsers.cache_clear()


def test_what_is_here_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_node", lambda: Path("/usr/bin/node"))
    runtimes = InstalledRuntimes()
    assert [runtimes.missing(case) for case in (CPU, NODE, CHROMIUM)] == [None, None, None]
    assert runtimes.browsers() == ["chromium"]


def test_what_is_not_here_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_node", lambda: None)
    runtimes = InstalledRuntimes()
    assert "Node 20 or later is not installed" in (runtimes.missing(NODE) or "")
    assert runtimes.missing(FIREFOX) == "the browser firefox is not installed"
    with pytest.raises(BenchmarkError, match="the browser firefox is not installed"):
        runtimes.open(FIREFOX, Task(subject().path, subject().inputs, {}))
    monkeypatch.setattr(launcher, "find_spec", lambda name: None)
    assert "needs aiohttp" in (runtimes.missing(CHROMIUM) or "")


def test_a_runtime_that_cannot_be_fetched_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Path:
        raise PackageError("cannot fetch onnxruntime-web through npm: no network")

    monkeypatch.setattr(packages, "runtime_files", refuse)
    runtimes = InstalledRuntimes()
    assert "cannot fetch onnxruntime-web" in (runtimes.missing(CHROMIUM) or "")
    assert runtimes.missing(CPU) is None


def test_the_device_is_described_without_starting_the_runtime() -> None:
    runtimes = InstalledRuntimes()
    cpu = runtimes.device(CPU)
    assert (cpu.runtime, cpu.runtime_version) == ("onnxruntime", onnxruntime.__version__)
    assert runtimes.device(NODE).runtime == "onnxruntime-web"
    assert runtimes.device(CHROMIUM).engine == "Chromium 140.0.1"
    assert runtimes.device(FIREFOX).engine == "Firefox"
    assert cpu.cpu == runtimes.device(NODE).cpu
