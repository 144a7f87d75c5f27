"""The model files that are measured, and what an artifact says about each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.accounting import file_bytes
from exporter.artifact import Artifact, artifact_names
from exporter.benchmark.leaving_early import leaving_subject
from exporter.benchmark.text_sample import TextSample
from exporter.comparisons import BASELINE, is_baseline
from exporter.errors import BenchmarkError
from exporter.exit_setting import ExitSetting, calibrated_setting
from exporter.inputs import ModelInputs
from exporter.records import ModelFile

__all__ = [
    "Subject",
    "choose_subjects",
    "model_file",
]


@dataclass(frozen=True)
class Subject:
    """One model file.

    Args:
        artifact: the artifact's name, unlike that of any other that is measured.
        variant: ``fp32``, ``int8``, ``baseline``, …
        path: the file.
        files: the file and its external data.
        model: what records say about it.
        inputs: what it takes.
        reference: the artifact's reference vectors, where this file has to meet them.
        tolerance: largest relative error against them.
        sample: texts to run it on; ``None``: random ids.
        leaves: when it leaves early, which ``path`` is set to: a copy of the artifact's file.
    """

    artifact: str
    variant: str
    path: Path
    files: tuple[Path, ...]
    model: ModelFile
    inputs: ModelInputs
    reference: Path | None = None
    tolerance: float | None = None
    sample: TextSample | None = None
    leaves: ExitSetting | None = None


def choose_subjects(
    artifacts: Sequence[Artifact],
    *,
    variants: Sequence[str] = (),
    baseline: bool | None = None,
    samples: Sequence[TextSample] = (),
    work: Path | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> list[Subject]:
    """Return the files to measure, those of each artifact in the manifest's order.

    Args:
        artifacts: where they are.
        variants: which; empty: all. Baselines that are to be there are the plain one, and
            those among ``variants``: where there are none, those of the other ``variants``.
        baseline: ``True``: every artifact must have one; ``False``: none is measured.
        samples: texts to run each artifact on; none: random ids.
        work: folder for copies of the models that were calibrated to leave early: each is
            measured on texts a second time, leaving early; ``None``: it is not.
        notice: told what an artifact lacks that another one has.

    Raises:
        BenchmarkError: nothing to measure, or no artifact has such a variant.
    """
    subjects: list[Subject] = []
    found: set[str] = set()
    names = artifact_names([artifact.folder for artifact in artifacts])
    given: Sequence[TextSample | None] = samples or [None] * len(artifacts)
    for name, artifact, sample in zip(names, artifacts, given, strict=True):
        present = list(artifact.models())
        chosen = _chosen(present, variants, baseline)
        found.update(chosen)
        missing = [variant for variant in variants if variant not in present]
        if missing:
            notice(f"{name} holds no {', '.join(missing)}; it holds {', '.join(present)}")
        if baseline and BASELINE not in present:
            raise BenchmarkError(
                f"{name} holds no unshared baseline; export it with --with-baseline"
            )
        for variant in chosen:
            subject = replace(_subject(name, artifact, variant), sample=sample)
            subjects.append(subject)
            setting = calibrated_setting(artifact, variant) if sample and work else None
            if setting is not None and work is not None:
                # Folders are numbered, since a name may hold what makes no address.
                copy = leaving_subject(subject, setting, work / str(len(subjects)))
                subjects.append(copy)
    unknown = [variant for variant in variants if variant not in found]
    if unknown or not subjects:
        present = list(dict.fromkeys(v for artifact in artifacts for v in artifact.models()))
        wanted = ", ".join(unknown) or "anything to measure"
        raise BenchmarkError(f"no artifact holds {wanted}; there are: {', '.join(present)}")
    return subjects


def model_file(artifact: Artifact, variant: str) -> ModelFile:
    """Describe one file of ``artifact`` for a record; transfer bytes are not known yet."""
    path = artifact.models()[variant]
    name = path.relative_to(artifact.folder).as_posix()
    return ModelFile(
        path=name,
        sha256=artifact.digest_of(name),
        file_bytes=file_bytes(path),
    )


def _subject(name: str, artifact: Artifact, variant: str) -> Subject:
    record = next(r for r in artifact.manifest["models"] if r["variant"] == variant)
    reference = artifact.manifest.get("reference")
    tolerance = record.get("tolerance")
    return Subject(
        artifact=name,
        variant=variant,
        path=artifact.folder / record["path"],
        files=tuple(artifact.folder / part for part in artifact.files_of(record["path"])),
        model=model_file(artifact, variant),
        inputs=artifact.inputs,
        reference=artifact.folder / reference if reference and tolerance is not None else None,
        tolerance=tolerance,
    )


def _chosen(present: Sequence[str], variants: Sequence[str], baseline: bool | None) -> list[str]:
    wanted = [v for v in present if v in variants or not (variants or is_baseline(v))]
    named = {variant for variant in variants if is_baseline(variant)}
    baselines = {BASELINE, *(named or (f"{BASELINE}-{variant}" for variant in wanted))}
    if baseline is False:
        return [variant for variant in wanted if not is_baseline(variant)]
    # Where the artifact has only baselines of other precisions, they are still its models.
    return [v for v in present if v in wanted or (v in baselines and (wanted or not variants))]
