"""Measure the models of an artifact against each other on this machine's CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from exporter.accounting import file_bytes
from exporter.artifact import Artifact
from exporter.errors import BenchmarkError
from exporter.inputs import ModelInputs
from exporter.records import Measurement, describe_device
from exporter.runtimes.cpu_worker import CpuWorker

__all__ = ["BenchmarkOptions", "measure_artifact", "paired_ratio"]

WARM_UP_RUNS = 5
Progress = Callable[[str], None]


@dataclass(frozen=True)
class BenchmarkOptions:
    """Size and length of a measurement.

    Args:
        threads: compute threads of the runtime.
        batch: rows per run.
        sequence: tokens per row; ``None`` takes the model's maximum, at most 128.
        min_runs: steady runs of each model, at least.
        min_seconds: and for at least so long, over all models together.
    """

    threads: int = 1
    batch: int = 1
    sequence: int | None = None
    min_runs: int = 20
    min_seconds: float = 3.0


def measure_artifact(
    artifact: Artifact,
    options: BenchmarkOptions | None = None,
    progress: Progress = lambda step: None,
) -> list[Measurement]:
    """Measure every model of ``artifact``, interleaved, each in a process of its own.

    The models take turns run by run, so that drift of the machine's speed meets all alike.

    Returns:
        One record per model, in the manifest's order; sample *i* of one was taken next to
        sample *i* of the others.

    Raises:
        BenchmarkError: the sizes do not fit the model, or a process died.
    """
    options = options or BenchmarkOptions()
    inputs = artifact.inputs
    sizes, batch, sequence = _sizes(inputs, options)
    models = artifact.models()
    device = describe_device("onnxruntime", "onnxruntime")
    with ExitStack() as stack:
        workers = {}
        for variant, path in models.items():
            progress(f"loading {variant}")
            worker = CpuWorker(path, inputs, sizes, options.threads)
            workers[variant] = stack.enter_context(worker)
        progress("warming up")
        for worker in workers.values():
            for _ in range(WARM_UP_RUNS):
                worker.run()
        progress("measuring")
        samples = _interleave(workers, options)
    return [
        Measurement(
            variant=variant,
            file=path.relative_to(artifact.folder).as_posix(),
            file_bytes=file_bytes(path),
            threads=options.threads,
            batch=batch,
            sequence=sequence,
            load_ms=workers[variant].load_ms,
            first_ms=workers[variant].first_ms,
            samples_ms=tuple(samples[variant]),
            added_rss_bytes=workers[variant].added_rss_bytes,
            device=device,
        )
        for variant, path in models.items()
    ]


def paired_ratio(candidate: Measurement, baseline: Measurement) -> float:
    """Median over the pairs of interleaved samples of ``candidate / baseline`` time."""
    pairs = zip(candidate.samples_ms, baseline.samples_ms, strict=True)
    return float(np.median([a / b for a, b in pairs]))


def _sizes(inputs: ModelInputs, options: BenchmarkOptions) -> tuple[dict[str, int], int, int]:
    """Choose the size of each symbolic dimension; the batch and sequence they come to.

    A size the model fixes is what is measured, and another cannot be asked for.
    """
    lengths = [symbol for symbol in inputs.symbols if symbol != "batch"]
    longest = max((inputs.limit(symbol) for symbol in lengths), default=1)
    sequence = options.sequence or min(longest, 128)
    if sequence > longest and any(symbol in inputs.limits for symbol in lengths):
        raise BenchmarkError(f"sequence {sequence} is beyond the model's maximum {longest}")
    sizes = {s: options.batch if s == "batch" else sequence for s in inputs.symbols}
    shape = next((spec.shape for spec in inputs.specs), ())
    fixed = [size if isinstance(size, int) else None for size in (*shape, None, None)[:2]]
    if fixed[1] is not None and options.sequence not in (None, fixed[1]):
        raise BenchmarkError(f"sequence {sequence} is not {fixed[1]}, which the model fixes")
    if fixed[0] is not None and options.batch not in (1, fixed[0]):
        raise BenchmarkError(f"batch {options.batch} is not {fixed[0]}, which the model fixes")
    return sizes, fixed[0] or options.batch, fixed[1] or sequence


def _interleave(workers: dict[str, CpuWorker], options: BenchmarkOptions) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {variant: [] for variant in workers}
    end = time.monotonic() + options.min_seconds
    runs = 0
    while runs < options.min_runs or time.monotonic() < end:
        for variant, worker in workers.items():
            samples[variant].append(worker.run())
        runs += 1
    return samples
