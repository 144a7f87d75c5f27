"""What an export should do, and what it works on. No torch here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from exporter.early_exit import RuleName
from exporter.errors import ExportError
from exporter.inputs import Feeds, ModelInputs
from exporter.passes.recipes import PassRecord
from exporter.pipeline.layout import LayoutChoice, LayoutReport
from exporter.precision import Keep, Precision, Target, choose_precisions

__all__ = ["DEFAULT_ATOL", "ExitCase", "ExportOptions", "Prepared", "Progress"]

DEFAULT_ATOL = 1e-5
Progress = Callable[[str], None]
"""Called with a few words at the start of each step."""


@dataclass(frozen=True)
class ExportOptions:
    """What an export should do.

    Args:
        dedupe: de-duplicate shared weights; off, the graph is kept as it came.
        layout: repeated layers as a loop (``rolled``), written out (``unrolled``), or
            ``auto``: rolled wherever layers repeat.
        fuse: pack products of one input, such as Q, K and V, into one.
        elastic_depth: make the number of passes through the layers an optional input.
        early_exit: leave the loop early by this rule; see :mod:`exporter.early_exit`.
        precisions: names of the precisions to write, each with or without commas between;
            see :func:`exporter.precision.choose_precisions`.
        target: what ``int4`` is made for.
        keep: shell patterns for names of weights, or of the nodes that use them, that stay
            in float32 in every precision.
        require_full_coverage: fail where a precision misses an eligible weight.
        tolerances: relative error allowed, by name of the precision, in place of its own.
        with_baseline: also write the unshared baseline, in the same precisions.
        opset: ONNX opset of a captured graph; ``None`` takes the default. A graph that
            comes as ``.onnx`` keeps its own.
        atol: largest absolute difference from the source that passes.
        inputs: input specifications in the command line's notation.
        trust_pickle: allow a pickle that can run code.
        import_paths: folders where a pickled module's classes are found.
        replace: replace an artifact that stands at the destination.
        keep_failed: commit the artifact even if verification fails, marked as failed.

    Raises:
        ExportError: options that exclude each other.
    """

    dedupe: bool = True
    layout: LayoutChoice = "auto"
    fuse: bool = True
    elastic_depth: bool = False
    early_exit: RuleName | None = None
    precisions: Sequence[str] = ("fp32",)
    target: Target = "web"
    keep: Sequence[str] = ()
    require_full_coverage: bool = False
    tolerances: Mapping[str, float] = field(default_factory=dict)
    with_baseline: bool = False
    opset: int | None = None
    atol: float = DEFAULT_ATOL
    inputs: Sequence[str] = ()
    trust_pickle: bool = False
    import_paths: Sequence[Path] = ()
    replace: bool = False
    keep_failed: bool = False

    def __post_init__(self) -> None:
        if not self.dedupe and (self.layout == "rolled" or self.elastic_depth):
            raise ExportError(
                "--no-dedupe keeps the graph as it came: it excludes --layout rolled and "
                "--elastic-depth"
            )
        if self.layout == "unrolled" and self.elastic_depth:
            raise ExportError("--elastic-depth needs a loop: it excludes --layout unrolled")
        if self.early_exit and (self.layout == "unrolled" or not self.dedupe):
            raise ExportError(
                "--early-exit needs a loop: it excludes --layout unrolled and --no-dedupe"
            )
        if self.early_exit and self.elastic_depth:
            raise ExportError(
                "--early-exit excludes --elastic-depth: its input max_layers is the depth"
            )
        chosen = {precision.name for precision in self.chosen_precisions()}
        if unknown := sorted(self.tolerances.keys() - chosen):
            raise ExportError(
                f"--tolerance is given for {unknown[0]}, which is not exported; exported are: "
                f"{', '.join(sorted(chosen))}"
            )
        if "fp32" in self.tolerances:
            raise ExportError("fp32 is held to an absolute difference: use --atol, not --tolerance")

    def kept(self) -> tuple[Keep, ...]:
        """Return the weights to keep."""
        return tuple(Keep(pattern) for pattern in self.keep)

    def chosen_precisions(self) -> tuple[Precision, ...]:
        """Return what ``precisions`` ask for, with ``keep`` and ``tolerances`` in them.

        Raises:
            ExportError: an unknown name.
        """
        return tuple(
            replace(
                precision.keeping(*self.keep) if precision.rules else precision,
                tolerance=self.tolerances.get(precision.name, precision.tolerance),
            )
            for precision in choose_precisions(self.precisions, self.target)
        )


@dataclass(frozen=True)
class ExitCase:
    """Settings of an early exit, and what the source gives with them.

    Args:
        name: the settings in words.
        settings: the optional inputs that say so.
        expected: the outputs, with ``layers_used``.
    """

    name: str
    settings: Feeds
    expected: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A graph ready to be written, and what it is to be compared with.

    Args:
        model: the graph, all passes done.
        unrolled: the same graph with every layer written out, for the unshared baseline.
        rolled: the same graph with its layers as loops, to see how errors grow with depth.
        layout: which layout it has, and why; ``None`` where it was kept as it came.
        passes: what each pass did.
        reference: gives the source's outputs for feeds.
        reference_at_depth: the same at another number of passes, for a model of elastic
            depth; ``None`` where the source cannot change its depth.
        exit_cases: what the source gives for feeds, by :class:`ExitCase`, where the graph is to
            leave early; ``None`` where it is not, or where the source cannot.
        reference_name: what ran the source, for tables: ``PyTorch`` or ``the input file``.
        inputs: what source and graph take.
        source: name, kind and hash of the source.
        scheme: sharing scheme in words.
        unique_bytes: bytes of the source's distinct weights.
        sharing: who shares what, as plain JSON values.
        config: content for the artifact's ``config.json``.
        assets: further files for the artifact: name in the artifact → path.
        notices: what the person should know.
    """

    model: ir.Model
    unrolled: ir.Model
    rolled: ir.Model
    layout: LayoutReport | None
    passes: Sequence[PassRecord]
    reference: Callable[[Feeds], Mapping[str, np.ndarray]]
    reference_name: str
    inputs: ModelInputs
    source: Mapping[str, Any]
    scheme: str
    unique_bytes: int
    sharing: Mapping[str, Any]
    reference_at_depth: Callable[[Feeds, int], Mapping[str, np.ndarray]] | None = None
    exit_cases: Callable[[Feeds], Sequence[ExitCase]] | None = None
    config: Mapping[str, Any] | None = None
    assets: Mapping[str, Path] = field(default_factory=dict)
    notices: Sequence[str] = ()
