"""The demo page with a model that leaves its layers early."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from exporter.artifact import Artifact
from exporter.early_exit import LAYERS_USED
from exporter.evaluation.examples import Example, Examples
from exporter.evaluation.texts import TextEncoder
from exporter.pipeline import ExportOptions, export_model
from exporter.runtimes.cpu import CpuSession
from tests.web.conftest import DEMO_MODEL
from tests.web.driving import Driven
from tests.web.sentences import SENTENCES
from tests.web.serving import PagesServer, serving
from tests.web.test_demo_page import ANSWERED, start

THRESHOLD = 0.9


@pytest.fixture(scope="module")
def leaving(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The demo model; its fp32 is calibrated, its int8 is not."""
    folder = tmp_path_factory.mktemp("exit") / "exit"
    options = ExportOptions(precisions=("fp32", "int8"), early_exit="confidence")
    artifact = export_model(DEMO_MODEL, folder, options)
    fp32, int8 = artifact.manifest["models"]
    models = [{**fp32, "calibration": {"value": THRESHOLD}}, int8]
    return artifact.with_manifest({**artifact.manifest, "models": models})


@pytest.fixture(scope="module")
def site_of_leaving(
    leaving: Artifact, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PagesServer]:
    with serving([leaving.folder], tmp_path_factory.mktemp("site")) as server:
        yield server


def facts(browser: Driven, sentence: str) -> str:
    browser.evaluate(
        f"""(() => {{
          const text = document.querySelector('#text');
          text.value = {sentence!r};
          text.dispatchEvent(new Event('input'));
        }})()"""
    )
    browser.wait(ANSWERED)
    return browser.text("#answer-facts")


def passes_by_hand(artifact: Artifact, sentence: str) -> int:
    encoder = TextEncoder.load(artifact)
    texts = encoder.encode(Examples("", "", (Example(sentence, "", 1),)))
    feeds = next(encoder.batches(texts, 1)).feeds
    session = CpuSession(artifact.models()["fp32"], threads=1)
    threshold = {"exit_threshold": np.array(THRESHOLD, np.float32)}
    return int(session.run(feeds | threshold)[LAYERS_USED][0])


def test_the_page_shows_how_many_passes_each_sentence_needed(
    chromium: Driven, site_of_leaving: PagesServer, leaving: Artifact
) -> None:
    start(chromium, site_of_leaving, "fp32")
    assert not chromium.evaluate("!document.querySelector('#depth-field').hidden")
    layers = leaving.manifest["early_exit"]["layers"]
    sentences = [text for text in SENTENCES if text.isascii() and "'" not in text][:6]
    assert len(sentences) == 6
    expected = [passes_by_hand(leaving, sentence) for sentence in sentences]
    shown = [facts(chromium, sentence) for sentence in sentences]
    for text, passes in zip(shown, expected, strict=True):
        assert text.endswith(f"{passes} of {layers} passes through the layer.")
    assert len(set(expected)) > 1


def test_a_version_that_was_not_calibrated_makes_all_passes(
    chromium: Driven, site_of_leaving: PagesServer, leaving: Artifact
) -> None:
    start(chromium, site_of_leaving, "int8")
    layers = leaving.manifest["early_exit"]["layers"]
    assert f"{layers} of {layers} passes through the layer." in chromium.text("#answer-facts")
