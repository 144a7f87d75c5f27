"""Rows as the sharing study's results hold them, with figures made up."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["result_row"]


def result_row(
    task: str, scheme: str, seed: int, distilled: bool, share: float, **more: Any
) -> Any:
    """Make one: ``precision``, and figures that follow from the rest."""
    right = {"none": 800, "grouped(2)": 790, "all": 770}[scheme] + seed + 20 * distilled
    sizes = {"none": 300_000, "grouped(2)": 150_000, "all": 90_000}
    precision = more.pop("precision")
    lost = 40 * share * (2 if scheme == "all" else 1) + (5 if precision == "int8" else 0)
    return {
        "run": {"task": task, "scheme": scheme, "seed": seed, "distilled": distilled},
        "parameters": {"unique": sizes[scheme], "unshared": 300_000},
        "pruned": share,
        "precision": precision,
        "file_bytes": sizes[scheme] * (4 if precision == "fp32" else 1),
        "brotli_bytes": sizes[scheme],
        "correct": right - lost,
        "of": 1000,
        "loss": 1000 * math.log(40 if scheme == "none" else 44),
    }
