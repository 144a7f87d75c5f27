"""From what a person asks for to cases, and to the runs in which they take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.subjects import Subject
from exporter.comparisons import work
from exporter.errors import BenchmarkError
from exporter.inputs import ModelInputs
from exporter.records import Case, Runtime

__all__ = ["Arm", "Run", "plan_runs", "run_sizes", "work_name"]

DEFAULT_SEQUENCE = 128


@dataclass(frozen=True)
class Arm:
    """One case of a run: which file, and the size of each symbolic dimension of random ids."""

    case: Case
    subject: Subject
    sizes: dict[str, int]


@dataclass(frozen=True)
class Run:
    """Cases that take turns: they differ in the file alone."""

    arms: tuple[Arm, ...]

    @property
    def title(self) -> str:
        """What the cases have in common, for people."""
        case = self.arms[0].case
        place = case.browser or {"cpu": "CPU", "node": "Node"}.get(case.runtime, case.runtime)
        threads = f"{case.threads} thread{'s' * (case.threads > 1)}"
        return f"{place}, {threads}, {work_name(case)}"


def work_name(case: Case) -> str:
    """Name what a run of a case is, for people: ``1×128``, ``42 texts of reviews.jsonl``."""
    if case.texts is not None:
        return f"{case.texts.rows:,} texts of {case.texts.name}"
    return f"{case.batch}×{case.sequence}"


def plan_runs(
    subjects: Sequence[Subject],
    options: BenchmarkOptions,
    browsers: Sequence[str] = (),
) -> list[Run]:
    """Return the interleaved runs, in order.

    Args:
        subjects: the files.
        options: runtimes, threads, sequences, batches.
        browsers: names to use for the runtime ``browser``.

    Raises:
        BenchmarkError: a size does not fit a model.
    """
    runs: dict[tuple[object, ...], dict[Case, Arm]] = {}
    shapes = product(options.threads, options.batches, options.sequences or (None,))
    for (runtime, browser), (threads, batch, sequence) in product(
        _places(options, browsers), list(shapes)
    ):
        for subject in subjects:
            if subject.sample is not None:
                rows, tokens = 1, subject.sample.mean_tokens
                sizes: dict[str, int] = {}
            else:
                sizes, rows, tokens = run_sizes(subject.inputs, batch, sequence)
            case = Case(
                artifact=subject.artifact,
                variant=subject.variant,
                runtime=runtime,
                threads=threads,
                batch=rows,
                sequence=tokens,
                browser=browser,
                texts=subject.sample.texts if subject.sample else None,
            )
            key = (runtime, browser, threads, rows, work(case))
            runs.setdefault(key, {})[case] = Arm(case, subject, sizes)
    return [Run(tuple(arms.values())) for arms in runs.values()]


def _places(
    options: BenchmarkOptions, browsers: Sequence[str]
) -> Iterator[tuple[Runtime, str | None]]:
    for runtime in dict.fromkeys(options.runtimes):
        if runtime == "browser":
            yield from ((runtime, browser) for browser in dict.fromkeys(browsers))
        else:
            yield runtime, None


def run_sizes(
    inputs: ModelInputs, batch: int, sequence: int | None
) -> tuple[dict[str, int], int, int]:
    """Choose the size of each symbolic dimension; the batch and sequence they come to.

    A size the model fixes is what is measured, and another cannot be asked for.

    Raises:
        BenchmarkError: such a size, or one beyond the model's maximum.
    """
    lengths = [symbol for symbol in inputs.symbols if symbol != "batch"]
    longest = max((inputs.limit(symbol) for symbol in lengths), default=1)
    tokens = sequence or min(longest, DEFAULT_SEQUENCE)
    if tokens > longest and any(symbol in inputs.limits for symbol in lengths):
        raise BenchmarkError(f"sequence {tokens} is beyond the model's maximum {longest}")
    sizes = {s: batch if s == "batch" else tokens for s in inputs.symbols}
    shape = next((spec.shape for spec in inputs.specs), ())
    fixed = [size if isinstance(size, int) else None for size in (*shape, None, None)[:2]]
    if fixed[1] is not None and sequence not in (None, fixed[1]):
        raise BenchmarkError(f"sequence {sequence} is not {fixed[1]}, which the model fixes")
    if fixed[0] is not None and batch not in (1, fixed[0]):
        raise BenchmarkError(f"batch {batch} is not {fixed[0]}, which the model fixes")
    return sizes, fixed[0] or batch, fixed[1] or tokens
