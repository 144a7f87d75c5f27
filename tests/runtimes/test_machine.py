from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.errors import BenchmarkError
from exporter.runtimes import browsers, device, web_folder
from exporter.runtimes.browsers import Browser, find_browsers, start_command
from exporter.runtimes.device import describe_device, usable_cores
from exporter.runtimes.worker import Task, external_data
from tests.runtimes.conftest import task


def _programs(folder: Path, scripts: dict[str, str]) -> None:
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)


def test_browsers_that_start_are_found_one_of_each_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _programs(
        tmp_path,
        {
            "chromium": "exit 1",  # a stub that only tells how to install it
            "chromium-browser": "echo Chromium 150.0.7 built on X",
            "firefox": "echo Mozilla Firefox 140.12.0esr",
            "firefox-esr": "echo Mozilla Firefox 1.0",
        },
    )
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setattr(browsers.shutil, "which", _which(tmp_path))
    assert find_browsers() == [
        Browser("chromium", tmp_path / "chromium-browser", "150.0.7"),
        Browser("firefox", tmp_path / "firefox", "140.12.0esr"),
    ]


def _which(folder: Path):  # type: ignore[no-untyped-def]
    return lambda name: str(folder / name) if (folder / name).is_file() else None


def test_only_root_gives_up_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chromium = Browser("chromium", Path("/bin/chromium"), "1.0")
    monkeypatch.setattr(browsers.os, "geteuid", lambda: 1000)
    command = start_command(chromium, tmp_path, "http://x/")
    assert "--no-sandbox" not in command
    assert f"--user-data-dir={tmp_path}" in command
    assert (command[0], command[-1]) == ("/bin/chromium", "http://x/")
    monkeypatch.setattr(browsers.os, "geteuid", lambda: 0)
    assert "--no-sandbox" in start_command(chromium, tmp_path, "http://x/")


def test_firefox_gets_a_profile_that_asks_nobody(tmp_path: Path) -> None:
    firefox = Browser("firefox", Path("/bin/firefox"), "1.0")
    command = start_command(firefox, tmp_path, "http://x/")
    assert command[-3:] == ["--profile", str(tmp_path), "http://x/"]
    assert 'user_pref("toolkit.telemetry.enabled", false);' in (tmp_path / "user.js").read_text()


def test_threads_are_at_most_the_cores_a_process_may_run_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device.os, "sched_getaffinity", lambda _: {5, 7, 9}, raising=False)
    assert usable_cores() == 3
    assert task(Path("m"), threads=8).usable_threads == 3
    assert task(Path("m"), threads=2).usable_threads == 2


def test_the_device_is_described_with_what_kernels_choose_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "processor : 0\nmodel name : Fast CPU 3\nflags : fpu avx avx2 sse avx_vnni\n\nprocessor : 1"
    )
    monkeypatch.setattr(device.Path, "read_text", lambda *_, **__: words)
    device._cpuinfo.cache_clear()
    device._cpu_name.cache_clear()
    try:
        found = describe_device(engine="Node 20.1", runtime="onnxruntime-web", runtime_version="1")
    finally:
        monkeypatch.undo()
        device._cpuinfo.cache_clear()
        device._cpu_name.cache_clear()
    assert (found.cpu, found.label) == ("Fast CPU 3", "Fast CPU 3")
    assert found.cpu_flags == ("avx", "avx2", "avx_vnni")
    assert (found.engine, found.runtime, found.runtime_version) == (
        "Node 20.1",
        "onnxruntime-web",
        "1",
    )
    assert found.cores == os.cpu_count()
    assert found.memory_bytes is not None and found.memory_bytes > 2**28


def test_data_files_of_a_model_are_those_named_after_it(tmp_path: Path) -> None:
    names = ("m.onnx", "m.onnx_data", "m.onnx_data_1", "m.onnx.data", "n.onnx_data", "m_data")
    for name in names:
        (tmp_path / name).touch()
    found = [file.name for file in external_data(tmp_path / "m.onnx")]
    assert found == ["m.onnx.data", "m.onnx_data", "m.onnx_data_1"]


def test_the_web_files_of_this_checkout_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = web_folder.web_folder()
    for name in ("core.js", "worker.js", "node.mjs", "driven.html"):
        assert (folder / "measure" / name).is_file()
    monkeypatch.setattr(web_folder, "__file__", "/somewhere/exporter/runtimes/web_folder.py")
    with pytest.raises(BenchmarkError, match="the web files are missing"):
        web_folder.web_folder()


def test_a_task_draws_the_same_arrays_each_time() -> None:
    job: Task = task(Path("m"))
    first, second = job.feeds(), job.feeds()
    assert {name: array.tolist() for name, array in first.items()} == {
        name: array.tolist() for name, array in second.items()
    }
