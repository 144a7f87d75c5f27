"""Name the sharing scheme of a module nobody described, from what it calls."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.checkpoint.probing import CallRecord

__all__ = ["describe_calls"]


def describe_calls(record: CallRecord) -> str:
    """Return ``all``, ``grouped(g)``, ``none``, or ``unknown`` where the calls are not clear.

    Clear are, from the first call of a module that is called again to the last one: one
    run of modules repeated (``A B A B`` → ``all``), or several such runs one after the
    other (``A A B B`` → ``grouped(2)``). Layers that alternate, or repeated modules with
    single ones in between, are ``unknown``.
    """
    order = record.order
    if not order:
        return "unknown"
    repeated = [i for i, name in enumerate(order) if order.count(name) > 1]
    if not repeated:
        return "none"
    groups = _split(order[repeated[0] : repeated[-1] + 1])
    if not all(_is_repetition(group) for group in groups):
        return "unknown"
    return "all" if len(groups) == 1 else f"grouped({len(groups)})"


def _split(order: Sequence[str]) -> list[Sequence[str]]:
    """Cut wherever no name stands on both sides of the cut."""
    last = {name: index for index, name in enumerate(order)}
    groups, start, end = [], 0, 0
    for index, name in enumerate(order):
        end = max(end, last[name])
        if index == end:
            groups.append(order[start : end + 1])
            start = end + 1
    return groups


def _is_repetition(order: Sequence[str]) -> bool:
    """Tell whether ``order`` is one run of distinct names, repeated at least twice."""
    period = len(set(order))
    whole = len(order) > period and len(order) % period == 0
    return whole and all(name == order[index % period] for index, name in enumerate(order))
