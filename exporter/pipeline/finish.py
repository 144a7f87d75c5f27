"""Prepared graph → staged folder → verification → artifact. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from exporter.accounting import count_nodes, file_bytes, stored_bytes
from exporter.artifact import Artifact, StagedArtifact
from exporter.early_exit import RULES
from exporter.errors import ArtifactError, ExportError, PassError, VerificationError
from exporter.inputs import ModelInputs
from exporter.manifest import ModelRecord, build_manifest
from exporter.onnx_files import write_model
from exporter.pipeline.baseline import BASELINE_NOTE, check_baseline, unshare
from exporter.pipeline.depth_errors import DepthProbe
from exporter.pipeline.options import ExportOptions, Prepared, Progress
from exporter.pipeline.variants import (
    StoredModel,
    check_opset,
    describe_missed,
    file_names,
    store_model,
)
from exporter.pipeline.verifying import DEPTH_INPUT, Verifier
from exporter.precision import Precision
from exporter.reference import REFERENCE_NAME, reference_document
from exporter.verification import Verification

__all__ = ["finish"]

FLOAT_PATH = "onnx/model.onnx"
_NEEDS_DEPTHS = (
    "needs a source that can run at other depths, to verify each: the reference encoder or "
    "ALBERT with one shared layer; export without it"
)


def finish(
    prepared: Prepared, destination: Path, options: ExportOptions, progress: Progress
) -> Artifact:
    """Write, verify and commit.

    The graph in float32 is written and verified whatever precisions are asked for: they are
    made from it. It leaves the artifact again where it was not asked for.

    Raises:
        VerificationError: the graph does not compute what the source does, or a precision is
            further from it than its tolerance.
        PassError: a precision misses eligible weights, and full coverage is required.
        ArtifactError: ``destination`` cannot be written.
    """
    inputs = _graph_inputs(prepared, options)
    precisions = options.chosen_precisions()
    reduced = [precision for precision in precisions if precision.rules]
    for precision in reduced:
        check_opset(prepared.model, precision)
    verifier = Verifier(prepared, inputs, keep_answers=bool(reduced))
    with StagedArtifact(destination, replace=options.replace) as staged:
        _add_assets(staged, prepared)
        progress("writing and verifying the model")
        path = _write(staged, FLOAT_PATH, prepared.model)
        exact = verifier.exact(path, options.atol)
        _check(exact, options, "the exported model is not the same model", "--atol")
        graph = _float_record(prepared, path, exact)
        models = {"fp32": graph}
        for record in _reduced_records(staged, prepared, reduced, verifier, options, progress):
            models[record.variant] = record
        if "fp32" not in (asked := [precision.name for precision in precisions]):
            staged.remove(FLOAT_PATH)
        chosen = [models[name] for name in asked]
        baseline = unshare(prepared.unrolled)
        if options.with_baseline:
            progress("writing the unshared baseline")
            chosen += _baseline_records(staged, baseline, precisions, inputs)
        cases = verifier.reference_cases()
        if cases:
            staged.add_json(REFERENCE_NAME, reference_document(cases))
        manifest = build_manifest(
            source=prepared.source,
            scheme=prepared.scheme,
            dedupe=options.dedupe,
            layout=prepared.layout.to_dict() if prepared.layout else None,
            unique_bytes=prepared.unique_bytes,
            unshared_bytes=stored_bytes(baseline),
            sharing=prepared.sharing,
            inputs=inputs,
            outputs=[str(value.name) for value in prepared.model.graph.outputs],
            graph=graph,
            models=chosen,
            reference=REFERENCE_NAME if cases else None,
            early_exit=_early_exit(prepared, options),
            notices=[
                *prepared.notices,
                *_padding_notices(exact),
                *_growth_notices(prepared, models, asked),
            ],
        )
        progress("committing the artifact")
        return staged.commit(manifest)


def _reduced_records(
    staged: StagedArtifact,
    prepared: Prepared,
    precisions: list[Precision],
    verifier: Verifier,
    options: ExportOptions,
    progress: Progress,
) -> Iterator[ModelRecord]:
    """Write and verify the model in each of ``precisions``."""
    if not precisions:
        return
    progress("running fewer passes, to see how errors grow")
    paths = file_names(options.chosen_precisions(), "onnx")
    probe = DepthProbe(prepared.rolled, prepared.inputs)
    for precision in precisions:
        progress(f"storing and verifying {precision.name}")
        stored = store_model(prepared.model, precision)
        _check_coverage(stored, options)
        path = _write(staged, paths[precision.name], stored.model)
        verification = verifier.relative(path, precision.tolerance)
        option = f"--tolerance {precision.name}="
        _check(verification, options, f"{precision.name} is too far from the model", option)
        is_rolled = prepared.rolled is prepared.model
        rolled = stored if is_rolled else store_model(prepared.rolled, precision)
        yield _record(
            precision.name,
            path,
            paths[precision.name],
            stored.model,
            passes=[record.to_dict() for record in stored.records],
            verification=verification,
            reference=prepared.reference_name,
            precision=precision.to_dict(),
            coverage=stored.coverage.to_dict() if stored.coverage else None,
            weights=stored.weights_report(),
            errors_by_depth=probe.errors(rolled.model).to_list(),
            notices=stored.notices,
        )


def _baseline_records(
    staged: StagedArtifact,
    baseline: ir.Model,
    precisions: tuple[Precision, ...],
    inputs: ModelInputs,
) -> Iterator[ModelRecord]:
    paths = file_names(precisions, "baseline")
    for precision in precisions:
        # Further uses have weights of their own there, called after the first.
        further = (f"{keep.pattern}_use_*" for keep in precision.keep)
        stored = store_model(baseline, precision.keeping(*further))
        path = _write(staged, paths[precision.name], stored.model)
        check_baseline(path, inputs)
        yield _record(
            "baseline" if precision.name == "fp32" else f"baseline-{precision.name}",
            path,
            paths[precision.name],
            stored.model,
            precision=precision.to_dict() if precision.rules else None,
            coverage=stored.coverage.to_dict() if stored.coverage else None,
            note=BASELINE_NOTE,
        )


def _float_record(prepared: Prepared, path: Path, verification: Verification) -> ModelRecord:
    return _record(
        "fp32",
        path,
        FLOAT_PATH,
        prepared.model,
        passes=[record.to_dict() for record in prepared.passes],
        verification=verification,
        reference=prepared.reference_name,
    )


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


def _graph_inputs(prepared: Prepared, options: ExportOptions) -> ModelInputs:
    if options.early_exit is not None:
        if prepared.exit_cases is None:
            raise ExportError(f"--early-exit {_NEEDS_DEPTHS}")
        rule = RULES[options.early_exit]
        return replace(prepared.inputs, specs=(*prepared.inputs.specs, *rule.inputs))
    if not options.elastic_depth:
        return prepared.inputs
    if prepared.reference_at_depth is None:
        raise ExportError(f"--elastic-depth {_NEEDS_DEPTHS}")
    return replace(prepared.inputs, specs=(*prepared.inputs.specs, DEPTH_INPUT))


def _early_exit(prepared: Prepared, options: ExportOptions) -> dict[str, Any] | None:
    """What the manifest says about the early exit."""
    if options.early_exit is None:
        return None
    assert prepared.layout is not None
    rule = RULES[options.early_exit]
    layers = int(prepared.layout.loops[0]["iterations"])
    return {"rule": rule.name, "input": rule.setting.name, "never": rule.never, "layers": layers}


def _padding_notices(verification: Verification) -> list[str]:
    if not any(case.excluded_rows for case in verification.cases):
        return []
    return [
        "rows of nothing but padding give another result than in the source; they were left "
        "out of the comparison: do not feed any, or ignore what they give"
    ]


def _growth_notices(
    prepared: Prepared, models: Mapping[str, ModelRecord], asked: Sequence[str]
) -> list[str]:
    """Say which files came out larger than what they were made from.

    A checkpoint holds no graph, so that its size says nothing about the file's.
    """
    graph, given = models["fp32"], prepared.source.get("file_bytes")
    notices = []
    if "fp32" in asked and given is not None and graph.file_bytes > given:
        notices.append(
            f"{graph.path} is larger than the input file, {graph.file_bytes:,} bytes against "
            f"{given:,}: there was next to nothing to save"
        )
    notices += [
        f"{model.variant} is larger than float32, {model.file_bytes:,} bytes against "
        f"{graph.file_bytes:,}: so small a model gains nothing by it; use fp32"
        for model in models.values()
        if model.file_bytes > graph.file_bytes
    ]
    return notices


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


def _check_coverage(stored: StoredModel, options: ExportOptions) -> None:
    if options.require_full_coverage and stored.coverage and not stored.coverage.is_full:
        raise PassError(
            f"{stored.precision.name} {describe_missed(stored.coverage)}; nothing was written; "
            "--keep NAME leaves a weight on purpose"
        )


def _check(
    verification: Verification, options: ExportOptions, what: str, limit_option: str
) -> None:
    if verification.verdict.status != "failed" or options.keep_failed:
        return
    reasons = verification.verdict.reasons
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    raise VerificationError(
        f"{what}: {reasons[0]}{more}; nothing was written; "
        f"--keep-failed keeps it for a look, {limit_option} sets another limit"
    )
