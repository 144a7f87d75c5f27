"""Claims about sharing as ranges, and what the results say of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.sharing_tradeoff.results import Cell, Estimate, Figure, Results, apart

__all__ = ["Claim", "above", "claims", "describe", "interactions", "lost"]

FREE_POINTS = 1.0
"""Points of accuracy that a combination may cost beyond its parts and still count as free."""


@dataclass(frozen=True)
class Claim:
    """A sentence, a figure, and the range it should be in.

    Args:
        text: the claim.
        measured: the figure, in ``unit``.
        low, high: the range.
        unit: of all three.
    """

    text: str
    measured: Estimate | Figure
    low: float
    high: float
    unit: str

    @property
    def verdict(self) -> str:
        """``holds`` or ``does not hold``, where the whole interval says so."""
        low, high = _interval(self.measured)
        if self.low <= low and high <= self.high:
            return "holds"
        if high < self.low or low > self.high:
            return "does not hold"
        return "not decided"


def claims(results: Results) -> Iterator[Claim]:
    """List the claims; those about schemes that were not run are left out."""
    understanding = lost(results, Cell("classify", "all"))
    generation = lost(results, Cell("generate", "all"))
    yield Claim(
        "Full sharing costs understanding 3 to 5 % of its accuracy", understanding, 3, 5, "%"
    )
    yield Claim("Full sharing costs generation 10 to 15 % of its accuracy", generation, 10, 15, "%")
    yield Claim(
        "Full sharing costs generation more than understanding",
        apart(generation, understanding),
        0,
        math.inf,
        "points",
    )
    for scheme in results.schemes("classify"):
        if scheme.startswith("grouped"):
            yield Claim(
                f"{scheme} costs understanding under 2 % of its accuracy",
                lost(results, Cell("classify", scheme)),
                -math.inf,
                2,
                "%",
            )
    taught = results.accuracy(Cell("classify", "all", distilled=True))
    alone = results.accuracy(Cell("classify", "none"))
    yield Claim(
        "A distilled, fully shared student is as good as a plain, unshared one",
        (taught - alone).times(100),
        0,
        math.inf,
        "points",
    )
    yield Claim(
        "A distilled, fully shared generator has at most the perplexity of a plain, unshared one",
        above(results, Cell("generate", "all", distilled=True), Cell("generate", "none")),
        -math.inf,
        0,
        "% more",
    )
    for task, words in (("classify", "understanding"), ("generate", "generation")):
        name, worst = _least_sure(interactions(results, task, "all"), -FREE_POINTS)
        yield Claim(
            f"Full sharing makes nothing else cost {words} over {FREE_POINTS:g} point more "
            f"(least sure: {name})",
            worst,
            -FREE_POINTS,
            math.inf,
            "points",
        )


def _least_sure(found: Sequence[tuple[str, Figure]], least: float) -> tuple[str, Figure]:
    """Choose the figure that decides whether all are at least ``least``.

    One that is surely below it, if there is any; of several, that which may be lowest.
    """

    def rank(item: tuple[str, Figure]) -> tuple[bool, float]:
        low, high = _interval(item[1])
        return high >= least, low

    return min(found, key=rank)


def _interval(figure: Estimate | Figure) -> tuple[float, float]:
    return figure.mean - figure.half_width, figure.mean + figure.half_width


def lost(results: Results, cell: Cell) -> Figure:
    """Per cent of the unshared encoder's accuracy that a scheme loses."""
    whole = results.accuracy(replace(cell, scheme="none"))
    return (whole - results.accuracy(cell)).relative_to(whole).times(100)


def above(results: Results, cell: Cell, other: Cell | None = None) -> Figure:
    """Per cent that a cell's perplexity is above another's; by default the unshared encoder's."""
    its = results.perplexity(other or replace(cell, scheme="none"))
    return (results.perplexity(cell) - its).relative_to(its).times(100)


def interactions(results: Results, task: str, scheme: str) -> Sequence[tuple[str, Figure]]:
    """What something changes under ``scheme`` beyond what it changes without sharing.

    In points of accuracy; zero is independence, below it the combination costs more than
    its parts. All that differs from a plain run in fp32 is one such something, combinations
    included.
    """
    plain = Cell(task, scheme)
    found = []
    for distilled in (False, True):
        for share in results.values("pruned"):
            for precision in results.precisions():
                changed = Cell(task, scheme, distilled, share, precision)
                if changed != plain:
                    own = results.accuracy(changed) - results.accuracy(plain)
                    unshared = results.accuracy(replace(changed, scheme="none")) - results.accuracy(
                        replace(plain, scheme="none")
                    )
                    found.append((describe(changed), (own - unshared).times(100)))
    return found


def describe(cell: Cell) -> str:
    """Name what was done to a cell's models: ``distilled, 50 % pruned, int8``."""
    parts = ["distilled"] if cell.distilled else []
    parts += [f"{cell.pruned:.0%} pruned".replace("%", " %")] if cell.pruned else []
    parts += [cell.precision] if cell.precision != "fp32" else []
    return ", ".join(parts) or "plain"
