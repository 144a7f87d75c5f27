"""What visits cost on the wire, over https with a certificate that a person had to accept.

Chromium then allows no service worker, and its own cache keeps nothing: the hardest case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.web.driving import Driven
from tests.web.secure import SecureServer, serving_securely

FIRST_VISIT_BYTES = 2_600_000
SECOND_VISIT_BYTES = 50_000

RUNTIME = ("ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "ort.wasm.min.mjs")

ACTIVE = "document.querySelector('tr[data-variant=int8][data-active] [data-ms]')"

# The page's own store is full; that of its workers, whose realm is another one, is not.
REFUSE = """
Cache.prototype.put = () => Promise.reject(new DOMException('full', 'QuotaExceededError'))
"""
# The page that a browser draws for a certificate has a store, too, and no title of ours.
HERE = "document.title.includes('albert-export')"


@pytest.fixture(scope="module")
def secure(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServer]:
    with serving_securely(demo, tmp_path_factory.mktemp("secure") / "log.jsonl") as server:
        yield server


def answer(browser: Driven) -> dict[str, float]:
    """Ask the model, wait until it is timed, and return what the page tells of the visit."""
    browser.wait(f"{HERE} && !document.querySelector('#start-button').disabled")
    browser.click("#start-button")
    browser.wait(f"{ACTIVE} && document.querySelector('[data-active] td:nth-child(5) .sub')")
    told = browser.evaluate(f"({{ ...{ACTIVE}.dataset }})")
    return {"ms": float(told["ms"]), "first": float(told["firstVisitMs"])}


def test_a_visit_downloads_everything_once_and_the_next_one_the_pages(
    chromium: Driven, secure: SecureServer
) -> None:
    start = len(secure.transfers())
    chromium.open(f"{secure.url}/demo/", lasting=True)
    assert chromium.evaluate("isSecureContext && crossOriginIsolated")
    first = answer(chromium)
    assert first["ms"] == first["first"] > 0
    assert "on 1 thread of 1 asked for" in chromium.text("#threads-note")
    transfers = secure.transfers(start)

    counted = Counter(entry["path"] for entry in transfers if entry["sent_bytes"])
    assert [path for path, times in counted.items() if times > 1] == []
    model = [entry for entry in transfers if entry["path"].startswith("/f/")]
    rest = [entry for entry in transfers if entry not in model]
    assert 2_000_000 < sum(entry["sent_bytes"] for entry in rest) <= FIRST_VISIT_BYTES
    by_name = {entry["path"].rsplit("/", 1)[1]: entry for entry in model}
    assert by_name.keys() == {
        "config.json",
        "model_quantized.onnx",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    catalogue = chromium.evaluate("fetch('/api/artifacts.json').then((answer) => answer.json())")
    (int8,) = (v for v in catalogue["artifacts"][0]["variants"] if v["variant"] == "int8")
    sent = by_name["model_quantized.onnx"]["sent_bytes"]
    assert int8["brotli_bytes"] < sent < int8["brotli_bytes"] + 1000
    small = [entry for entry in transfers if entry["sent_bytes"] > 1500]
    assert {entry["encoding"] for entry in small} == {"br"}

    start = len(secure.transfers())
    chromium.do("visit", url=f"{secure.url}/demo/")
    second = answer(chromium)
    assert second["first"] == first["ms"] != second["ms"]
    assert "at the first visit" in chromium.text("[data-active] [data-ms]")
    transfers = secure.transfers(start)
    assert [entry for entry in transfers if entry["path"].startswith(("/f/", "/p/"))] == []
    assert 10_000 < sum(entry["sent_bytes"] for entry in transfers) <= SECOND_VISIT_BYTES
    # The runtime runs from the store's copies: its modules have addresses of their own.
    assert chromium.evaluate(
        "caches.open('albert-export-files').then((store) => store.keys()).then((keys) => "
        "keys.map(({ url }) => new URL(url).pathname.split('/').pop()).sort())"
    ) == sorted({*by_name, *RUNTIME, "tokenizers.min.mjs"})


def test_a_store_that_is_full_costs_a_download_at_the_next_visit_and_none_now(
    chromium: Driven, secure: SecureServer
) -> None:
    start = len(secure.transfers())
    chromium.open(f"{secure.url}/demo/", script=REFUSE)
    answer(chromium)
    assert chromium.text("#answer .verdict").startswith("positive")
    counted = Counter(entry["path"].rsplit("/", 1)[1] for entry in secure.transfers(start))
    assert counted["ort-wasm-simd-threaded.wasm"] == 1
    assert counted["model_quantized.onnx"] == 1
    kept = "caches.open('albert-export-files').then((store) => store.keys())"
    names = chromium.evaluate(f"{kept}.then((keys) => keys.map(({{ url }}) => url))")
    assert not [name for name in names if name.endswith(".wasm")]


def test_files_that_the_server_no_longer_offers_are_forgotten(
    chromium: Driven, secure: SecureServer
) -> None:
    chromium.open(f"{secure.url}/demo/")
    chromium.wait(f"{HERE} && !document.querySelector('#start-button').disabled")
    store = "caches.open('albert-export-files').then((store) => store"
    chromium.evaluate(f"{store}.put('/f/{'0' * 64}/model.onnx', new Response('old')))")
    chromium.do("reload")
    chromium.wait(f"{store}.match('/f/{'0' * 64}/model.onnx')).then((found) => !found)")
    kept = chromium.evaluate(f"{store}.keys()).then((keys) => keys.map(({{ url }}) => url))")
    assert [name.rsplit("/", 1)[1] for name in kept if "/f/" in name]
