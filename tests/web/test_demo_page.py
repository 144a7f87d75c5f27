"""The demo page in real browsers, with the demo model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from aiohttp import web
from tokenizers import Tokenizer

from exporter.artifact import Artifact
from exporter.evaluation.examples import Example, Examples
from exporter.evaluation.texts import TextEncoder
from exporter.packages import runtime_files
from tests.web.driving import Driven
from tests.web.sentences import SENTENCES
from tests.web.serving import PagesServer

WASM = "ort-wasm-simd-threaded.wasm"
ANSWERED = (
    "document.body.dataset.state === 'result' && !document.querySelector('#result.waiting') && "
    "document.querySelector('#result').dataset.text === document.querySelector('#text').value"
)


def start(browser: Driven, server: PagesServer, variant: str = "int8") -> None:
    """Open the page, and use one version."""
    browser.open(f"{server.url}/demo/")
    use(browser, variant)


def use(browser: Driven, variant: str) -> None:
    """Choose a version in the table, and wait for its answer."""
    browser.wait("!document.querySelector('#start-button').disabled")
    browser.click(f"tr[data-variant='{variant}'] button")
    browser.wait("['result', 'problem'].includes(document.body.dataset.state)")
    browser.wait(f"document.querySelector(\"tr[data-variant='{variant}'][data-active]\")", 5)
    browser.wait(ANSWERED)


def test_nothing_but_the_pages_is_downloaded_before_somebody_asks(
    chromium: Driven, server: PagesServer, demo: Path
) -> None:
    before = len(server.transfers)
    chromium.open(f"{server.url}/demo/")
    chromium.wait("!document.querySelector('#start-button').disabled")
    paths = [transfer.path for transfer in server.transfers[before:]]
    assert not [path for path in paths if path.endswith((".onnx", ".wasm"))]
    model = Artifact.load(demo).models()["int8"]
    download = model.stat().st_size + (runtime_files() / WASM).stat().st_size
    assert chromium.text("#start-button") == f"Start · {download / 1e6:.1f} MB"


@pytest.mark.parametrize("path", ["/", "/demo/", "/bench/"])
def test_pages_fit_a_narrow_screen_and_nothing_jumps_while_they_load(
    chromium: Driven, server: PagesServer, path: str
) -> None:
    script = (
        "window.shift = 0; new PerformanceObserver((list) => "
        "list.getEntries().forEach((entry) => { shift += entry.value; }))"
        ".observe({ type: 'layout-shift', buffered: true })"
    )
    chromium.open(f"{server.url}{path}", width=360, height=740, script=script)
    chromium.wait("document.body.dataset.state")
    chromium.evaluate("new Promise((resolve) => setTimeout(resolve, 300))")
    assert chromium.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert chromium.evaluate("shift") < 0.02
    assert chromium.do("errors") == []


def ask(browser: Driven, sentences: tuple[str, ...]) -> list[tuple[str, float]]:
    """Type each sentence, and return the class and its probability."""
    return [
        (label, float(share))
        for label, share in browser.evaluate(
            f"""(async () => {{
              const text = document.querySelector('#text');
              const result = document.querySelector('#result');
              const answer = document.querySelector('#answer');
              const answers = [];
              for (const sentence of {json.dumps(sentences)}) {{
                text.value = sentence;
                text.dispatchEvent(new Event('input'));
                const end = performance.now() + 10000;
                while (result.dataset.text !== sentence || result.matches('.waiting')) {{
                  if (performance.now() > end) throw new Error(`no answer to ${{sentence}}`);
                  await new Promise((resolve) => setTimeout(resolve, 10));
                }}
                answers.push([answer.dataset.label, answer.dataset.share]);
              }}
              return answers;
            }})()"""
        )
    ]


def answers_in_python(
    folder: Path, variant: str, sentences: tuple[str, ...]
) -> list[tuple[str, float]]:
    """Return what the same file says in onnxruntime on the CPU."""
    artifact = Artifact.load(folder)
    examples = Examples(
        "sentences", "", tuple(Example(text, "", line) for line, text in enumerate(sentences))
    )
    encoder = TextEncoder.load(artifact)
    session = ort.InferenceSession(artifact.models()[variant], providers=["CPUExecutionProvider"])
    answers = []
    for batch in encoder.batches(encoder.encode(examples), 1):
        (logits,) = session.run(["logits"], batch.feeds)
        powers = np.exp(logits[0] - logits[0].max())
        shares = powers / powers.sum()
        answers.append((["negative", "positive"][int(shares.argmax())], float(shares.max())))
    return answers


def test_fifty_sentences_get_the_class_and_the_score_that_python_gives(
    browser: Driven, server: PagesServer, demo: Path
) -> None:
    start(browser, server)
    got = ask(browser, SENTENCES)
    wanted = answers_in_python(demo, "int8", SENTENCES)
    assert [label for label, _ in got] == [label for label, _ in wanted]
    assert {label for label, _ in got} == {"negative", "positive"}
    np.testing.assert_allclose([s for _, s in got], [s for _, s in wanted], atol=1e-3)
    assert browser.do("errors") == []


def test_tokens_are_shown_as_python_makes_them(
    browser: Driven, server: PagesServer, demo: Path
) -> None:
    browser.open(f"{server.url}/demo/")
    browser.wait("document.querySelectorAll('#tokens li').length")
    tokens = browser.evaluate(
        "[...document.querySelectorAll('#tokens li')].map((item) => item.textContent)"
    )
    tokenizer = Tokenizer.from_file(str(demo / "tokenizer.json"))
    assert tokens == tokenizer.encode(SENTENCES[0]).tokens


def test_typing_updates_the_answer_and_leaves_only_the_latest(
    browser: Driven, server: PagesServer
) -> None:
    start(browser, server)
    assert browser.text("#answer .verdict").startswith("positive")
    browser.evaluate("document.querySelector('#text').value = ''")
    browser.do("type", selector="#text", text="This is a terrible, terrible film.")
    browser.wait(ANSWERED)
    assert browser.text("#answer .verdict").startswith("negative")
    assert "negative" in browser.evaluate("document.querySelector('#spoken').textContent")
    browser.click("#examples button:nth-child(3)")
    browser.wait(ANSWERED)
    assert browser.text("#answer .verdict").startswith("positive")


def test_a_text_beyond_the_model_s_length_is_cut_as_in_python(
    chromium: Driven, server: PagesServer, demo: Path
) -> None:
    long = ("An awful start. " * 30 + "But then it was wonderful, lovely and great! " * 40,)
    start(chromium, server)
    ((label, share),) = ask(chromium, long)
    ((wanted, wanted_share),) = answers_in_python(demo, "int8", long)
    assert label == wanted
    assert share == pytest.approx(wanted_share, abs=1e-3)
    assert chromium.text("#answer-facts").startswith("128 tokens in ")
    assert "did not fit" in chromium.text("#answer-facts")
    assert chromium.evaluate("document.querySelectorAll('#tokens li').length") == 128


def test_fewer_passes_give_another_answer_and_all_passes_the_same_again(
    chromium: Driven, server: PagesServer
) -> None:
    start(chromium, server, "fp32")
    assert chromium.text("#depth-value") == "6 of 6"
    full = chromium.evaluate("document.querySelector('#answer').dataset.share")
    shares = []
    for depth in (1, 6):
        chromium.evaluate(
            f"""(() => {{
              delete document.querySelector('#result').dataset.text;
              const depth = document.querySelector('#depth');
              depth.value = {depth};
              depth.dispatchEvent(new Event('input'));
            }})()"""
        )
        chromium.wait(ANSWERED)
        shares.append(chromium.evaluate("document.querySelector('#answer').dataset.share"))
    assert abs(float(shares[0]) - float(full)) > 1e-4
    assert float(shares[1]) == pytest.approx(float(full), abs=1e-6)


def test_a_model_without_a_tokenizer_is_fed_with_token_ids(
    chromium: Driven, server: PagesServer, demo: Path
) -> None:
    chromium.open(f"{server.url}/demo/?artifact=bare")
    use(chromium, "int8")
    assert chromium.text("#text-label") == "Token ids"
    tokenizer = Tokenizer.from_file(str(demo / "tokenizer.json"))
    ids = " ".join(map(str, tokenizer.encode(SENTENCES[1]).ids))
    ((label, share),) = ask(chromium, (ids,))
    ((wanted, wanted_share),) = answers_in_python(demo, "int8", (SENTENCES[1],))
    assert label == wanted
    assert share == pytest.approx(wanted_share, abs=1e-3)
    size = tokenizer.get_vocab_size()
    chromium.evaluate(
        f"document.querySelector('#text').value = '2 {size} 3';"
        "document.querySelector('#text').dispatchEvent(new Event('input'))"
    )
    chromium.wait("document.querySelector('#text-problem').textContent")
    words = f"“{size}” is no token id. Ids are whole numbers from 0 to {size - 1}."
    assert words in chromium.text("#text-problem")


def test_weights_in_a_file_of_their_own_reach_the_runtime(
    chromium: Driven, server: PagesServer, outside: Path
) -> None:
    chromium.open(f"{server.url}/demo/?artifact=outside")
    before = len(server.transfers)
    use(chromium, "fp32")
    paths = [transfer.path for transfer in server.transfers[before:]]
    assert [path.rsplit("/", 1)[1] for path in paths if ".onnx" in path] == [
        "model.onnx",
        "model.onnx_data",
    ]
    got = ask(chromium, SENTENCES[:3])
    wanted = answers_in_python(outside, "fp32", SENTENCES[:3])
    assert [label for label, _ in got] == [label for label, _ in wanted]
    np.testing.assert_allclose([s for _, s in got], [s for _, s in wanted], atol=1e-4)
    server.faults["model.onnx_data"] = lambda: web.Response(status=404, text="gone")
    chromium.open(f"{server.url}/demo/?artifact=outside")
    chromium.wait("!document.querySelector('#start-button').disabled")
    chromium.click("tr[data-variant='fp32'] button")
    chromium.wait("document.body.dataset.state === 'problem'")
    words = chromium.text("#answer-problem")
    assert "The server has no file /f/" in words and "model.onnx_data" in words


def test_a_second_visit_works_without_the_server(chromium: Driven, server: PagesServer) -> None:
    chromium.open(f"{server.url}/demo/", lasting=True)
    use(chromium, "int8")
    chromium.wait(
        "caches.open('albert-export-pages').then((kept) => kept.match('/measure/tensors.js'))"
    )
    chromium.do("offline", on=True)
    chromium.do("reload")
    use(chromium, "int8")
    assert chromium.text("#answer .verdict").startswith("positive")
    chromium.do("offline", on=False)


def test_switching_six_times_keeps_one_worker_and_flat_memory(
    browser: Driven, server: PagesServer
) -> None:
    start(browser, server)
    heap = "document.querySelector('[data-variant=\"{}\"] td:nth-child(5) .sub')"
    sizes = []
    for variant in ("fp32", "baseline", "int8", "fp32", "baseline", "int8"):
        use(browser, variant)
        browser.wait(heap.format(variant))
        sizes.append(resident_bytes(browser.do("pid")))
    if browser.name == "chromium":
        assert browser.do("workers") == 1
    # Each worker that stays costs 90 MB. Firefox gives memory back late, so that over many
    # switches its size goes up and down by 60 MB.
    assert sizes[5] - sizes[2] < 130e6
    assert "random weights" not in browser.text("#result")
    assert browser.evaluate("document.querySelectorAll('tr[data-active]').length") == 1
    use(browser, "baseline-int8")
    assert "Its answers mean nothing" in browser.text("#caveat")


def resident_bytes(root: int) -> int:
    """Memory of a process and all that it started."""
    parents, sizes = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        pid = int(status.parent.name)
        parents[pid] = int(lines["PPid"])
        anonymous = lines.get("RssAnon", "0 kB").split()[0]
        sizes[pid] = 1024 * int(anonymous)
    family = {root}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(sizes.get(pid, 0) for pid in family)
