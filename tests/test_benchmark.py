from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from exporter import benchmark
from exporter.artifact import Artifact
from exporter.benchmark import BenchmarkOptions, measure_artifact, paired_ratio
from exporter.errors import BenchmarkError
from exporter.inputs import InputSpec, ModelInputs
from exporter.records import Measurement
from exporter.runtimes.cpu_worker import CpuWorker
from tests.samples import ids_inputs

SHORT = BenchmarkOptions(min_runs=3, min_seconds=0.0, sequence=4)


class FakeWorker:
    """Counts runs instead of making them; the log is shared by all."""

    log: list[tuple[str, str]]
    made: list[dict[str, Any]]

    def __init__(self, path: Path, inputs: ModelInputs, sizes: dict[str, int], threads: int):
        self.name = path.parent.name
        self.made.append({"name": self.name, "sizes": sizes, "threads": threads})
        self.load_ms, self.first_ms, self.added_rss_bytes = 5.0, 2.0, 1000
        self.runs = 0

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.log.append((self.name, "closed"))

    def run(self) -> float:
        self.runs += 1
        self.log.append((self.name, "run"))
        return float(self.runs * (1 if self.name == "onnx" else 10))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeWorker]]:
    FakeWorker.log, FakeWorker.made = [], []
    monkeypatch.setattr(benchmark, "CpuWorker", FakeWorker)
    yield FakeWorker


@pytest.fixture
def two_models(tmp_path: Path) -> Callable[..., Artifact]:
    def make(inputs: ModelInputs) -> Artifact:
        models = []
        for variant, path in (("fp32", "onnx/model.onnx"), ("baseline", "baseline/model.onnx")):
            (tmp_path / path).parent.mkdir()
            (tmp_path / path).write_bytes(b"x" * len(variant))
            models.append({"variant": variant, "path": path})
        return Artifact(tmp_path, {"inputs": inputs.to_dict(), "models": models})

    return make


def test_models_take_turns_run_by_run(
    fake: type[FakeWorker], two_models: Callable[..., Artifact]
) -> None:
    measured = measure_artifact(two_models(ids_inputs(9, 64)), SHORT)
    warm = benchmark.WARM_UP_RUNS
    steady = [name for name, what in fake.log if what == "run"][2 * warm :]
    assert steady == ["onnx", "baseline"] * 3
    assert [name for name, what in fake.log if what == "closed"] == ["baseline", "onnx"]
    assert [m.variant for m in measured] == ["fp32", "baseline"]
    assert measured[0].samples_ms == tuple(float(warm + i) for i in (1, 2, 3))
    assert measured[1].samples_ms == tuple(10.0 * (warm + i) for i in (1, 2, 3))
    assert (measured[0].file, measured[0].file_bytes) == ("onnx/model.onnx", 4)
    assert (measured[0].load_ms, measured[0].first_ms) == (5.0, 2.0)


def test_sizes_and_threads_reach_every_worker_and_the_records(
    fake: type[FakeWorker], two_models: Callable[..., Artifact]
) -> None:
    options = BenchmarkOptions(threads=2, batch=3, sequence=17, min_runs=2, min_seconds=0.0)
    measured = measure_artifact(two_models(ids_inputs(9, 64)), options)
    sizes = {"batch": 3, "sequence": 17}
    assert [(made["sizes"], made["threads"]) for made in fake.made] == [(sizes, 2)] * 2
    assert {(m.batch, m.sequence, m.threads) for m in measured} == {(3, 17, 2)}


@pytest.mark.parametrize(("limit", "sequence"), [(64, 64), (512, 128)])
def test_the_default_sequence_is_the_maximum_but_at_most_128(
    fake: type[FakeWorker], two_models: Callable[..., Artifact], limit: int, sequence: int
) -> None:
    options = BenchmarkOptions(min_runs=2, min_seconds=0.0)
    measured = measure_artifact(two_models(ids_inputs(9, limit)), options)
    assert fake.made[0]["sizes"] == {"batch": 1, "sequence": sequence}
    assert measured[0].sequence == sequence


def test_a_sequence_beyond_the_maximum_is_refused_before_anything_is_loaded(
    fake: type[FakeWorker], two_models: Callable[..., Artifact]
) -> None:
    with pytest.raises(BenchmarkError, match="sequence 65 is beyond the model's maximum 64"):
        measure_artifact(two_models(ids_inputs(9, 64)), BenchmarkOptions(sequence=65))
    assert fake.made == []


def test_a_model_of_fixed_sizes_is_measured_and_recorded_at_these(
    fake: type[FakeWorker], two_models: Callable[..., Artifact]
) -> None:
    fixed = two_models(ModelInputs((InputSpec("input_ids", "int64", (2, 16), "ids", 9),), {}))
    measured = measure_artifact(fixed, BenchmarkOptions(min_runs=2, min_seconds=0.0))
    assert (measured[0].batch, measured[0].sequence) == (2, 16)
    with pytest.raises(BenchmarkError, match="sequence 17 is not 16, which the model fixes"):
        measure_artifact(fixed, BenchmarkOptions(sequence=17))
    with pytest.raises(BenchmarkError, match="batch 3 is not 2, which the model fixes"):
        measure_artifact(fixed, BenchmarkOptions(batch=3))


def test_a_minimum_time_adds_runs(
    fake: type[FakeWorker],
    two_models: Callable[..., Artifact],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(benchmark.time, "monotonic", lambda: float(next(ticks)))
    options = BenchmarkOptions(min_runs=2, min_seconds=7.0)
    measured = measure_artifact(two_models(ids_inputs(9, 64)), options)
    assert {len(m.samples_ms) for m in measured} == {2 + 6}


def test_the_ratio_is_the_median_over_pairs_not_the_ratio_of_medians(
    fake: type[FakeWorker], two_models: Callable[..., Artifact]
) -> None:
    def with_samples(*samples: float) -> Measurement:
        return Measurement("a", "f", 1, 1, 1, 1, 1.0, 1.0, samples, None, device)

    device = measure_artifact(two_models(ids_inputs(9, 64)), SHORT)[0].device
    candidate, baseline = with_samples(1.0, 2.0, 9.0), with_samples(2.0, 1.0, 10.0)
    assert paired_ratio(candidate, baseline) == 0.9
    assert candidate.median_ms / baseline.median_ms == 1.0
    with pytest.raises(ValueError, match="longer"):
        paired_ratio(with_samples(1.0), baseline)


# Real processes


@pytest.fixture
def worker(artifact: Artifact) -> Iterator[CpuWorker]:
    sizes = {"batch": 2, "sequence": 5}
    with CpuWorker(artifact.models()["fp32"], artifact.inputs, sizes, 1) as worker:
        yield worker


def test_a_worker_measures_its_load_its_first_run_and_each_further_one(worker: CpuWorker) -> None:
    assert worker.load_ms > 0
    assert worker.first_ms > 0
    assert worker.run() > 0
    assert worker.added_rss_bytes is None or worker.added_rss_bytes > 1_000_000


def test_a_worker_that_dies_is_an_error_that_names_the_file(worker: CpuWorker) -> None:
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait()
    with pytest.raises(BenchmarkError, match=r"measuring .*model\.onnx ended with exit code -9"):
        worker.run()
    worker.close()
    assert worker._process.returncode == -9


def test_a_file_that_does_not_load_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(BenchmarkError, match=r"cannot load .*broken\.onnx"):
        CpuWorker(path, ids_inputs(9, 64), {"batch": 1, "sequence": 1}, 1)


def test_a_batch_beyond_the_models_limit_is_a_clear_error(artifact: Artifact) -> None:
    limited = ModelInputs(artifact.inputs.specs, {"sequence": 24, "batch": 1})
    with pytest.raises(BenchmarkError, match="has batch 2, beyond the model's maximum 1"):
        CpuWorker(artifact.models()["fp32"], limited, {"batch": 2, "sequence": 1}, 1)


def test_a_workers_modules_are_ours_wherever_it_is_started(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("exporter.py", "numpy.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    path = artifact.models()["fp32"].absolute()
    with CpuWorker(path, artifact.inputs, {"batch": 1, "sequence": 2}, 1) as worker:
        assert worker.run() > 0


def test_measuring_an_artifact_gives_a_record_per_model(artifact: Artifact) -> None:
    measured = measure_artifact(artifact, SHORT)
    assert [m.variant for m in measured] == list(artifact.models())
    for record in measured:
        assert len(record.samples_ms) >= 3
        assert min(record.samples_ms) > 0
        assert record.sequence == 4
        assert record.file_bytes == (artifact.folder / record.file).stat().st_size
        assert Measurement.from_dict(json.loads(record.to_json())) == record
