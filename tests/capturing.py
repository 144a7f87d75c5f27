"""Graphs of modules as an export makes them, and sessions on them."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir

from exporter.capture import capture
from exporter.checkpoint import LoadedModel
from exporter.inputs import verification_cases
from exporter.onnx_files import write_model
from exporter.passes.recipes import SharingContract, capture_recipe, run_recipe, share_recipe
from exporter.runtimes.cpu import CpuSession
from exporter.source_model import run_source
from tests.samples import worst_difference


def graph_of(loaded: LoadedModel, *, dedupe: bool = True, opset: int = 18) -> ir.Model:
    captured = capture(loaded, opset=opset)
    contract = SharingContract(loaded.sharing.held_bytes + captured.constant_bytes)
    run_recipe(captured.model, capture_recipe())
    if dedupe:
        run_recipe(captured.model, share_recipe(), contract)
    return captured.model


def session_of(model: ir.Model, folder: Path) -> CpuSession:
    write_model(model, folder / "model.onnx")
    onnx.checker.check_model(folder / "model.onnx", full_check=True)
    return CpuSession(folder / "model.onnx", threads=1)


def worst_error(loaded: LoadedModel, session: CpuSession) -> float:
    """Largest difference from PyTorch over all standard cases."""
    return max(
        worst_difference(run_source(loaded, case.feeds), dict(session.run(case.feeds)))
        for case in verification_cases(loaded.inputs)
    )
