"""One interleaved run: every case in a process of its own, taking turns run by run.

All workers of a session are alive together and run A B A B …, so that drift of the
machine's speed meets all alike, and sample *i* of one was taken next to sample *i* of the
others. Each run follows one of another case, so that none finds its own data still in the
processor's caches: in the order A B B A, a case that ran twice in a row was 15 to 20 % faster
the second time. A session starts fresh workers, warms them up until all are steady, and
measures; a run has several sessions, since two processes of the same file differ (see
:mod:`exporter.ratios`), and every other session goes through the cases backwards, so that
being opened first, or last, favours none.

A worker that fails ends its case, not the run, and so does one that is too slow: what it would
take is known after its first run. An interruption keeps the sessions that are
whole, and what there is of the one that is not where that is enough to tell something.

Where texts are run, all cases run the same one in a round; the next round runs the next one,
through all sessions. Opening, warming up and the memory are those of the longest, which is run
until it is steady.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from exporter.benchmark.launcher import Launcher
from exporter.benchmark.memory_budget import swapped_pages
from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.outcome import Outcome
from exporter.benchmark.plan import Arm, Run
from exporter.benchmark.warm_up import MAXIMUM_ROUNDS, is_stable
from exporter.early_exit import LAYERS_USED
from exporter.errors import ExportError
from exporter.runtimes.line_process import NoAnswerError
from exporter.runtimes.worker import Task, Worker

__all__ = ["RunProtocol"]

Tell = Callable[[str, float], None]

_MOST_SAMPLES = 100_000
_FEWEST_KEPT = 3
_SWAPPED_PAGES = 256
_WARM_UP_S = 20.0
"""Seconds of a session after which no more than the least warm-up is done: by then what engines
compile is compiled."""
_LONGEST_STEP = 0.25
"""Share of the limit of a case that opening it, or one run, may take."""


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
    _round: int = field(init=False, default=0)

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
        for outcome in self._alive()[:: -1 if index % 2 else 1]:
            self._say(index, 0.0, f"loading {outcome.arm.case.variant}")
            step_s = _LONGEST_STEP * self.options.limit_s
            task = _task(outcome.arm, thorough=index == 0, timeout_s=step_s)
            try:
                with _spending(outcome, self.clock):
                    worker = stack.enter_context(self.launcher.open(outcome.arm.case, task))
            except (ExportError, OSError) as error:
                outcome.fail(error)
                continue
            outcome.opened.append(worker.opened)
            seats.append(_Seat(outcome, worker, self.clock))
        return seats

    def _warm_up(self, index: int, seats: Sequence[_Seat]) -> None:
        """Run all in turns until each has been steady; the steady ones are kept warm."""
        unsteady = list(seats)
        start = self.clock()
        for rounds in range(max(MAXIMUM_ROUNDS, self.options.warm_up)):
            if rounds >= self.options.warm_up and self.clock() - start > _WARM_UP_S:
                break
            self._say(index, 0.3, "warming up")
            for seat in seats:
                seat.run()
                if index == rounds == 0:
                    self._check_pace(seat)
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

    def _check_pace(self, seat: _Seat) -> None:
        """Give a case up that would take longer than the limit, by its first run."""
        if not seat.alive:
            return
        options = self.options
        runs = options.sessions * (options.warm_up + self._wanted)
        sample = seat.outcome.arm.subject.sample
        first_s = seat.samples_ms[0] / 1e3 * (sample.mean_share if sample else 1.0)
        total_s = seat.outcome.spent_s + (runs - 1) * first_s
        if total_s > options.limit_s:
            seat.give_up(
                NoAnswerError(
                    f"given up: a run takes {first_s:,.1f} s, so that this case would take "
                    f"{total_s:,.0f} s, beyond the limit of {options.limit_s:,.0f} s; to "
                    "measure it: fewer runs or a higher --limit, and another --out file"
                )
            )

    @property
    def _wanted(self) -> int:
        """Runs of a session, at least."""
        return math.ceil(self.options.min_runs / self.options.sessions)

    def _take_turns(self, index: int, seats: Sequence[_Seat]) -> None:
        options = self.options
        wanted = self._wanted
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
                    seat.run(self._round)
                rounds += 1
                self._round += 1
        finally:
            # Cut short within a round, some have one sample more, which is next to nothing.
            rounds = min((len(seat.samples_ms) for seat in seats if seat.alive), default=0)
            for seat in seats:
                if not seat.alive:
                    seat.outcome.keep(seat.samples_ms, seat.layers)
                elif rounds >= min(_FEWEST_KEPT, wanted):
                    seat.outcome.keep(seat.samples_ms[:rounds], seat.layers[:rounds])

    def _say(self, session: int, share: float, text: str) -> None:
        total = self.options.sessions
        part = f" ({session + 1} of {total})" if total > 1 else ""
        self.tell(f"{self.run.title}: {text}{part}", (session + share) / total)


@dataclass
class _Seat:
    """A worker, the case it measures, and its runs since the last clearing."""

    outcome: Outcome
    worker: Worker
    clock: Callable[[], float]
    samples_ms: list[float] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.outcome.error is None

    def run(self, number: int | None = None) -> None:
        """Run once, unless the case has failed already: text ``number``, or what it opened with."""
        self._guarded(lambda: self._run(number))

    def _run(self, number: int | None) -> None:
        subject = self.outcome.arm.subject
        if subject.sample is None or number is None:
            self.samples_ms.append(self.worker.run())
            return
        ms, outputs = self.worker.compute(subject.sample.at(number))
        self.samples_ms.append(ms)
        if subject.leaves is not None:
            self.layers.append(int(outputs[LAYERS_USED][0]))

    def read_memory(self) -> None:
        """Note the memory now."""
        self._guarded(lambda: self.outcome.memories.append(self.worker.memory()))

    def _guarded(self, act: Callable[[], None]) -> None:
        if not self.alive:
            return
        try:
            with _spending(self.outcome, self.clock):
                act()
        except (ExportError, OSError) as error:
            self.give_up(error)
        if self.worker.was_hidden:
            self.outcome.flags.add("hidden tab")

    def give_up(self, error: Exception) -> None:
        """End the case with ``error``."""
        self.outcome.fail(error)
        self.worker.close()  # what it holds must not burden the others


@contextmanager
def _spending(outcome: Outcome, clock: Callable[[], float]) -> Iterator[None]:
    """Count the time within as spent on ``outcome``."""
    start = clock()
    try:
        yield
    finally:
        outcome.spent_s += clock() - start


def _task(arm: Arm, *, thorough: bool, timeout_s: float) -> Task:
    """What a worker opens; the first also checks its outputs and opens the file twice."""
    subject = arm.subject
    return Task(
        path=subject.path,
        inputs=subject.inputs,
        sizes=arm.sizes,
        given=subject.sample.longest if subject.sample else None,
        threads=arm.case.threads,
        reference=subject.reference if thorough else None,
        tolerance=subject.tolerance if thorough else None,
        warm_first=thorough,
        timeout_s=timeout_s,
    )
