"""Checkpoint → artifact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from exporter.artifact import Artifact, check_destination
from exporter.capture import Captured, capture
from exporter.checkpoint import LoadedModel, load_checkpoint
from exporter.inputs import Feeds
from exporter.onnx_files import DEFAULT_OPSET
from exporter.passes.exit_early import ExitEarlyPass
from exporter.passes.recipes import SharingContract, capture_recipe, run_recipe
from exporter.pipeline.exit_reference import exit_runner
from exporter.pipeline.finish import finish
from exporter.pipeline.layout import CAPTURE_PASSES, DepthMismatchError, LaidOut, lay_out
from exporter.pipeline.options import ExportOptions, Prepared, Progress
from exporter.source_model import run_source, source_runner

__all__ = ["export_checkpoint"]


def export_checkpoint(
    source: Path,
    destination: Path,
    options: ExportOptions | None = None,
    progress: Progress = lambda step: None,
) -> Artifact:
    """Export the checkpoint ``source`` as a verified artifact at ``destination``.

    Raises:
        CheckpointError: ``source`` cannot be read.
        CaptureError: it cannot become a graph.
        PassError: a transformation lost the sharing.
        VerificationError: the graph does not compute what PyTorch does.
        ArtifactError: ``destination`` cannot be written.
    """
    options = options or ExportOptions()
    check_destination(destination, replace=options.replace, source=source)
    progress("loading the checkpoint")
    loaded = load_checkpoint(
        source,
        inputs=options.inputs,
        trust_pickle=options.trust_pickle,
        import_paths=options.import_paths,
    )
    captured, graph = _make_graph(loaded, options, progress)
    prepared = Prepared(
        model=graph.model,
        unrolled=graph.unrolled,
        rolled=graph.rolled,
        layout=graph.report,
        passes=graph.records,
        reference=source_runner(loaded),
        reference_name="PyTorch",
        reference_at_depth=_depth_runner(loaded),
        exit_cases=exit_runner(loaded, options.early_exit) if options.early_exit else None,
        inputs=captured.inputs,
        source=asdict(loaded.source),
        scheme=loaded.scheme,
        unique_bytes=loaded.sharing.held_bytes,
        sharing=loaded.sharing.to_dict(),
        config=loaded.config,
        assets=loaded.assets,
        notices=[*loaded.notices, *captured.notices],
    )
    return finish(prepared, destination, options, progress)


def _depth_runner(loaded: LoadedModel) -> Callable[[Feeds, int], dict[str, np.ndarray]] | None:
    plan = loaded.depth_plan
    if plan is None:
        return None

    def run(feeds: Feeds, depth: int) -> dict[str, np.ndarray]:
        with plan.at(depth):
            return run_source(loaded, feeds)

    return run


def _make_graph(
    loaded: LoadedModel, options: ExportOptions, progress: Progress
) -> tuple[Captured, LaidOut]:
    plan = loaded.depth_plan
    if options.dedupe and plan is not None and _is_deep(plan.depths):
        try:
            with plan.at(CAPTURE_PASSES):
                return _capture_and_lay_out(loaded, options, progress, depths=plan.depths)
        except DepthMismatchError:
            progress("capturing every layer")
    return _capture_and_lay_out(loaded, options, progress)


def _exit_pass(loaded: LoadedModel, options: ExportOptions) -> ExitEarlyPass | None:
    if options.early_exit is None:
        return None
    masks = [spec.name for spec in loaded.inputs.specs if spec.role == "mask"]
    return ExitEarlyPass(options.early_exit, masks[0] if masks else None)


def _is_deep(depths: Sequence[int]) -> bool:
    """Whether a shallow capture shows every block twice, and saves work."""
    return min(depths) >= CAPTURE_PASSES < max(depths)


def _capture_and_lay_out(
    loaded: LoadedModel,
    options: ExportOptions,
    progress: Progress,
    depths: tuple[int, ...] | None = None,
) -> tuple[Captured, LaidOut]:
    progress("capturing the graph")
    captured = capture(loaded, opset=options.opset or DEFAULT_OPSET)
    model = captured.model
    records = run_recipe(model, capture_recipe())
    if not options.dedupe:
        return captured, LaidOut(model, model, model, records, None)
    progress("sharing weights and rolling layers")
    contract = SharingContract(loaded.sharing.held_bytes + captured.constant_bytes)
    laid_out = lay_out(
        model,
        options.layout,
        contract,
        depths=depths,
        elastic=options.elastic_depth,
        early_exit=_exit_pass(loaded, options),
        fuse=options.fuse,
        keep=options.kept(),
    )
    return captured, replace(laid_out, records=(*records, *laid_out.records))
