"""ONNX file → artifact. No torch: the file itself is what the result is compared with."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from exporter.accounting import count_graph, stored_bytes
from exporter.artifact import Artifact, check_destination
from exporter.checkpoint.graph_file import load_graph
from exporter.errors import CaptureError, CheckpointError, ExportError
from exporter.inputs import Feeds, ModelInputs, verification_cases
from exporter.memory import return_freed_memory
from exporter.onnx_files import external_files
from exporter.passes.recipes import SharingContract, capture_recipe, run_recipe
from exporter.pipeline.finish import finish
from exporter.pipeline.layout import LaidOut, lay_out
from exporter.pipeline.options import ExportOptions, Prepared, Progress
from exporter.runtimes.cpu import CpuSession

__all__ = ["export_graph"]


def export_graph(
    path: Path,
    source: Path,
    destination: Path,
    options: ExportOptions | None = None,
    progress: Progress = lambda step: None,
) -> Artifact:
    """Repair the ONNX file ``path`` and write it as a verified artifact.

    Args:
        path: the ONNX file.
        source: what the person gave: the file, or a folder that holds it.
        destination: the artifact's folder.
        options: see there; those about PyTorch have no effect.
        progress: called at the start of each step.

    Raises:
        CheckpointError: the file cannot be read or run.
        PassError: a transformation lost the sharing.
        VerificationError: the result does not compute what the file does.
        ArtifactError: ``destination`` cannot be written.
    """
    options = options or ExportOptions()
    check_destination(destination, replace=options.replace, source=source)
    check_destination(destination, replace=options.replace, source=path)
    progress("reading the ONNX file")
    loaded = load_graph(path, inputs=options.inputs)
    opset = loaded.model.opset_imports.get("", 1)
    if options.opset not in (None, opset):
        raise CaptureError(
            f"{path.name} is written in opset {opset} and keeps it; leave --opset out"
        )
    session = CpuSession(path)
    inputs = _with_limits(loaded.inputs, session)
    reference = _recorded(session, inputs)
    del session
    return_freed_memory()
    if options.early_exit is not None:
        raise ExportError(
            "--early-exit needs a checkpoint, to verify every pass: an ONNX file gives the last "
            "one alone; export the model from its checkpoint"
        )
    before = stored_bytes(loaded.model)
    given = sum(file.stat().st_size for file in {loaded.path, *external_files(loaded.model)})
    graph = LaidOut(loaded.model, loaded.model, loaded.model, (), None)
    if options.dedupe:
        progress("sharing weights and rolling layers")
        contract = SharingContract(before)
        stripped = run_recipe(loaded.model, capture_recipe())
        graph = lay_out(
            loaded.model,
            options.layout,
            contract,
            elastic=options.elastic_depth,
            fuse=options.fuse,
            keep=options.kept(),
        )
        graph = replace(graph, records=(*stripped, *graph.records))
    prepared = Prepared(
        model=graph.model,
        unrolled=graph.unrolled,
        rolled=graph.rolled,
        layout=graph.report,
        passes=graph.records,
        reference=reference,
        reference_name="the input file",
        inputs=inputs,
        source={
            "name": source.absolute().name,
            "kind": "onnx",
            "sha256": loaded.sha256,
            "stored_bytes": before,
            "file_bytes": given,
        },
        scheme="unknown",
        unique_bytes=count_graph(graph.model).unique_bytes,
        sharing={},
        config=loaded.config,
        assets=loaded.assets,
        notices=loaded.notices,
    )
    return finish(prepared, destination, options, progress)


def _recorded(
    session: CpuSession, inputs: ModelInputs
) -> Callable[[Feeds], Mapping[str, np.ndarray]]:
    """Run the standard inputs now, so that the session need not stay.

    It holds all weights of the file, with every copy that the result does without.
    """
    answers = {_key(case.feeds): session.run(case.feeds) for case in verification_cases(inputs)}
    return lambda feeds: answers[_key(feeds)]


def _key(feeds: Feeds) -> Hashable:
    return tuple((name, array.shape, array.tobytes()) for name, array in sorted(feeds.items()))


def _with_limits(inputs: ModelInputs, session: CpuSession) -> ModelInputs:
    """Find the largest size of each symbol that the file itself runs, where it is small.

    A file does not say how long a sequence it takes. One that fails at the standard size
    has a lower limit, which is searched for; one that runs has none that is known.
    """
    limits = dict(inputs.limits)
    for symbol in inputs.symbols:
        if symbol in limits or symbol == "batch":
            continue
        works, fails = 0, inputs.limit(symbol) + 1
        size = inputs.limit(symbol)
        while fails - works > 1:
            if _runs(session, inputs, symbol, size):
                works = size
            else:
                fails = size
            size = (works + fails) // 2
        if not works:
            raise CheckpointError(
                f"{session.path.name} does not run with {symbol} of any size up to "
                f"{inputs.limit(symbol)}; describe its inputs with --input"
            )
        if works < inputs.limit(symbol):
            limits[symbol] = works
    return ModelInputs(inputs.specs, limits)


def _runs(session: CpuSession, inputs: ModelInputs, symbol: str, size: int) -> bool:
    sizes = {other: size if other == symbol else 1 for other in inputs.symbols}
    try:
        session.run(inputs.draw(sizes))
    except ExportError:
        return False
    return True
