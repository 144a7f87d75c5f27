"""Prepared graph → staged folder → verification → artifact. No torch here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from exporter.accounting import count_nodes, file_bytes, stored_bytes
from exporter.artifact import Artifact, StagedArtifact
from exporter.errors import ArtifactError, ExportError, VerificationError
from exporter.inputs import InputSpec, ModelInputs, verification_cases
from exporter.manifest import ModelRecord, build_manifest
from exporter.onnx_files import write_model
from exporter.passes.fold_weight_transforms import FoldWeightTransformsPass
from exporter.passes.unshare_initializers import UnshareInitializersPass
from exporter.pipeline.options import ExportOptions, Prepared, Progress
from exporter.runtimes.cpu import CpuSession
from exporter.verification import Verification, compare, judge

__all__ = ["finish", "verify_file"]

MODEL_PATH = "onnx/model.onnx"
BASELINE_PATH = "baseline/model.onnx"
BASELINE_SEED = 0

DEPTH_INPUT = InputSpec("depth", "int64", (), optional=True)
"""Number of passes through the layers, where that is an input; all of them by default."""


def finish(
    prepared: Prepared, destination: Path, options: ExportOptions, progress: Progress
) -> Artifact:
    """Write, verify and commit.

    Raises:
        VerificationError: the graph does not compute what the source does.
        ArtifactError: ``destination`` cannot be written.
    """
    model, inputs = prepared.model, _graph_inputs(prepared, options)
    baseline = _unshare(prepared.unrolled)
    with StagedArtifact(destination, replace=options.replace) as staged:
        _add_assets(staged, prepared)
        progress("writing and verifying the model")
        path = _write(staged, MODEL_PATH, model)
        verification = verify_file(path, inputs, prepared, options.atol)
        failed = verification.verdict.status == "failed"
        if failed and not options.keep_failed:
            raise VerificationError(_failure(verification))
        models = [
            _record(
                "fp32",
                path,
                MODEL_PATH,
                model,
                passes=[record.to_dict() for record in prepared.passes],
                verification=verification,
                reference=prepared.reference_name,
            )
        ]
        if options.with_baseline:
            progress("writing the unshared baseline")
            models.append(_write_baseline(staged, baseline, inputs))
        manifest = build_manifest(
            source=prepared.source,
            scheme=prepared.scheme,
            dedupe=options.dedupe,
            layout=prepared.layout.to_dict() if prepared.layout else None,
            unique_bytes=prepared.unique_bytes,
            unshared_bytes=stored_bytes(baseline),
            sharing=prepared.sharing,
            inputs=inputs,
            outputs=[str(value.name) for value in model.graph.outputs],
            models=models,
            notices=[*prepared.notices, *_padding_notices(verification)],
        )
        progress("committing the artifact")
        return staged.commit(manifest)


def verify_file(path: Path, inputs: ModelInputs, prepared: Prepared, atol: float) -> Verification:
    """Compare an ONNX file in onnxruntime with its source on the standard inputs.

    A model of elastic depth is also compared at every depth up to its own, if the source
    can run at other depths.
    """
    session = CpuSession(path, inputs=inputs)
    cases = []
    for case in verification_cases(inputs):
        reference, candidate = prepared.reference(case.feeds), session.run(case.feeds)
        report = compare(case.name, reference, candidate)
        if case.padding_rows and not report.worst <= atol:
            # Attention over nothing has no agreed result: 0, uniform or NaN.
            report = compare(case.name, reference, candidate, exclude_rows=case.padding_rows)
        cases.append(report)
    if DEPTH_INPUT in inputs.specs:
        assert prepared.reference_at_depth is not None
        feeds = inputs.draw({symbol: min(8, inputs.limit(symbol)) for symbol in inputs.symbols})
        for depth in range(1, _own_depth(prepared) + 1):
            reference = prepared.reference_at_depth(feeds, depth)
            candidate = session.run(feeds | {DEPTH_INPUT.name: np.array(depth, np.int64)})
            cases.append(compare(f"depth {depth}", reference, candidate))
    return judge(tuple(cases), atol)


def _graph_inputs(prepared: Prepared, options: ExportOptions) -> ModelInputs:
    if not options.elastic_depth:
        return prepared.inputs
    if prepared.reference_at_depth is None:
        raise ExportError(
            "--elastic-depth needs a source that can run at other depths, to verify each: the "
            "reference encoder or ALBERT with one shared layer; export without it"
        )
    return replace(prepared.inputs, specs=(*prepared.inputs.specs, DEPTH_INPUT))


def _padding_notices(verification: Verification) -> list[str]:
    if not any(case.excluded_rows for case in verification.cases):
        return []
    return [
        "rows of nothing but padding give another result than in the source; they were left "
        "out of the comparison: do not feed any, or ignore what they give"
    ]


def _own_depth(prepared: Prepared) -> int:
    assert prepared.layout is not None
    return int(prepared.layout.loops[0]["iterations"])


def _unshare(model: ir.Model) -> ir.Model:
    """Clone ``model`` with weights of its own at each use; they are made when written."""
    clone = model.clone()
    UnshareInitializersPass(seed=BASELINE_SEED)(clone)
    # A table that was tied is read transposed; one of its own would be stored so.
    FoldWeightTransformsPass()(clone)
    return clone


def _add_assets(staged: StagedArtifact, prepared: Prepared) -> None:
    for name, path in prepared.assets.items():
        staged.add_file(name, path)
    if prepared.config is not None:
        staged.add_json("config.json", prepared.config)


def _write(staged: StagedArtifact, name: str, model: ir.Model) -> Path:
    path = staged.folder / name
    try:
        write_model(model, path)
    except OSError as error:
        raise ArtifactError(f"cannot write {name}: {error.strerror}") from error
    return path


def _record(variant: str, path: Path, name: str, model: ir.Model, **details: Any) -> ModelRecord:
    return ModelRecord(
        variant=variant,
        path=name,
        opset=model.opset_imports.get("", 1),
        nodes=count_nodes(model),
        stored_bytes=stored_bytes(model),
        file_bytes=file_bytes(path),
        **details,
    )


def _write_baseline(staged: StagedArtifact, baseline: ir.Model, inputs: ModelInputs) -> ModelRecord:
    path = _write(staged, BASELINE_PATH, baseline)
    # Its outputs have no reference, but it must load, run and stay finite.
    session = CpuSession(path, inputs=inputs)
    for name, value in session.run(verification_cases(inputs)[0].feeds).items():
        if not np.isfinite(value).all():
            raise ExportError(f"output {name!r} of the unshared baseline is not finite")
    note = (
        "unshared baseline: the same architecture with different weights per use, "
        "for measuring; its answers mean nothing"
    )
    return _record("baseline", path, BASELINE_PATH, baseline, note=note)


def _failure(verification: Verification) -> str:
    reasons = verification.verdict.reasons
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return (
        f"the exported model is not the same model: {reasons[0]}{more}; nothing was written; "
        "--keep-failed keeps it for a look, --atol sets another limit"
    )
