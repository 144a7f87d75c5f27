"""From artifacts and options to what is to be measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exporter.artifact import Artifact
from exporter.benchmark.launcher import Launcher
from exporter.benchmark.options import BenchmarkOptions
from exporter.benchmark.plan import Run, plan_runs
from exporter.benchmark.results_file import read_results
from exporter.benchmark.resume import remaining_runs
from exporter.benchmark.subjects import choose_subjects
from exporter.benchmark.text_sample import TextSample, sample_texts
from exporter.benchmark.wire import with_wire_bytes
from exporter.records import Measurement

__all__ = ["Prepared", "prepare"]

_USUAL_BROWSER = "chromium"


@dataclass(frozen=True)
class Prepared:
    """What is to be measured.

    Args:
        runs: in order.
        held: records that a results file holds already.
        manifests: of the artifacts, each once.
        notices: what a person should know.
    """

    runs: tuple[Run, ...]
    held: tuple[Measurement, ...]
    manifests: tuple[Mapping[str, Any], ...]
    notices: tuple[str, ...]


def prepare(
    folders: Sequence[Path],
    options: BenchmarkOptions,
    launcher: Launcher,
    *,
    cache: Path,
    work: Path | None = None,
    transfer: bool | None = None,
    resume: Path | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Prepared:
    """Read the artifacts, compare their files with their hashes, compress, and plan.

    All of it comes before the first measurement, so that none of it disturbs one.

    Args:
        folders: artifacts.
        options: what to measure.
        launcher: tells which browsers there are.
        cache: folder for what is worth remembering.
        work: folder for copies of models, needed as long as is measured, where the options name
            texts; ``None``: no model leaves early.
        transfer: whether to compress the files; ``None``: all but large baselines.
        resume: a results file; what it holds is not measured again.
        progress: told each step.

    Raises:
        ArtifactError: a folder is no artifact, or a file is not the one it describes.
        BenchmarkError: sizes that do not fit, a variant that is nowhere, texts that cannot be
            read, a file to resume that holds something else.
    """
    notices: list[str] = []
    records = read_results(resume, notices.append) if resume is not None and resume.exists() else ()
    artifacts = []
    for folder in dict.fromkeys(folders):
        progress(f"comparing the files of {folder.name} with their hashes")
        artifacts.append(Artifact.load(folder, check_hashes=True))
    loaded = {artifact.folder: artifact for artifact in artifacts}
    asked = [loaded[folder] for folder in folders]
    samples: Sequence[TextSample] = ()
    if options.data is not None:
        progress(f"reading {options.data.name}")
        samples = sample_texts(
            asked,
            options.data,
            options.min_runs,
            column=options.text_column,
            notice=notices.append,
        )
    subjects = choose_subjects(
        asked,
        variants=options.variants,
        baseline=options.baseline,
        samples=samples,
        work=work,
        notice=notices.append,
    )
    browsers: Sequence[str] = options.browsers
    if "browser" in options.runtimes and not browsers:
        browsers = launcher.browsers() or [_USUAL_BROWSER]
    plan_runs(subjects, options, browsers)  # sizes that do not fit show before the compressing
    if transfer is not False:
        subjects = with_wire_bytes(
            subjects, cache, all_sizes=transfer is True, progress=progress, notice=notices.append
        )
    manifests = tuple(artifact.manifest for artifact in artifacts)
    runs = tuple(plan_runs(subjects, options, browsers))
    if not records:
        return Prepared(runs, (), manifests, tuple(notices))
    rest = remaining_runs(runs, records, options, lambda arm: launcher.device(arm.case))
    if rest.held:
        notices.append(f"{resume} holds {len(rest.held)} of the cases already")
    if rest.again:
        notices.append(
            f"{rest.again} of the cases it holds are measured again, beside those that are "
            "compared with them"
        )
    return Prepared(rest.runs, rest.held, manifests, tuple(notices))
