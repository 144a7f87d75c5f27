"""From what happened to one case to its record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import numpy as np

from exporter import __version__
from exporter.benchmark.plan import Arm
from exporter.records import Check, Device, Flag, Measurement, Memory, Status, Times
from exporter.runtimes.device import usable_cores
from exporter.runtimes.line_process import NoAnswerError
from exporter.runtimes.worker import Opened

__all__ = ["Outcome", "Stamp", "is_out_of_memory", "moment"]

_SPREAD = 0.25
_COARSE = 0.05
_OUT_OF_MEMORY = re.compile(
    r"out of memory|memory (ran|runs) out|bad_alloc|failed to allocate|allocation failed|"
    r"(cannot|could not) allocate|memory access out of bounds|"
    r"(cannot|could not|unable to) (grow|enlarge)|SIGKILL|ENOMEM",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Stamp:
    """What the records of one run have in common.

    Args:
        run: name of the run.
        label: what to call the device; ``None``: what it calls itself.
        command: the command line that measures the same again.
    """

    run: str
    label: str | None = None
    command: str | None = None


@dataclass
class Outcome:
    """What is known of one case so far.

    Args:
        arm: the case.
        opened: what each fresh process told.
        memories: memory at the end of each session.
        samples_ms: steady runs of all sessions.
        session_runs: how many of them each session gave.
        layers: passes that each of them used, where the model leaves early.
        error: why it ended; ``None`` while all is well.
        status: what that makes of it.
        spent_s: seconds that opening it and its runs have taken.
        flags: what was noticed on the way.
    """

    arm: Arm
    opened: list[Opened] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)
    samples_ms: list[float] = field(default_factory=list)
    session_runs: list[int] = field(default_factory=list)
    layers: list[int] = field(default_factory=list)
    error: str | None = None
    status: Status = "measured"
    spent_s: float = 0.0
    flags: set[Flag] = field(default_factory=set)

    def fail(self, error: Exception) -> None:
        """Note that the case ended with ``error``; its samples until then are kept."""
        text = " ".join(str(error).split()) or type(error).__name__
        self.error, self.status = text[:2000], "failed"
        if isinstance(error, NoAnswerError):
            self.flags.add("too slow")
        elif is_out_of_memory(text):
            self.flags.add("likely out of memory")

    def skip(self, reason: str) -> None:
        """Note that the case cannot be run."""
        self.error, self.status = reason[:2000], "not run"

    def keep(self, session_ms: Sequence[float], layers: Sequence[int] = ()) -> None:
        """Add the samples of a session, and the passes that they used."""
        if session_ms:
            self.samples_ms += session_ms
            self.layers += layers
            self.session_runs.append(len(session_ms))

    def record(self, stamp: Stamp, unopened: Callable[[], Device]) -> Measurement:
        """Return the record; ``unopened`` describes the device where no process told."""
        device = self.opened[-1].device if self.opened else unopened()
        if stamp.label:
            device = msgspec.structs.replace(device, label=stamp.label)
        threads = [one.threads_used for one in self.opened if one.threads_used is not None]
        check = _worst([one.check for one in self.opened])
        leaves = self.arm.subject.leaves
        return Measurement(
            tool=__version__,
            created=moment(),
            run=stamp.run,
            case=self.arm.case,
            model=self.arm.subject.model,
            device=device,
            status=self.status,
            error=self.error,
            threads_used=min(threads, default=None),
            times=_median_times([one.times for one in self.opened]),
            samples_ms=tuple(self.samples_ms),
            session_runs=tuple(self.session_runs),
            memory=_together([one.memory for one in self.opened], self.memories),
            check=check,
            layers=leaves.used(np.array(self.layers)) if leaves and self.layers else None,
            flags=tuple(sorted(self.flags | self._seen(device, threads, check))),
            command=stamp.command[:2000] if stamp.command else None,
        )

    def _seen(self, device: Device, threads: list[int], check: Check) -> set[Flag]:
        """Flags that follow from the figures."""
        flags: set[Flag] = set()
        if check.status == "failed":
            flags.add("failed check")
        if threads and min(threads) < self.arm.case.threads:
            flags.add("fewer threads")
        if self.arm.case.threads > (device.usable_cores or usable_cores()):
            flags.add("too few cores")
        if self.samples_ms:
            low, median, high = np.percentile(self.samples_ms, (25, 50, 75))
            if self.arm.case.texts is None and high - low > _SPREAD * median:
                flags.add("spread")
            if (device.timer_resolution_ms or 0) > _COARSE * median:
                flags.add("coarse timer")
        return flags


def moment() -> str:
    """Return the time now as records have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_out_of_memory(error: str) -> bool:
    """Whether an error reads like those of a runtime, or a process, that ran out of memory."""
    return _OUT_OF_MEMORY.search(error) is not None


def _median_times(times: list[Times]) -> Times:
    medians = {}
    for name in Times.__struct_fields__:
        known = [value for one in times if (value := getattr(one, name)) is not None]
        medians[name] = float(np.median(known)) if known else None
    return Times(**medians)


def _together(opened: list[Memory], ended: list[Memory]) -> Memory:
    added = _known(one.added_rss for one in opened)
    return Memory(
        added_rss=int(np.median(added)) if added else None,
        peak_rss=max(_known(one.peak_rss for one in (*opened, *ended)), default=None),
        wasm_heap=max(_known(one.wasm_heap for one in (*opened, *ended)), default=None),
    )


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _worst(checks: list[Check]) -> Check:
    """A failed check before a passed one before none; of equal ones the largest error."""
    order = ("not run", "passed", "failed")
    return max(
        checks,
        key=lambda check: (order.index(check.status), check.relative_error or 0.0),
        default=Check(),
    )
