"""What loading a checkpoint gives: the module, its inputs, and who shares what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import nn
from torch.export import ExportedProgram

from exporter.checkpoint.sharing_map import SharingMap
from exporter.inputs import ModelInputs

__all__ = ["DepthPlan", "LoadedModel", "Source"]


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


@dataclass(frozen=True)
class DepthPlan:
    """How to run and capture a deep model with another depth than its own.

    Args:
        depths: passes through each repeated block, in order, as the model really makes them.
        at: gives a context in which the module makes so many passes through each.
    """

    depths: tuple[int, ...]
    at: Callable[[int], AbstractContextManager[None]]

    @classmethod
    def of(
        cls, blocks: Sequence[int], at: Callable[[int], AbstractContextManager[None]]
    ) -> DepthPlan | None:
        """Make a plan from the block that each layer uses.

        Args:
            blocks: block used by each layer, such as ``0 0 0 1 1 1``. There is no plan
                where one block is used in several places.
            at: see the class.
        """
        depths = tuple(len(list(run)) for _, run in groupby(blocks))
        return cls(depths, at) if len(depths) == len(set(blocks)) else None


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
        depth_plan: how to give it another depth, where that is possible.
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
    depth_plan: DepthPlan | None = None
    program: ExportedProgram | None = None
    config: Mapping[str, Any] | None = None
    assets: Mapping[str, Path] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
