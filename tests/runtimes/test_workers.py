"""What holds in every runtime: the CPU, Node, and two browsers."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from exporter.errors import BenchmarkError, ExportError
from exporter.inputs import Feeds
from exporter.reference import REFERENCE_NAME, ReferenceCase, reference_document
from exporter.runtimes.cpu import CpuSession
from exporter.runtimes.cpu_worker import CpuWorker
from exporter.runtimes.device import usable_cores
from exporter.runtimes.worker import Worker
from tests.runtimes.conftest import EVERYWHERE, PROCESSES, WITHOUT_FIREFOX, Open, task
from tests.runtimes.models import INPUTS, LIMIT, SIZES, save_integer, save_rolled


def _logits(path: Path, feeds: Feeds | None = None) -> np.ndarray:
    return CpuSession(path, threads=1).run(feeds or INPUTS.draw(SIZES))["logits"]


def _save_reference(model: Path, scale: float = 1.0) -> Path:
    """Write the model's own outputs, times ``scale``, as its reference vectors."""
    cases = []
    for number, sizes in enumerate(({"batch": 1, "sequence": 3}, {"batch": 2, "sequence": LIMIT})):
        feeds = INPUTS.draw(sizes, seed=number)
        logits = np.float32(scale) * _logits(model, feeds)
        cases.append(ReferenceCase(f"case {number}", feeds, {"logits": logits}))
    path = model.parent / REFERENCE_NAME
    path.write_text(json.dumps(reference_document(cases)))
    return path


def _check_facts(worker: Worker, place: str) -> None:
    times, memory, device = worker.opened.times, worker.opened.memory, worker.opened.device
    assert None not in (times.process_start, times.runtime_start, times.session_create)
    assert times.cold_first is not None and times.cold_first > 0
    assert times.warm_first is not None and times.warm_first > 0
    if place == "cpu":
        assert (device.runtime, memory.wasm_heap) == ("onnxruntime", None)
    else:
        assert (device.runtime, device.runtime_version) == ("onnxruntime-web", "1.30.0")
        # A heap is in pages, and the runtime starts with 16 MiB.
        assert memory.wasm_heap is not None and memory.wasm_heap >= 16 * 2**20
        assert memory.wasm_heap % 65536 == 0
    if place in ("cpu", "node"):
        assert memory.added_rss is not None and 0 < memory.added_rss < 200 * 2**20
        assert memory.peak_rss is not None and memory.peak_rss > memory.added_rss
        assert device.user_agent is None
    else:
        assert (memory.added_rss, memory.peak_rss) == (None, None)
        assert device.engine.lower().startswith(place)
        assert device.cross_origin_isolated is True
        assert device.user_agent is not None and "Mozilla" in device.user_agent
    assert worker.was_hidden is False
    assert device.usable_cores == usable_cores()
    assert device.timer_resolution_ms is not None and 0 < device.timer_resolution_ms < 1.1


@EVERYWHERE
def test_a_rolled_model_is_opened_checked_run_and_computes_what_the_cpu_computes(
    tmp_path: Path, place: str, open_in: Open
) -> None:
    path = save_rolled(tmp_path / "model.onnx")
    reference = _save_reference(path)
    with open_in(task(path, threads=2, reference=reference, tolerance=1e-5)) as worker:
        assert worker.opened.threads_used == min(2, usable_cores())
        assert worker.opened.check.status == "passed"
        assert worker.opened.check.tolerance == 1e-5
        assert (worker.opened.check.relative_error or 0.0) < 1e-5
        _check_facts(worker, place)
        assert 0 < worker.run() < 10_000
        outputs = worker.outputs()
        assert list(outputs) == ["logits"]
        assert outputs["logits"].dtype == np.float32
        np.testing.assert_allclose(outputs["logits"], _logits(path), atol=1e-5)
        # The model itself was not changed by running it on something else.
        other = INPUTS.draw({"batch": 1, "sequence": 5}, seed=9, lengths=[3])
        np.testing.assert_allclose(worker.outputs(other)["logits"], _logits(path, other), atol=1e-5)
        np.testing.assert_allclose(worker.outputs()["logits"], _logits(path), atol=1e-5)
        heap = worker.memory().wasm_heap
        for _ in range(5):
            worker.run()
        assert worker.memory().wasm_heap == heap


@PROCESSES
def test_wrong_outputs_fail_the_check_and_the_model_is_measured_all_the_same(
    tmp_path: Path, open_in: Open
) -> None:
    path = save_rolled(tmp_path / "model.onnx")
    reference = _save_reference(path, scale=1.25)
    job = task(path, reference=reference, tolerance=0.1, warm_first=False)
    with open_in(job) as worker:
        check = worker.opened.check
        assert (check.status, check.tolerance) == ("failed", 0.1)
        # The reference is 1.25 of what the model gives: it is off by 0.25 of 1.25.
        assert check.relative_error == pytest.approx(0.2, rel=1e-4)
        assert worker.opened.times.warm_first is None
        assert worker.run() > 0


@WITHOUT_FIREFOX
def test_an_integer_product_gives_the_same(tmp_path: Path, open_in: Open) -> None:
    integer = save_integer(tmp_path / "integer.onnx")
    with open_in(task(integer)) as worker:
        np.testing.assert_allclose(worker.outputs()["logits"], _logits(integer), atol=1e-5)
        assert worker.opened.check.status == "not run"
        assert worker.opened.threads_used == 1


@WITHOUT_FIREFOX
def test_external_data_beside_the_model_is_found(tmp_path: Path, open_in: Open) -> None:
    outside = save_rolled(tmp_path / "model.onnx", external=True)
    assert (tmp_path / "model.onnx_data").stat().st_size > 1000
    with open_in(task(outside)) as worker:
        np.testing.assert_allclose(worker.outputs()["logits"], _logits(outside), atol=1e-5)


@PROCESSES
def test_a_file_cut_short_is_one_line_that_names_it(tmp_path: Path, open_in: Open) -> None:
    path = save_rolled(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BenchmarkError) as caught:
        open_in(task(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@WITHOUT_FIREFOX
def test_a_missing_file_is_one_line_that_names_it(tmp_path: Path, open_in: Open) -> None:
    with pytest.raises(BenchmarkError, match=r"gone\.onnx"):
        open_in(task(tmp_path / "gone.onnx"))


@PROCESSES
def test_sizes_beyond_the_model_are_refused_before_anything_starts(
    tmp_path: Path, open_in: Open
) -> None:
    sizes = {"batch": 1, "sequence": LIMIT + 1}
    with pytest.raises(ExportError, match=f"sequence {LIMIT + 1}, beyond the model's maximum"):
        open_in(task(save_rolled(tmp_path / "model.onnx"), sizes=sizes))


@PROCESSES
def test_a_wrong_input_is_an_error_and_the_worker_goes_on(tmp_path: Path, open_in: Open) -> None:
    path = save_rolled(tmp_path / "model.onnx")
    with open_in(task(path, warm_first=False)) as worker:
        feeds = INPUTS.draw(SIZES)
        feeds["input_ids"] = feeds["input_ids"] + 1000  # beyond the table
        with pytest.raises(BenchmarkError, match=r"model\.onnx \(compute\)"):
            worker.outputs(feeds)
        np.testing.assert_allclose(worker.outputs()["logits"], _logits(path), atol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system lets a process choose cores")
def test_processes_that_take_turns_on_the_cpu_use_the_same_cores(tmp_path: Path) -> None:
    job = task(save_rolled(tmp_path / "model.onnx"), warm_first=False)
    with CpuWorker(job), CpuWorker(job):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        processes = [pid for pid in children if "cpu_process" in _command_of(pid)]
        used = [os.sched_getaffinity(int(pid)) for pid in processes]
    assert used == [{max(os.sched_getaffinity(0))}] * 2


def _command_of(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
