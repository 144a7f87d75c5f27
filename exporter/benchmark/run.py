"""One interleaved run: every case in a process of its own, taking turns run by run.

All workers of a session are alive together and run A B A B …, so that drift of the
machine's speed meets all alike, and sample *i* of one was taken next to sample *i* of the
others. A session starts fresh workers, warms them up until all are steady, and measures; a
run has several sessions, since two processes of the same file differ (see ``statistics``).

A worker that fails ends its case, not the run. An interruption keeps the sessions that are
whole, and what there is of the one that is not where that is enough to tell something.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from exporter.benchmark.launcher import Launcher
from exporter.benchmark.memory_budget import swapped_pages
from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.outcome import Outcome
from exporter.benchmark.plan import Arm, Run
from exporter.benchmark.warm_up import MAXIMUM_ROUNDS, is_stable
from exporter.errors import ExportError
from exporter.runtimes.worker import Task, Worker

__all__ = ["RunProtocol"]

Tell = Callable[[str, float], None]

_MOST_SAMPLES = 100_000
_FEWEST_KEPT = 3
_SWAPPED_PAGES = 256


@dataclass
class RunProtocol:
    """Measures one run.

    Args:
        run: its cases.
        launcher: starts workers.
        options: sessions, runs, seconds, warm-up.
        tell: gets what is being done, and the share of the run that is behind.
        clock: seconds.
        swapped: pages read back from swap space so far.

    Attributes:
        outcomes: one for each case of ``run``, complete or as far as measuring came.
    """

    run: Run
    launcher: Launcher
    options: BenchmarkOptions
    tell: Tell = lambda text, share: None
    clock: Callable[[], float] = time.monotonic
    swapped: Callable[[], int | None] = swapped_pages
    outcomes: list[Outcome] = field(init=False)

    def __post_init__(self) -> None:
        self.outcomes = [Outcome(arm) for arm in self.run.arms]

    def measure(self) -> None:
        """Fill ``outcomes``.

        Raises:
            KeyboardInterrupt: passed on, after ``outcomes`` say how far measuring came.
        """
        before = self.swapped()
        try:
            for index in range(self.options.sessions):
                if self._alive():
                    self._measure_session(index)
        except KeyboardInterrupt:
            for outcome in self._alive():
                outcome.flags.add("interrupted")
            raise
        finally:
            after = self.swapped()
            if None not in (before, after) and after - before > _SWAPPED_PAGES:  # type: ignore[operator]
                for outcome in self.outcomes:
                    outcome.flags.add("swapped")

    def _alive(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.error is None]

    def _measure_session(self, index: int) -> None:
        with ExitStack() as stack:
            seats = self._open(index, stack)
            self._warm_up(index, seats)
            self._take_turns(index, seats)
            for seat in seats:
                seat.read_memory()

    def _open(self, index: int, stack: ExitStack) -> list[_Seat]:
        seats = []
        for outcome in self._alive():
            self._say(index, 0.0, f"loading {outcome.arm.case.variant}")
            task = _task(outcome.arm, thorough=index == 0)
            try:
                worker = stack.enter_context(self.launcher.open(outcome.arm.case, task))
            except (ExportError, OSError) as error:
                outcome.fail(error)
                continue
            outcome.opened.append(worker.opened)
            seats.append(_Seat(outcome, worker))
        return seats

    def _warm_up(self, index: int, seats: Sequence[_Seat]) -> None:
        """Run all in turns until each has been steady; the steady ones are kept warm."""
        unsteady = list(seats)
        for _ in range(max(MAXIMUM_ROUNDS, self.options.warm_up)):
            self._say(index, 0.3, "warming up")
            for seat in seats:
                seat.run()
            unsteady = [
                seat
                for seat in seats
                if seat.alive and not is_stable(seat.samples_ms, self.options.warm_up)
            ]
            if not unsteady:
                break
        for seat in unsteady:
            seat.outcome.flags.add("unstable warm-up")
        for seat in seats:
            seat.samples_ms.clear()

    def _take_turns(self, index: int, seats: Sequence[_Seat]) -> None:
        options = self.options
        wanted = math.ceil(options.min_runs / options.sessions)
        seconds = options.min_seconds / options.sessions
        start = self.clock()
        rounds = 0
        try:
            while rounds < _MOST_SAMPLES // options.sessions and any(s.alive for s in seats):
                spent = self.clock() - start
                if rounds >= wanted and spent >= seconds:
                    break
                share = min(rounds / wanted, spent / seconds if seconds else 1.0)
                self._say(index, 0.4 + 0.6 * share, "measuring")
                for seat in seats:
                    seat.run()
                rounds += 1
        finally:
            # Cut short within a round, some have one sample more, which is next to nothing.
            rounds = min((len(seat.samples_ms) for seat in seats if seat.alive), default=0)
            for seat in seats:
                if not seat.alive:
                    seat.outcome.keep(seat.samples_ms)
                elif rounds >= min(_FEWEST_KEPT, wanted):
                    seat.outcome.keep(seat.samples_ms[:rounds])

    def _say(self, session: int, share: float, text: str) -> None:
        total = self.options.sessions
        part = f" ({session + 1} of {total})" if total > 1 else ""
        self.tell(f"{self.run.title}: {text}{part}", (session + share) / total)


@dataclass
class _Seat:
    """A worker, the case it measures, and its runs since the last clearing."""

    outcome: Outcome
    worker: Worker
    samples_ms: list[float] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.outcome.error is None

    def run(self) -> None:
        """Run once, unless the case has failed already."""
        self._guarded(lambda: self.samples_ms.append(self.worker.run()))

    def read_memory(self) -> None:
        """Note the memory now."""
        self._guarded(lambda: self.outcome.memories.append(self.worker.memory()))

    def _guarded(self, act: Callable[[], None]) -> None:
        if not self.alive:
            return
        try:
            act()
        except (ExportError, OSError) as error:
            self.outcome.fail(error)
            self.worker.close()  # what it holds must not burden the others


def _task(arm: Arm, *, thorough: bool) -> Task:
    """What a worker opens; the first also checks its outputs and opens the file twice."""
    subject = arm.subject
    return Task(
        path=subject.path,
        inputs=subject.inputs,
        sizes=arm.sizes,
        threads=arm.case.threads,
        reference=subject.reference if thorough else None,
        tolerance=subject.tolerance if thorough else None,
        warm_first=thorough,
    )
