"""The unshared baseline: what the model would be without sharing, for measuring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from exporter.errors import ExportError
from exporter.inputs import ModelInputs, verification_cases
from exporter.passes.fold_weight_transforms import FoldWeightTransformsPass
from exporter.passes.unshare_initializers import UnshareInitializersPass
from exporter.runtimes.cpu import CpuSession

__all__ = ["BASELINE_NOTE", "check_baseline", "unshare"]

BASELINE_SEED = 0
BASELINE_NOTE = (
    "unshared baseline: the same architecture with different weights per use, "
    "for measuring; its answers mean nothing"
)


def unshare(model: ir.Model) -> ir.Model:
    """Clone ``model`` with weights of its own at each use; they are made when written."""
    clone = model.clone()
    UnshareInitializersPass(seed=BASELINE_SEED)(clone)
    # A table that was tied is read transposed; one of its own would be stored so.
    FoldWeightTransformsPass()(clone)
    return clone


def check_baseline(path: Path, inputs: ModelInputs) -> None:
    """Run the file once: its outputs have no reference, but they must be finite.

    Raises:
        ExportError: it does not load or run, or an output is not finite.
    """
    session = CpuSession(path, inputs=inputs)
    for name, value in session.run(verification_cases(inputs)[0].feeds).items():
        if not np.isfinite(value).all():
            raise ExportError(f"output {name!r} of the unshared baseline is not finite")
