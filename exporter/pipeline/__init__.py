"""The use cases, calling the modules in the order data flows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.artifact import Artifact
from exporter.checkpoint.graph_file import find_graph_file
from exporter.pipeline.options import DEFAULT_ATOL, ExportOptions, Progress

__all__ = ["DEFAULT_ATOL", "ExportOptions", "Progress", "as_record", "export_model"]


def export_model(
    source: Path,
    destination: Path,
    options: ExportOptions | None = None,
    progress: Progress = lambda step: None,
) -> Artifact:
    """Export ``source`` as a verified artifact at ``destination``.

    Args:
        source: an ONNX file or a folder with one, or any checkpoint that
            :func:`exporter.checkpoint.load_checkpoint` reads.
        destination: the artifact's folder.
        options: see there.
        progress: called at the start of each step.

    Raises:
        ExportError: one of its subclasses, by the step that failed.
    """
    if (graph := find_graph_file(source)) is not None:
        from exporter.pipeline.graph import export_graph

        return export_graph(graph, source, destination, options, progress)
    from exporter.pipeline.checkpoint import export_checkpoint

    return export_checkpoint(source, destination, options, progress)


def as_record(artifact: Artifact) -> dict[str, Any]:
    """Return the record that ``--json`` prints: the manifest and where it lies."""
    return {"artifact": str(artifact.folder), **artifact.manifest}
