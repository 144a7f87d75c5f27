"""What a person chooses about a measurement."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from exporter.errors import BenchmarkError
from exporter.records import Runtime

__all__ = ["BenchmarkOptions"]


@dataclass(frozen=True)
class BenchmarkOptions:
    """What to measure, and for how long.

    Args:
        runtimes: where to run; see :data:`~exporter.records.Runtime`.
        browsers: which browsers, for the runtime ``browser``; empty: all that are installed.
        threads: compute threads, one case each.
        sequences: tokens per row, one case each; empty: the model's maximum, at most 128.
        batches: rows per run, one case each.
        variants: which files of an artifact; empty: all.
        baseline: whether the unshared baselines take part; ``None``: those that are there.
        sessions: fresh processes of each case, one after the other. Two processes of one
            file differ, so that with one a ratio's interval promises too much; an even number
            opens each case first as often as last.
        min_runs: steady runs of each case, at least, over all sessions.
        min_seconds: and for at least so long, over all sessions and all cases of a run.
        warm_up: runs before the first that counts, at least, in each session.
        limit_s: longest that one case of a run may take, over all sessions: one that is
            going to take longer is given up. A quarter of it is for opening it, or one run.
        data: texts to run on, in place of random ids: JSON lines, or CSV with a header. Run are
            as many as ``min_runs``, drawn from the file, or all there are; each session goes on
            where the one before ended, and begins anew after the last.
        text_column: that holds the text.
        label: what the records call this device.
        command: the command line that measures the same again, for the records.
    """

    runtimes: tuple[Runtime, ...] = ("cpu",)
    browsers: tuple[str, ...] = ()
    threads: tuple[int, ...] = (1,)
    sequences: tuple[int, ...] = ()
    batches: tuple[int, ...] = (1,)
    variants: tuple[str, ...] = ()
    baseline: bool | None = None
    sessions: int = 6
    min_runs: int = 42
    min_seconds: float = 5.0
    warm_up: int = 5
    limit_s: float = 600.0
    data: Path | None = None
    text_column: str = "text"
    label: str | None = None
    command: str | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "sequences", "batches"):
            if any(number < 1 for number in getattr(self, name)):
                raise BenchmarkError(f"{name} must be 1 or more")
        if min(self.sessions, self.min_runs, self.warm_up) < 1 or self.min_seconds < 0:
            raise BenchmarkError("sessions, runs and warm-up must be 1 or more, seconds 0 or more")
        if self.limit_s <= 0:
            raise BenchmarkError("the limit must be more than 0 seconds")
        if self.data is not None and self.sequences:
            raise BenchmarkError("texts have their own lengths: leave --seq out, or --data")
        if self.data is not None and self.batches != (1,):
            raise BenchmarkError("texts are run one at a time: with --data, --batch is 1")
