"""The use cases: one function each, calling the modules in the order data flows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from exporter.accounting import count_graph, file_bytes, stored_bytes
from exporter.artifact import Artifact, StagedArtifact, check_destination
from exporter.capture import DEFAULT_OPSET, capture
from exporter.checkpoint import LoadedModel, load_checkpoint
from exporter.errors import ArtifactError, ExportError, VerificationError
from exporter.inputs import Feeds, ModelInputs, verification_cases
from exporter.manifest import ModelRecord, build_manifest
from exporter.onnx_files import write_model
from exporter.passes.recipes import PassRecord, SharingContract, capture_recipe, run_recipe
from exporter.passes.unshare_initializers import UnshareInitializersPass
from exporter.runtimes.cpu import CpuSession
from exporter.source_model import source_runner
from exporter.verification import Verification, compare, judge

__all__ = ["DEFAULT_ATOL", "ExportOptions", "Progress", "as_record", "export_checkpoint"]

DEFAULT_ATOL = 1e-5
Progress = Callable[[str], None]
"""Called with a few words at the start of each step."""

MODEL_PATH = "onnx/model.onnx"
BASELINE_PATH = "baseline/model.onnx"
BASELINE_SEED = 0


@dataclass(frozen=True)
class ExportOptions:
    """What :func:`export_checkpoint` should do.

    Args:
        dedupe: de-duplicate shared weights; off, the exporter's graph is kept as it is.
        with_baseline: also write the unshared baseline.
        opset: ONNX opset of the graph.
        atol: largest absolute difference from PyTorch that passes.
        inputs: input specifications in the command line's notation.
        trust_pickle: allow a pickle that can run code.
        import_paths: folders where a pickled module's classes are found.
        replace: replace an artifact that stands at the destination.
        keep_failed: commit the artifact even if verification fails, marked as failed.
    """

    dedupe: bool = True
    with_baseline: bool = False
    opset: int = DEFAULT_OPSET
    atol: float = DEFAULT_ATOL
    inputs: Sequence[str] = ()
    trust_pickle: bool = False
    import_paths: Sequence[Path] = ()
    replace: bool = False
    keep_failed: bool = False


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
    captured = capture(loaded, opset=options.opset)
    model = captured.model
    progress("de-duplicating weights" if options.dedupe else "removing export traces")
    contract = SharingContract(loaded.sharing.held_bytes + captured.constant_bytes)
    steps = capture_recipe(dedupe=options.dedupe)
    records = run_recipe(model, steps, contract if options.dedupe else None)
    baseline = _unshare(model)

    with StagedArtifact(destination, replace=options.replace) as staged:
        _add_assets(staged, loaded)
        progress("writing and verifying the model")
        main = _write(staged, MODEL_PATH, "fp32", model, records, verify=(loaded, options.atol))
        models = [main]
        if options.with_baseline:
            progress("writing the unshared baseline")
            models.append(_write_baseline(staged, baseline, loaded.inputs))
        manifest = build_manifest(
            source=asdict(loaded.source),
            scheme=loaded.scheme,
            dedupe=options.dedupe,
            unique_bytes=loaded.sharing.held_bytes,
            unshared_bytes=stored_bytes(baseline),
            sharing=loaded.sharing.to_dict(),
            inputs=loaded.inputs,
            outputs=[str(value.name) for value in model.graph.outputs],
            models=models,
            notices=loaded.notices,
        )
        assert main.verification is not None
        failed = main.verification.verdict.status == "failed"
        if failed and not options.keep_failed:
            raise VerificationError(_failure(main.verification))
        return staged.commit(manifest)


def verify_file(
    path: Path,
    inputs: ModelInputs,
    reference: Callable[[Feeds], Mapping[str, np.ndarray]],
    atol: float,
) -> Verification:
    """Compare an ONNX file in onnxruntime with ``reference`` on the standard inputs."""
    session = CpuSession(path, inputs=inputs)
    cases = verification_cases(inputs)
    return judge(
        tuple(compare(c.name, reference(c.feeds), session.run(c.feeds)) for c in cases), atol
    )


def _unshare(model: ir.Model) -> ir.Model:
    """Clone ``model`` with weights of its own at each use; they are made when written."""
    clone = model.clone()
    UnshareInitializersPass(seed=BASELINE_SEED)(clone)
    return clone


def _add_assets(staged: StagedArtifact, loaded: LoadedModel) -> None:
    if loaded.config is not None:
        staged.add_json("config.json", loaded.config)
    for name, path in loaded.assets.items():
        staged.add_file(name, path)


def _write(
    staged: StagedArtifact,
    name: str,
    variant: str,
    model: ir.Model,
    passes: Sequence[PassRecord] = (),
    *,
    verify: tuple[LoadedModel, float] | None = None,
    note: str | None = None,
) -> ModelRecord:
    path = staged.folder / name
    try:
        write_model(model, path)
    except OSError as error:
        raise ArtifactError(f"cannot write {name}: {error.strerror}") from error
    verification = None
    if verify is not None:
        loaded, atol = verify
        verification = verify_file(path, loaded.inputs, source_runner(loaded), atol)
    return ModelRecord(
        variant=variant,
        path=name,
        opset=model.opset_imports[""],
        nodes=count_graph(model).nodes,
        stored_bytes=stored_bytes(model),
        file_bytes=file_bytes(path),
        passes=[record.to_dict() for record in passes],
        verification=verification,
        note=note,
    )


def _write_baseline(staged: StagedArtifact, baseline: ir.Model, inputs: ModelInputs) -> ModelRecord:
    record = _write(
        staged,
        BASELINE_PATH,
        "baseline",
        baseline,
        note="unshared baseline: the same architecture with different weights per use, "
        "for measuring; its answers mean nothing",
    )
    # Its outputs have no reference, but it must load, run and stay finite.
    session = CpuSession(staged.folder / BASELINE_PATH, inputs=inputs)
    for name, value in session.run(verification_cases(inputs)[0].feeds).items():
        if not np.isfinite(value).all():
            raise ExportError(f"output {name!r} of the unshared baseline is not finite")
    return record


def _failure(verification: Verification) -> str:
    reasons = verification.verdict.reasons
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return (
        f"the exported model is not the same model: {reasons[0]}{more}; nothing was written; "
        "--keep-failed keeps it for a look, --atol sets another limit"
    )


def as_record(artifact: Artifact) -> dict[str, Any]:
    """Return the record that ``--json`` prints: the manifest and where it lies."""
    return {"artifact": str(artifact.folder), **artifact.manifest}
