"""Checkpoint → artifact."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from exporter.artifact import Artifact, check_destination
from exporter.capture import capture
from exporter.checkpoint import load_checkpoint
from exporter.onnx_files import DEFAULT_OPSET
from exporter.passes.recipes import SharingContract, capture_recipe, run_recipe
from exporter.pipeline.finish import finish
from exporter.pipeline.options import ExportOptions, Prepared, Progress
from exporter.source_model import source_runner

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
    progress("capturing the graph")
    captured = capture(loaded, opset=options.opset or DEFAULT_OPSET)
    progress("de-duplicating weights" if options.dedupe else "removing export traces")
    contract = SharingContract(loaded.sharing.held_bytes + captured.constant_bytes)
    steps = capture_recipe(dedupe=options.dedupe)
    records = run_recipe(captured.model, steps, contract if options.dedupe else None)
    prepared = Prepared(
        model=captured.model,
        passes=records,
        reference=source_runner(loaded),
        reference_name="PyTorch",
        inputs=loaded.inputs,
        source=asdict(loaded.source),
        scheme=loaded.scheme,
        unique_bytes=loaded.sharing.held_bytes,
        sharing=loaded.sharing.to_dict(),
        config=loaded.config,
        assets=loaded.assets,
        notices=loaded.notices,
    )
    return finish(prepared, destination, options, progress)
