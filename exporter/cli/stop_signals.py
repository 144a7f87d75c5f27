"""Ctrl-C and SIGTERM as a wish, which work that can be gone on with asks for between steps."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["StopWish", "stop_between_steps"]

_NOTE = b"\nStopping after this step; once more stops at once\n"


@dataclass
class StopWish:
    """Whether a signal came: its ``number``, or 0."""

    number: int = 0

    def __call__(self) -> bool:
        """Tell whether to stop."""
        return self.number != 0

    @property
    def exit_code(self) -> int:
        """What shells make of an end by this signal: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.number


@contextmanager
def stop_between_steps() -> Iterator[StopWish]:
    """Note the first signal; a second one ends the process as if nobody had listened.

    One of several processes gets each signal twice, from the terminal and from what launched
    them, which kills those that take too long: there, further signals change nothing.
    """
    wish, launched = StopWish(), "WORLD_SIZE" in os.environ
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: object) -> None:
        wish.number = wish.number or number
        if not launched:
            restore()
            os.write(2, _NOTE)  # print() must not be entered twice

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as shells ask for in the background
            signal.signal(number, note)
    try:
        yield wish
    finally:
        restore()
