"""Every error this package raises on purpose.

All derive from :class:`ExportError`; its text is one line a person can act on:
what is wrong, where, and what to do. The command line prints that line and exits
with code 1.
"""

from __future__ import annotations

__all__ = [
    "ArtifactError",
    "BenchmarkError",
    "CaptureError",
    "CheckpointError",
    "ExportError",
    "PassError",
    "VerificationError",
]


class ExportError(Exception):
    """Base of all errors of this package."""


class CheckpointError(ExportError):
    """A model file or folder cannot be read as what it claims to be."""


class CaptureError(ExportError):
    """A loaded model cannot be turned into an ONNX graph."""


class PassError(ExportError):
    """A graph transformation broke the sharing contract or its own post-condition."""


class VerificationError(ExportError):
    """The exported model does not compute what the source model computes."""


class ArtifactError(ExportError):
    """An artifact folder cannot be written, or is not a valid artifact."""


class BenchmarkError(ExportError):
    """A measurement cannot be made."""
