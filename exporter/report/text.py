"""Text and numbers as people read them; text of devices made harmless."""

from __future__ import annotations

import math
import unicodedata
from functools import lru_cache

from exporter.records import Flag

__all__ = [
    "FLAGS",
    "NO_BREAK",
    "brief",
    "clean",
    "count",
    "joined",
    "milliseconds",
    "ratio",
    "share",
    "size",
]

FLAGS: dict[Flag, str] = {
    "spread": "samples scatter: their middle half lies more than 25 % of the median apart",
    "hidden tab": "the tab was hidden while measuring; browsers slow such tabs down",
    "coarse timer": "the clock's steps are coarse in proportion to the times measured",
    "failed check": "outputs differ from the reference by more than the tolerance",
    "unstable warm-up": "times were still changing when measuring began",
    "fewer threads": "the runtime used fewer threads than asked for",
    "interrupted": "measuring was interrupted; the samples up to then are kept",
    "likely out of memory": "the process or page ended as it does when memory runs out",
    "too slow": "it would have taken longer than the limit of the measurement allows",
    "too few cores": "more threads were asked for than cores are usable",
    "swapped": "the machine read memory back from its swap space meanwhile",
}
"""What each flag of a record means."""

NO_BREAK = "\N{NO-BREAK SPACE}"


@lru_cache(maxsize=4096)
def clean(text: str) -> str:
    """Return ``text`` as one line without characters that hide or reorder others.

    Labels come from devices: control characters would break lines, and bidirectional ones
    would turn around what stands beside them, whatever is escaped later.
    """
    line = "".join(" " if c.isspace() else c for c in text.strip())
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co") else c
        for c in line
    )


def brief(text: str, limit: int) -> str:
    """Cut ``text`` to ``limit`` characters, an ellipsis included."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def joined(items: list[str], last: str = "and") -> str:
    """Enumerate: ``a, b and c``."""
    return f" {last} ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 case``, ``2 cases``."""
    return f"{number:,}{NO_BREAK}{noun if number == 1 else plural or noun + 's'}"


def _digits(value: float) -> str:
    """Three significant digits, but no more than two decimals and never an exponent."""
    return f"{value:,.{2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0}f}"


def milliseconds(value: float | None) -> str:
    """Return ``5.21 ms``, ``412 ms`` or ``12.3 s``; a dash for what is not known."""
    if value is None or not math.isfinite(value):
        return "–"
    if abs(value) >= 10_000:
        return f"{_digits(value / 1000)}{NO_BREAK}s"
    return f"{_digits(value)}{NO_BREAK}ms"


def size(value: float | None) -> str:
    """Return ``0.86 MB`` (10⁶ bytes), small ones in kB or bytes; a dash for what is not known."""
    if value is None:
        return "–"
    if abs(value) >= 100_000:
        return f"{_digits(value / 1e6)}{NO_BREAK}MB"
    if abs(value) >= 1000:
        return f"{_digits(value / 1e3)}{NO_BREAK}kB"
    return f"{value:,.0f}{NO_BREAK}bytes"


def ratio(value: float | None) -> str:
    """Return ``0.71×``; small ones with two significant digits."""
    if value is None or not math.isfinite(value):
        return "–"
    if 0 < value < 0.095:
        return f"{value:.2g}×"
    return f"{_digits(value)}×"


def share(value: float | None) -> str:
    """Return ``91.2 %``; a dash for what is not known."""
    return "–" if value is None else f"{value * 100:.1f}{NO_BREAK}%"
