from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

import exporter
from exporter.artifact import MANIFEST_NAME, Artifact, sha256_file
from exporter.json_files import read_json
from exporter.pipeline import ExportOptions, export_model
from tests.web.driving import Driven, driven
from tests.web.serving import PagesServer, serving

DEMO_MODEL = Path(exporter.__file__).parent / "demo_model" / "model.pt"


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model's artifact: fp32 and int8, elastic, with their unshared baselines."""
    folder = tmp_path_factory.mktemp("demo") / "demo"
    options = ExportOptions(precisions=("fp32", "int8"), with_baseline=True, elastic_depth=True)
    return export_model(DEMO_MODEL, folder, options).folder


@pytest.fixture(scope="package")
def without_tokenizer(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same artifact, from a source that had no tokenizer."""
    folder = tmp_path_factory.mktemp("bare") / "bare"
    shutil.copytree(demo, folder)
    manifest = read_json(folder / MANIFEST_NAME)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
        del manifest["files"][name]
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="package")
def outside(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same artifact, with the weights of its fp32 file in a file of their own."""
    folder = tmp_path_factory.mktemp("outside") / "outside"
    shutil.copytree(demo, folder)
    path = folder / Artifact.load(demo).models()["fp32"].relative_to(demo)
    data = path.with_name(f"{path.name}_data")
    onnx.save_model(
        onnx.load(path), path, save_as_external_data=True, location=data.name, size_threshold=1024
    )
    manifest = read_json(folder / MANIFEST_NAME)
    for file in (path, data):
        record = {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
        manifest["files"][file.relative_to(folder).as_posix()] = record
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


@pytest.fixture(scope="package")
def site(
    demo: Path, without_tokenizer: Path, outside: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PagesServer]:
    """The pages with the demo model first."""
    with serving([demo, without_tokenizer, outside], tmp_path_factory.mktemp("site")) as server:
        yield server


@pytest.fixture
def server(site: PagesServer) -> Iterator[PagesServer]:
    """The same, with the faults of one test."""
    yield site
    site.faults.clear()


@pytest.fixture(scope="package")
def chromium() -> Iterator[Driven]:
    """Chromium, for all tests of the pages."""
    with driven("chromium") as browser:
        yield browser


@pytest.fixture(scope="package")
def firefox() -> Iterator[Driven]:
    """Firefox, likewise."""
    with driven("firefox") as browser:
        yield browser


@pytest.fixture(params=["chromium", "firefox"])
def browser(request: pytest.FixtureRequest) -> Driven:
    """Each of the two."""
    found: Driven = request.getfixturevalue(request.param)
    return found
