"""ALBERT-base in float32, exported with the options that are compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.commands import albert_export
from exporter.artifact import Artifact

__all__ = ["export"]


def export(work: Path, name: str, *options: str) -> Artifact:
    """Export ALBERT-base in float32 to the new folder ``work/name``.

    Raises:
        CommandError: the export failed.
    """
    checkpoint = work / "albert-base"
    if not checkpoint.exists():
        command = [sys.executable, "-m", "benchmarks.layout.checkpoint", str(checkpoint)]
        subprocess.run(command, check=True)
    print(f"exporting {name} …", file=sys.stderr)
    albert_export("export", checkpoint, "-o", work / name, "--precision", "fp32", *options)
    return Artifact.load(work / name, check_hashes=True)
