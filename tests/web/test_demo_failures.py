"""What the demo page says when something is missing or broken: words, never a hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from exporter.artifact import Artifact
from exporter.runtimes.web_folder import web_folder
from tests.web.driving import Driven
from tests.web.serving import PagesServer
from tests.web.test_demo_page import ANSWERED, start

MODEL = "model_quantized.onnx"

REFUSE_LARGE_SHARED = """
const Refusing = WebAssembly.Memory;
WebAssembly.Memory = class extends Refusing {
  constructor(wanted) {
    if (wanted.shared && wanted.maximum > LIMIT) {
      throw new RangeError('WebAssembly.Memory(): could not allocate memory');
    }
    super(wanted);
  }
};
"""


def fail(browser: Driven, server: PagesServer) -> str:
    """Press start, wait for the words about the failure, and return them."""
    browser.open(f"{server.url}/demo/")
    browser.click("#start-button")
    browser.wait("['result', 'problem'].includes(document.body.dataset.state)")
    words = browser.text("#answer-problem")
    assert browser.evaluate("document.querySelector('#answer-problem').role") == "alert"
    assert browser.evaluate("document.querySelectorAll('#rows button').length") == 4
    if browser.name == "chromium":
        assert browser.do("workers") == 0
    return words


def model_bytes(demo: Path) -> bytes:
    return Artifact.load(demo).models()["int8"].read_bytes()


def binary(body: bytes) -> Callable[[], web.Response]:
    return lambda: web.Response(body=body, content_type="application/octet-stream")


def test_a_missing_model_is_named_and_trying_again_helps(
    browser: Driven, server: PagesServer
) -> None:
    server.faults[MODEL] = lambda: web.Response(status=404, text="there is no such file")
    words = fail(browser, server)
    assert "The server has no file /f/" in words
    assert MODEL in words
    server.faults.clear()
    browser.click("#answer-problem button")
    browser.wait(ANSWERED)
    assert browser.text("#answer .verdict").startswith("positive")


def test_a_truncated_model_is_recognized_by_its_length(
    browser: Driven, server: PagesServer, demo: Path
) -> None:
    whole = model_bytes(demo)
    server.faults[MODEL] = binary(whole[:400_000])
    words = fail(browser, server)
    assert f"arrived incomplete: 400000 of {len(whole)} bytes" in words


def test_a_damaged_model_of_the_right_length_is_no_model(
    chromium: Driven, server: PagesServer, demo: Path
) -> None:
    server.faults[MODEL] = binary(b"\xff" * len(model_bytes(demo)))
    assert "no model that can be read" in fail(chromium, server)


def test_a_web_page_in_place_of_the_model_is_named(browser: Driven, server: PagesServer) -> None:
    server.faults[MODEL] = lambda: web.Response(text="<h1>Log in</h1>", content_type="text/html")
    assert "a page of type text/html in place of the model file" in fail(browser, server)


def test_a_runtime_that_cannot_be_loaded_is_told(chromium: Driven, server: PagesServer) -> None:
    server.faults["ort.wasm.min.mjs"] = lambda: web.Response(status=404, text="gone")
    assert "runtime" in fail(chromium, server)


def test_a_server_that_is_gone_is_told_at_once(chromium: Driven, server: PagesServer) -> None:
    server.faults["/api/artifacts.json"] = lambda: web.Response(status=503, text="busy")
    chromium.open(f"{server.url}/demo/")
    chromium.wait("!document.querySelector('#page-problem').hidden")
    assert "cannot send /api/artifacts.json (status 503)" in chromium.text("#page-problem")


@pytest.mark.parametrize("limit", [8192, -1])
def test_refused_shared_memory_is_tried_once_more_modestly_and_then_told(
    browser: Driven, server: PagesServer, limit: int
) -> None:
    source = (web_folder() / "measure" / "memory.js").read_text(encoding="utf-8")
    script = REFUSE_LARGE_SHARED.replace("LIMIT", str(limit)) + source
    server.faults["/measure/memory.js"] = lambda: web.Response(
        text=script, content_type="text/javascript"
    )
    if limit < 0:
        words = fail(browser, server)
        assert "did not give the model enough memory" in words
        return
    start(browser, server)
    assert "on 1 thread of" in browser.text("#threads-note")
    assert "this browser refuses more memory" in browser.text("#threads-note")


def test_a_browser_without_simd_is_told_what_is_missing(
    chromium: Driven, server: PagesServer
) -> None:
    script = "WebAssembly.validate = () => false"
    chromium.open(f"{server.url}/demo/", script=script)
    chromium.wait("!document.querySelector('#page-problem').hidden")
    assert "no WebAssembly SIMD" in chromium.text("#page-problem")
    assert chromium.evaluate("document.querySelector('#start-button').disabled")


def test_cancelling_ends_the_worker_and_leaves_the_start_button(
    chromium: Driven, server: PagesServer
) -> None:
    chromium.open(f"{server.url}/demo/")
    chromium.wait("!document.querySelector('#start-button').disabled")
    chromium.evaluate("document.querySelector('#start-button').click()")
    chromium.evaluate("document.querySelector('#cancel-button').click()")
    chromium.wait("document.body.dataset.state === 'start'")
    assert "Nothing is loaded" in chromium.text("#start-note")
    chromium.wait("!document.querySelector('#start-button').disabled")
    assert chromium.do("workers") == 0
    chromium.click("#start-button")
    chromium.wait(ANSWERED)
