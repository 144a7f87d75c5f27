"""Are two sets of named arrays the same? Pure numpy.

Measuring is separate from the verdict: :func:`compare` records every metric, always;
:func:`judge` and :func:`judge_relative` decide. Nothing here knows where the arrays came from.
"""

from __future__ import annotations

from exporter.verification.comparison import CaseReport, OutputReport, compare
from exporter.verification.verdict import (
    Status,
    Verdict,
    Verification,
    judge,
    judge_relative,
    relative_errors,
)

__all__ = [
    "CaseReport",
    "OutputReport",
    "Status",
    "Verdict",
    "Verification",
    "compare",
    "judge",
    "judge_relative",
    "relative_errors",
]
