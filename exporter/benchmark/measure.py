"""All runs of a plan, one after the other, to records."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from exporter.benchmark.launcher import Launcher
from exporter.benchmark.memory_budget import available_bytes, fit_run
from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.outcome import Outcome, Stamp, moment
from exporter.benchmark.plan import Arm, Run
from exporter.benchmark.progress import Forecast, Step
from exporter.benchmark.run import RunProtocol
from exporter.records import Measurement
from exporter.runtimes.device import usable_cores

__all__ = ["Bench"]


@dataclass
class Bench:
    """Measures runs and tells what a person should know.

    Args:
        runs: what to measure.
        launcher: starts workers.
        options: for how long, and what the records say.
        progress: gets each step.
        available: memory that can be taken without swapping, asked before each run.
        clock: seconds.

    Attributes:
        notices: what a person should know, in order.
    """

    runs: Sequence[Run]
    launcher: Launcher
    options: BenchmarkOptions
    progress: Callable[[Step], None] = lambda step: None
    available: Callable[[], int | None] = available_bytes
    clock: Callable[[], float] = time.monotonic
    notices: list[str] = field(init=False, default_factory=list)
    _stopped: bool = field(init=False, default=False)

    def stop(self) -> None:
        """Begin no further run; the records of the one that has ended still come."""
        self._stopped = True

    def records(self) -> Iterator[Measurement]:
        """Measure; yield the records of each run as soon as it has ended.

        Raises:
            KeyboardInterrupt: raised again after the records of the interrupted run.
        """
        forecast = Forecast(self.runs, self.options, self.progress, self.clock)
        self._notice_cores()
        for index, run in enumerate(self.runs):
            if self._stopped:
                return
            forecast.begin(index)
            yield from self._measure(run, forecast)
            forecast.end()

    def _measure(self, run: Run, forecast: Forecast) -> Iterator[Measurement]:
        missing = self.launcher.missing(run.arms[0].case)
        if missing is not None:
            self._notice(f"{run.title}: not run: {missing}")
            yield from (self._not_run(arm, missing) for arm in run.arms)
            return
        fitted = fit_run(run, self.available())
        for notice in fitted.notices:
            self._notice(notice)
        for arm, reason in fitted.too_large:
            self._notice(f"{run.title}: {arm.case.variant} not run: {reason}")
            yield self._not_run(arm, reason)
        for position, part in enumerate(fitted.runs):
            if self._stopped:
                return
            scale, offset = 1 / len(fitted.runs), position / len(fitted.runs)
            protocol = RunProtocol(
                part,
                self.launcher,
                self.options,
                lambda text, share, s=scale, o=offset: forecast.step(text, o + s * share),  # type: ignore[misc]
                self.clock,
            )
            try:
                protocol.measure()
            except KeyboardInterrupt:
                yield from self._finished(protocol)
                raise
            yield from self._finished(protocol)

    def _finished(self, protocol: RunProtocol) -> Iterator[Measurement]:
        stamp = self._stamp()
        for outcome in protocol.outcomes:
            case = outcome.arm.case
            if outcome.error is None and not outcome.samples_ms:
                self._notice(f"{protocol.run.title}: {case.variant} dropped, too few runs so far")
                continue
            if outcome.error is not None:
                self._notice(f"{protocol.run.title}: {case.variant} failed: {outcome.error}")
            yield outcome.record(stamp, lambda c=case: self.launcher.device(c))  # type: ignore[misc]

    def _not_run(self, arm: Arm, reason: str) -> Measurement:
        outcome = Outcome(arm)
        outcome.skip(reason)
        return outcome.record(self._stamp(), lambda: self.launcher.device(arm.case))

    def _stamp(self) -> Stamp:
        name = f"{moment()} {uuid.uuid4().hex[:12]}"
        return Stamp(name, self.options.label, self.options.command)

    def _notice_cores(self) -> None:
        cores = usable_cores()
        for threads in sorted({run.arms[0].case.threads for run in self.runs}):
            if threads > cores:
                self._notice(
                    f"{threads} threads asked for, and this process may use {cores} core"
                    f"{'s' * (cores > 1)}: these figures say nothing about {threads} threads"
                )

    def _notice(self, text: str) -> None:
        if text not in self.notices:
            self.notices.append(text)
