"""Whether the workers of a run fit into memory together, and what to do where they do not.

A machine that swaps measures its disk. So the memory that all workers of a run would need
is estimated beforehand, generously. Where it is not there, the run is split into smaller
ones that fit: each candidate beside its reference, as long as these two fit, since a ratio
needs both in one run; else alone, without a ratio. A model that does not even fit alone is
not run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exporter.benchmark.plan import Arm, Run
from exporter.comparisons import compared_with
from exporter.records import Case, Runtime

__all__ = ["Fitted", "available_bytes", "estimate_bytes", "fit_run", "swapped_pages"]

_MARGIN = 0.8
"""Share of the available memory that a run may take."""

_ESTIMATES: dict[Runtime, tuple[int, float]] = {
    "cpu": (150_000_000, 3.5),
    "node": (200_000_000, 4.5),
    "browser": (600_000_000, 5.0),
}
"""Bytes of the bare process, and bytes for each byte of the file: its content, what the
runtime unpacks and packs from it, and in WebAssembly the heap's growth."""


@dataclass(frozen=True)
class Fitted:
    """A run, divided so that each part fits.

    Args:
        runs: what to measure, in order; a reference may be in several.
        too_large: cases that do not fit even alone, each with the reason.
        notices: what a person should know.
    """

    runs: tuple[Run, ...]
    too_large: tuple[tuple[Arm, str], ...] = ()
    notices: tuple[str, ...] = ()


def estimate_bytes(arm: Arm) -> int:
    """Memory that one worker is expected to take at its peak."""
    base, factor = _ESTIMATES[arm.case.runtime]
    return int(base + factor * arm.subject.model.file_bytes)


def fit_run(
    run: Run,
    available: int | None,
    estimate: Callable[[Arm], int] = estimate_bytes,
) -> Fitted:
    """Divide ``run`` so that the workers of each part fit into ``available`` bytes together."""
    if available is None:
        return Fitted((run,))
    budget = int(available * _MARGIN)
    needs = {arm.case: estimate(arm) for arm in run.arms}
    if sum(needs.values()) <= budget:
        return Fitted((run,))
    too_large = tuple(
        (arm, _too_large(needs[arm.case], available))
        for arm in run.arms
        if needs[arm.case] > budget
    )
    fitting = [arm for arm in run.arms if needs[arm.case] <= budget]
    partners = {arm.case: _reference_of(arm, fitting) for arm in fitting}
    references = [partner for partner in partners.values() if partner is not None]
    groups: list[list[Arm]] = []
    alone: list[str] = []
    # References last: most of them are in a group by then, beside their candidates.
    for arm in sorted(fitting, key=lambda arm: arm in references):
        partner = partners[arm.case]
        if arm in references and any(arm in group for group in groups):
            continue
        wanted = [arm] if partner is None else [partner, arm]
        if _bytes(wanted, needs) > budget:
            wanted = [arm]
            alone.append(arm.case.variant)
        _place(wanted, groups, needs, budget)
    order = {arm.case: index for index, arm in enumerate(run.arms)}
    runs = tuple(Run(tuple(sorted(group, key=lambda a: order[a.case]))) for group in groups)
    notices = []
    if len(runs) > 1:
        notices.append(
            f"{run.title}: all {len(run.arms)} models together need about "
            f"{_gigabytes(sum(needs.values()))} of memory and {_gigabytes(available)} are "
            f"available, so they are measured in {len(runs)} groups"
        )
    if alone:
        notices.append(
            f"{run.title}: no ratio for {', '.join(alone)}, which do not fit into memory "
            "together with what they are compared with"
        )
    return Fitted(runs, too_large, tuple(notices))


def available_bytes() -> int | None:
    """Memory that can be taken without swapping; ``None`` where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    found = [*_proc_values(Path("/proc/meminfo"), "MemAvailable:", unit=1024)]
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            numbers = [int((group / name).read_text()) for name in (limit, used)]
        except (OSError, ValueError):  # no such group, or "max": no limit
            continue
        found.append(max(0, numbers[0] - numbers[1]))
    return min(found, default=None)


def swapped_pages() -> int | None:
    """Pages the machine has read back from swap space so far; ``None`` where it does not tell."""
    return next(iter(_proc_values(Path("/proc/vmstat"), "pswpin", unit=1)), None)


def _proc_values(path: Path, key: str, *, unit: int) -> list[int]:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * unit for line in lines if line.split()[:1] == [key]]


def _reference_of(arm: Arm, arms: list[Arm]) -> Arm | None:
    """The arm among ``arms`` that ``arm`` is compared with first."""
    for case in compared_with(arm.case, [other.case for other in arms]):
        return next(other for other in arms if other.case == case)
    return None


def _place(wanted: list[Arm], groups: list[list[Arm]], needs: dict[Case, int], budget: int) -> None:
    """Add ``wanted`` to the first group where it fits, else to a new one."""
    for group in groups:
        joined = group + [arm for arm in wanted if arm not in group]
        if _bytes(joined, needs) <= budget:
            group[:] = joined
            return
    groups.append(wanted)


def _bytes(arms: list[Arm], needs: dict[Case, int]) -> int:
    return sum(needs[arm.case] for arm in arms)


def _too_large(need: int, available: int) -> str:
    return (
        f"needs about {_gigabytes(need)} of memory and {_gigabytes(available)} are available; "
        "a machine that swaps would measure its disk"
    )


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
