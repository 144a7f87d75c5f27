"""What loading a checkpoint gives: the module, its inputs, and who shares what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn
from torch.export import ExportedProgram

from exporter.checkpoint.sharing_map import SharingMap
from exporter.inputs import ModelInputs

__all__ = ["LoadedModel", "Source"]


@dataclass(frozen=True)
class Source:
    """Where a model came from.

    Args:
        name: file or folder name, without the path that led to it.
        kind: ``reference``, ``huggingface``, ``exported_program`` or ``pickled_module``.
        sha256: hash of the file, or of the folder's weights and configuration.
    """

    name: str
    kind: str
    sha256: str


@dataclass
class LoadedModel:
    """A model in memory, ready for capture.

    Args:
        module: the PyTorch module, in the training mode it was saved in; its ``forward``
            takes the inputs by name.
        inputs: input names, types, shapes and limits.
        output_names: names of the tensors ``module`` returns, in order; empty when they
            follow from what it returns.
        sharing: parameters and who shares them.
        scheme: sharing scheme in words: ``all``, ``grouped(3)``, ``none``, or ``unknown``.
        source: where it came from.
        program: the exported program, for a ``.pt2`` (``module`` is then its module).
        config: content for the artifact's ``config.json``.
        assets: further files for the artifact: name in the artifact → path.
        notices: what the person should know (upcast weights, missing tokenizer, …).
    """

    module: nn.Module
    inputs: ModelInputs
    output_names: tuple[str, ...]
    sharing: SharingMap
    scheme: str
    source: Source
    program: ExportedProgram | None = None
    config: Mapping[str, Any] | None = None
    assets: Mapping[str, Path] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
