"""How far a measurement is, and how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.plan import Run

__all__ = ["Forecast", "Step"]

_OPENING_S = {"cpu": 1.0, "node": 1.5, "browser": 4.0}
_BYTES_PER_S = 100_000_000
_GUESSED_RUN_S = 0.02


@dataclass(frozen=True)
class Step:
    """What is being done.

    Args:
        text: in a few words.
        done: share of the whole, 0 to 1.
        remaining_s: seconds that the rest is expected to take.
    """

    text: str
    done: float
    remaining_s: float


@dataclass
class Forecast:
    """Expected time of the runs: guessed from the options, corrected by what runs took.

    Args:
        runs: all of them, in order.
        options: sessions, runs, seconds.
        tell: gets each step.
        clock: seconds.
    """

    runs: Sequence[Run]
    options: BenchmarkOptions
    tell: Callable[[Step], None] = lambda step: None
    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)
    _run_started: float = field(init=False, default=0.0)
    _current: int = field(init=False, default=0)
    _share: float = field(init=False, default=0.0)
    _factors: dict[str, list[float]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._started = self._run_started = self.clock()

    def begin(self, index: int) -> None:
        """Run ``index`` begins."""
        self._current, self._share, self._run_started = index, 0.0, self.clock()

    def end(self) -> None:
        """The run that began has ended."""
        run = self.runs[self._current]
        factor = (self.clock() - self._run_started) / self._guess(run)
        self._factors.setdefault(run.arms[0].case.runtime, []).append(factor)
        self._current += 1
        self._share, self._run_started = 0.0, self.clock()

    def step(self, text: str, share: float | None = None) -> None:
        """Say what is being done; ``share`` of the run, 0 to 1, is behind."""
        if share is not None:
            self._share = share
        remaining = self.remaining_s()
        elapsed = self.clock() - self._started
        self.tell(Step(text, elapsed / max(elapsed + remaining, 1e-9), remaining))

    def remaining_s(self) -> float:
        """Seconds that the rest is expected to take."""
        if self._current >= len(self.runs):
            return 0.0
        spent = self.clock() - self._run_started
        run = self.runs[self._current]
        # The time spent tells more than the guess, the more so the more of the run is behind.
        guess = max(self._expected(run) - spent, 0.0)
        seen = spent / self._share * (1 - self._share) if self._share > 0 else guess
        current = self._share * seen + (1 - self._share) * guess
        return current + sum(self._expected(later) for later in self.runs[self._current + 1 :])

    def _expected(self, run: Run) -> float:
        runtime = run.arms[0].case.runtime
        factors = self._factors.get(runtime) or [f for fs in self._factors.values() for f in fs]
        return self._guess(run) * (sum(factors) / len(factors) if factors else 1.0)

    def _guess(self, run: Run) -> float:
        options = self.options
        opening = sum(
            _OPENING_S[arm.case.runtime] + arm.subject.model.file_bytes / _BYTES_PER_S
            for arm in run.arms
        )
        rounds = options.min_runs + options.warm_up * options.sessions
        running = max(options.min_seconds, rounds * len(run.arms) * _GUESSED_RUN_S)
        return options.sessions * opening + running
