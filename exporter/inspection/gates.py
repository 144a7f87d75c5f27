"""Limits that turn an inspection into a check for continuous integration."""

from __future__ import annotations

import re

from exporter.inspection.report import Inspection, allowed_waste_bytes

__all__ = ["failed_gates", "parse_bytes"]

_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30,
}  # fmt: skip


def parse_bytes(text: str) -> int:
    """Read a size: ``12000000``, ``12_000_000``, ``12MB`` (10⁶), ``12 MiB`` (2²⁰), ``1.5GB``.

    Raises:
        ValueError: it is none of these.
    """
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?)\s*([a-z]*)", text.strip(), re.IGNORECASE)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(f"{text!r} is no size; write 12000000, 12MB (10⁶) or 12MiB (2²⁰)")
    number, unit = match[1], _UNITS[match[2].upper()]
    return round(float(number) * unit) if "." in number else int(number) * unit


def failed_gates(
    inspection: Inspection, *, max_bytes: int | None = None, require_shared: bool = False
) -> tuple[str, ...]:
    """Say which limits do not hold, a line each; none: all hold.

    Args:
        inspection: what was found.
        max_bytes: most bytes of each model file with its external data; the unshared
            baselines of an artifact are exempt.
        require_shared: no model file may hold more copies than
            :func:`exporter.inspection.report.allowed_waste_bytes`.
    """
    failures = []
    for model in inspection.models:
        if max_bytes is not None and model.is_shipped and model.file_bytes > max_bytes:
            over = model.file_bytes - max_bytes
            failures.append(
                f"{model.path} has {model.file_bytes:,} bytes, {over:,} more than the "
                f"{max_bytes:,} allowed"
            )
        if require_shared and not model.is_shared:
            largest = model.copies[0]
            names = " = ".join(member.entry.name for member in largest.members[:3])
            failures.append(
                f"{model.path} is not shared: {model.wasted_bytes:,} of {model.stored_bytes:,} "
                f"stored bytes are copies, {allowed_waste_bytes(model.stored_bytes):,} allowed; "
                f"the largest: {names} ({largest.wasted_bytes:,} bytes)"
            )
    return tuple(failures)
