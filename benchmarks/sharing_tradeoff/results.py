"""The files of results as figures: one quality per variant, and its spread over the seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sharing_tradeoff.settings import Study
from exporter.json_files import read_json

__all__ = ["Cell", "Estimate", "Figure", "Results", "apart", "read_results", "read_times"]

_T_95 = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Of Student's distribution, by degrees of freedom."""


@dataclass(frozen=True)
class Cell:
    """One variant: which runs, and what was done to their models afterwards."""

    task: str
    scheme: str
    distilled: bool = False
    pruned: float = 0.0
    precision: str = "fp32"


@dataclass(frozen=True)
class Estimate:
    """A mean, and half of its 95 % interval."""

    mean: float
    half_width: float


@dataclass(frozen=True)
class Figure:
    """A figure of each seed, in the seeds' order."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return float(np.mean(self.values))

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval of the mean (Student's t); infinite for one seed."""
        count = len(self.values)
        if count < 2:
            return math.inf
        spread = float(np.std(self.values, ddof=1))
        return _quantile(count - 1) * spread / math.sqrt(count)

    def __sub__(self, other: Figure) -> Figure:
        """Subtract seed by seed: what both share by a seed's order falls out."""
        return Figure(tuple(a - b for a, b in zip(self.values, other.values, strict=True)))

    def times(self, factor: float) -> Figure:
        """Multiply each."""
        return Figure(tuple(factor * value for value in self.values))

    def relative_to(self, other: Figure) -> Figure:
        """Divide seed by seed."""
        return Figure(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))


def apart(first: Figure, second: Figure) -> Estimate:
    """Subtract the means of figures whose seeds have nothing in common (Welch's interval)."""
    difference = first.mean - second.mean
    counts = [len(figure.values) for figure in (first, second)]
    if min(counts) < 2:
        return Estimate(difference, math.inf)
    pairs = zip((first, second), counts, strict=True)
    squares = [float(np.var(figure.values, ddof=1)) / count for figure, count in pairs]
    if not sum(squares):
        return Estimate(difference, 0.0)
    parts = zip(squares, counts, strict=True)
    freedom = sum(squares) ** 2 / sum(square**2 / (count - 1) for square, count in parts)
    return Estimate(difference, _quantile(int(freedom)) * math.sqrt(sum(squares)))


def _quantile(freedom: int) -> float:
    return _T_95[min(freedom, len(_T_95) - 1)]


@dataclass(frozen=True)
class Results:
    """All runs that are there.

    Args:
        rows: one per variant of a run, with ``run``, ``parameters`` and the variant's own.
        tasks: what they should be of.
        ways: whether they should be distilled, not, or there should be both.
    """

    rows: Sequence[dict[str, Any]]
    tasks: Sequence[str] = ("classify", "generate")
    ways: Sequence[bool] = (False, True)

    def seeds(self) -> list[int]:
        """Seeds of which every run is there: all tasks, each with every scheme, each way."""
        runs: dict[int, set[tuple[Any, ...]]] = {}
        schemes = {"none", "all"}
        for row in self.rows:
            run = row["run"]
            schemes.add(run["scheme"])
            key = (run["task"], run["scheme"], run["distilled"])
            runs.setdefault(run["seed"], set()).add(key)
        whole = set(itertools.product(self.tasks, schemes, self.ways))
        return sorted(seed for seed, found in runs.items() if found >= whole)

    def schemes(self, task: str) -> list[str]:
        """Schemes of a task, that with most parameters first."""
        sizes = {
            row["run"]["scheme"]: row["parameters"]["unique"]
            for row in self.rows
            if row["run"]["task"] == task
        }
        return sorted(sizes, key=lambda scheme: (-sizes[scheme], scheme))

    def values(self, name: str) -> list[Any]:
        """All values a variant's property has, smallest first."""
        return sorted({row[name] for row in self.rows})

    def precisions(self) -> list[str]:
        """All precisions, in the order in which the study has them."""
        return list(dict.fromkeys(row["precision"] for row in self.rows))

    def rows_of(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the cell's rows, seed by seed.

        Raises:
            KeyError: there are none, or a seed's is missing.
        """
        found = {
            row["run"]["seed"]: row
            for row in self.rows
            if (row["run"]["task"], row["run"]["scheme"]) == (cell.task, cell.scheme)
            and row["run"]["distilled"] == cell.distilled
            and (row["pruned"], row["precision"]) == (cell.pruned, cell.precision)
        }
        return [found[seed] for seed in self.seeds()]

    def accuracy(self, cell: Cell) -> Figure:
        """Share that is right: of sentences, or of next pieces."""
        return Figure(tuple(row["correct"] / row["of"] for row in self.rows_of(cell)))

    def perplexity(self, cell: Cell) -> Figure:
        """``exp`` of the mean loss in nats of ``generate``."""
        return Figure(tuple(math.exp(row["loss"] / row["of"]) for row in self.rows_of(cell)))

    def loss(self, cell: Cell) -> Figure:
        """Mean loss in nats of ``generate``."""
        return Figure(tuple(row["loss"] / row["of"] for row in self.rows_of(cell)))


def read_results(folder: Path, study: Study) -> Results:
    """Read all files of results in ``folder``, which should be those of ``study``.

    Raises:
        CheckpointError: one cannot be read.
        ValueError: there are none, or one is damaged, or of other settings.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise ValueError(f"{folder} holds no results")
    rows = [row for path in paths for row in _read_rows(path, study)]
    return Results(rows, study.tasks, study.distilled)


def _read_rows(path: Path, study: Study) -> list[dict[str, Any]]:
    content = read_json(path)
    try:
        run = content["run"]
        ours = content["study"] == study.digest(run["task"])
        rows = [
            {"run": run, "parameters": content["parameters"], **variant}
            for variant in content["variants"]
        ]
        found = {(row["pruned"], row["precision"]) for row in rows if row["correct"] <= row["of"]}
    except (LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged: remove it, and run it again") from error
    if not ours:
        raise ValueError(f"{path} is of other settings: remove it, or run it again")
    if found != set(itertools.product(study.prunings, study.precisions)):
        raise ValueError(f"{path} lacks variants: remove it, and run it again")
    return rows


def read_times(path: Path, study: Study) -> dict[str, Any]:
    """Read the file of times, which should be those of ``study``; none if it is not there.

    Returns:
        By task, scheme and precision ``[median ms, ratio to none, low, high]``.

    Raises:
        CheckpointError: it cannot be read.
        ValueError: it is damaged, or of other settings.
    """
    if not path.is_file():
        return {}
    content: dict[Any, Any] = read_json(path)
    try:
        ours = all(own["study"] == study.digest(task) for task, own in content.items())
        times = {task: own["schemes"] for task, own in content.items()}
    except (LookupError, TypeError) as error:
        raise ValueError(f"{path} is damaged: remove it, and measure again") from error
    if not ours:
        raise ValueError(f"{path} is of other settings: remove it, or measure again")
    return times
