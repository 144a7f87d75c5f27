"""The benchmark page in real browsers: from ticks to records that the server stores."""

from __future__ import annotations

import json

from aiohttp import web

from exporter.benchmark.warm_up import is_stable
from exporter.records import Measurement, parse_record
from tests.web.driving import Driven
from tests.web.serving import TOKEN, PagesServer

DONE = "['done', 'stopped'].includes(document.body.dataset.state)"
HOSTILE = "<script>window.hacked = 1</script><b>phone</b>"


def choose(
    browser: Driven,
    server: PagesServer,
    *variants: str,
    threads: tuple[str, ...] = ("1",),
    script: str = "",
) -> None:
    """Open the page, and tick some versions on 16 tokens."""
    browser.open(f"{server.url}/bench/", script=script)
    browser.wait("!document.querySelector('#start-button').disabled")
    browser.evaluate(
        f"""(() => {{
          const variant = {json.dumps(variants)};
          const wanted = {{ variant, threads: {json.dumps(threads)}, sequence: ['16'] }};
          for (const input of document.querySelectorAll('#plan [type=checkbox]')) {{
            if (input.checked !== wanted[input.name].includes(input.value)) input.click();
          }}
        }})()"""
    )


def run(browser: Driven) -> list[Measurement]:
    """Measure, and return the records that the page would copy."""
    browser.click("#start-button")
    browser.wait(DONE, 60)
    return copied(browser)


def copied(browser: Driven) -> list[Measurement]:
    browser.evaluate(
        "navigator.clipboard.writeText = async (text) => { window.copied = text; };"
        "document.querySelector('#json-button').click()"
    )
    browser.wait("window.copied")
    records = [parse_record(line) for line in browser.evaluate("copied").splitlines()]
    assert all(isinstance(record, Measurement) for record in records)
    return records  # type: ignore[return-value]


def test_a_measurement_reaches_the_server_in_the_schema_of_all_tools(
    browser: Driven, server: PagesServer
) -> None:
    server.results.clear()
    choose(browser, server, "int8", "baseline")
    assert browser.text("#plan-note").startswith("2 measurements.")
    browser.evaluate(
        "const label = document.querySelector('#label');"
        f"label.value = {json.dumps(HOSTILE)}; label.dispatchEvent(new Event('change'))"
    )
    records = run(browser)
    assert records == server.results
    int8, baseline = records
    assert (int8.case.variant, baseline.case.variant) == ("int8", "baseline")
    assert int8.case.browser == browser.product
    assert (int8.case.threads, int8.threads_used, int8.case.sequence) == (1, 1, 16)
    assert int8.run == baseline.run
    assert len(int8.samples_ms) == len(baseline.samples_ms) >= 20
    assert int8.session_runs == (len(int8.samples_ms),)
    assert int8.check.status == "passed"
    assert baseline.check.status == "not run"
    assert None not in (int8.times.cold_first, int8.times.warm_first, int8.times.process_start)
    assert int8.memory.wasm_heap is not None
    assert 10e6 < int8.memory.wasm_heap < 100e6
    words = f"{browser.product.capitalize()} {browser.version}"
    if browser.name == "firefox":  # pages are told no more than the first number
        words = words.split(".")[0]
    assert int8.device.engine.startswith(words)
    assert int8.device.label == HOSTILE
    browser.wait("document.querySelectorAll('#device-rows tr').length > 1")
    assert HOSTILE in browser.text("#device-rows")
    assert browser.evaluate("window.hacked === undefined")
    assert browser.evaluate("document.querySelectorAll('main script, main b').length") == 0
    assert browser.evaluate("document.querySelectorAll('.chart .fill').length") == 2
    assert browser.text("#sent") in ("2 results sent to the server.", "Copied.")
    assert browser.do("errors") == []


FAKES = """
window.wakes = [];
Object.defineProperty(navigator, 'wakeLock', {
  value: {
    request: async (kind) => {
      wakes.push(kind);
      return { release: async () => void wakes.push('released') };
    },
  },
});
Object.defineProperty(navigator, 'hardwareConcurrency', { get: () => 2 });
let hidden = false;
Object.defineProperty(document, 'hidden', { get: () => hidden });
window.hide = (now) => {
  hidden = now;
  document.dispatchEvent(new Event('visibilitychange'));
};
"""


def test_threads_are_swept_the_screen_stays_on_and_a_hidden_page_waits(
    chromium: Driven, server: PagesServer
) -> None:
    choose(chromium, server, "int8", threads=("1", "2"), script=FAKES)
    assert chromium.text("#plan-note").startswith("2 measurements, in 2 rounds.")
    chromium.click("#start-button")
    chromium.wait("document.querySelector('#running-words').innerText.includes('measuring')")
    chromium.evaluate("hide(true)")
    assert "Paused" in chromium.text("#hidden-note")
    chromium.evaluate("new Promise((resolve) => setTimeout(resolve, 300))")
    still = "document.querySelector('#rows').innerText"
    before = chromium.evaluate(still)
    chromium.evaluate("new Promise((resolve) => setTimeout(resolve, 500))")
    assert chromium.evaluate(still) == before, "it went on"
    chromium.evaluate("hide(false)")
    assert chromium.evaluate("document.querySelector('#hidden-note').hidden")
    chromium.wait(DONE, 60)
    assert chromium.evaluate("wakes") == ["screen", "screen", "released"]
    one, two = copied(chromium)
    assert (one.case.threads, one.threads_used) == (1, 1)
    assert (two.case.threads, two.threads_used) == (2, 2)
    assert "hidden tab" in one.flags and "hidden tab" not in two.flags
    assert two.device.cross_origin_isolated is True
    assert "2 threads · 16 tokens" in chromium.text("#rows")


PHONE = """
Object.defineProperty(navigator, 'deviceMemory', { get: () => 0.125 });
"""


def test_what_a_device_would_not_bear_is_a_record_that_was_not_run(
    chromium: Driven, server: PagesServer
) -> None:
    server.results.clear()
    choose(chromium, server, "int8", script=PHONE)
    assert "This device may end the page." in chromium.text("#variants")
    records = {record.case.variant: record for record in run(chromium)}
    assert records["int8"].status == "measured"
    assert records["baseline"].status == "not run"
    assert records["baseline"].samples_ms == ()
    assert "of memory, and this device is likely to end a page" in str(records["baseline"].error)
    assert {record.case.variant for record in server.results} == records.keys()
    assert "not run" in chromium.text("[data-case='baseline 1 16']")


def test_a_worker_that_says_nothing_is_ended(chromium: Driven, server: PagesServer) -> None:
    server.faults["/shared/worker.js"] = lambda: web.Response(
        text="globalThis.onmessage = null", content_type="text/javascript"
    )
    chromium.open(f"{server.url}/bench/")
    words = chromium.evaluate(
        "import('/shared/model-worker.js').then(({ ModelWorker }) => "
        "ModelWorker.start({ patienceMs: 200 })).catch((problem) => problem.message)"
    )
    assert words == "The model gave no answer for 0 seconds, so it was ended."
    chromium.evaluate("new Promise((resolve) => setTimeout(resolve, 200))")
    assert chromium.do("workers") == 0


def test_over_plain_http_from_the_network_there_is_one_thread_and_a_word_why(
    chromium: Driven, server: PagesServer
) -> None:
    chromium.open(f"{server.url.replace('localhost', 'laptop.test')}/bench/")
    chromium.wait("!document.querySelector('#start-button').disabled")
    assert chromium.evaluate("[isSecureContext, crossOriginIsolated]") == [False, False]
    assert chromium.evaluate("document.querySelectorAll('[name=threads]').length") == 1
    assert "More need https and an isolated page" in chromium.text("#threads-note")
    chromium.do("visit", url=f"{server.url.replace('localhost', 'laptop.test')}/demo/")
    chromium.click("#start-button")
    chromium.wait("document.body.dataset.state === 'result'")
    assert chromium.text("#answer .verdict").startswith("positive")
    assert "on 1 thread of 1 asked for" in chromium.text("#threads-note")


def test_a_stopped_run_keeps_what_it_has_or_nothing(chromium: Driven, server: PagesServer) -> None:
    choose(chromium, server, "int8")
    chromium.click("#start-button")
    chromium.wait("document.body.dataset.state === 'running'")
    chromium.evaluate("document.querySelector('#stop-button').click()")
    chromium.wait("document.body.dataset.state === 'stopped'")
    assert chromium.do("workers") == 0
    assert "Stopped." in chromium.evaluate("document.querySelector('#spoken').textContent")
    assert chromium.evaluate("document.querySelector('#running').hidden")


def test_without_a_token_the_page_says_so_and_lets_people_copy(
    chromium: Driven, server: PagesServer
) -> None:
    server.results.clear()
    server.faults["/api/session"] = lambda: web.Response(status=403, text="scan the code")
    choose(chromium, server, "int8")
    records = run(chromium)
    assert len(records) == 1
    assert server.results == []
    assert "no token to send results with" in chromium.text("#send-problem")
    assert "Scan the code in the terminal" in chromium.text("#send-problem")
    chromium.evaluate("document.querySelector('#markdown-button').click()")
    chromium.wait("window.copied.startsWith('Linux')")
    table = chromium.evaluate("copied")
    assert "| demo int8 | 1 of 1 | 16 |" in table


def test_the_token_of_the_scanned_address_is_used_and_hidden(
    chromium: Driven, server: PagesServer
) -> None:
    server.faults["/api/session"] = lambda: web.Response(status=403, text="scan the code")
    chromium.open(f"{server.url}/#token={TOKEN}")
    chromium.wait("location.hash === ''")
    chromium.evaluate("document.querySelector('a[href=\"/bench/\"]').click()")
    chromium.wait("location.pathname === '/bench/' && document.querySelector('#plan')")
    answer = chromium.evaluate(
        "import('/shared/session.js').then((session) => session.readRecords(null))"
    )
    assert isinstance(answer["records"], list)


def test_a_page_that_was_ended_reports_it_after_reload(
    chromium: Driven, server: PagesServer
) -> None:
    server.results.clear()
    choose(chromium, server, "baseline")
    chromium.click("#start-button")
    chromium.wait("localStorage.getItem('albert-export-in-danger')")
    marker = chromium.evaluate("localStorage.getItem('albert-export-in-danger')")
    chromium.do("reload")
    chromium.wait("!document.querySelector('#start-button').disabled")
    assert chromium.evaluate("document.querySelector('#crash-note').hidden"), "left on purpose"
    # A browser that ends a page for its memory gives it no time to take the marker away.
    chromium.do("open_again", url=f"{server.url}/bench/", marker=marker)
    chromium.wait("!document.querySelector('#crash-note').hidden")
    assert "most likely for want of memory" in chromium.text("#crash-note")
    chromium.wait("document.querySelector('#sent').textContent")
    (record,) = server.results
    assert (record.case.variant, record.status) == ("baseline", "failed")
    assert record.flags == ("likely out of memory",)


def test_a_phone_does_not_tick_what_is_likely_to_end_its_page(
    chromium: Driven, server: PagesServer
) -> None:
    gate = chromium_plan(
        chromium,
        server,
        """
        const phone = { phone: true, apple: true, memoryBytes: null, browser: 'safari' };
        const variant = (name, bytes) => ({ variant: name, file_bytes: bytes });
        const large = variant('baseline', 60e6);
        const small = variant('int8', 10e6);
        return [
          plan.memoryBudget(phone) < plan.estimateBytes(variant('baseline', 358e6)),
          plan.memoryBudget(phone) > plan.estimateBytes(small),
          plan.groupByMemory([small, large], plan.memoryBudget(phone)).length,
          plan.groupByMemory([small, large], 1e9).length,
        ];
        """,
    )
    assert gate == [True, True, 2, 1]


def chromium_plan(browser: Driven, server: PagesServer, code: str) -> object:
    browser.open(f"{server.url}/bench/")
    return browser.evaluate(f"import('/bench/plan.js').then((plan) => {{ {code} }})")


def test_warm_up_ends_as_in_the_command_line_s_benchmark(
    chromium: Driven, server: PagesServer
) -> None:
    series = [
        [9.0, 5.0, 3.0, 3.1, 3.0],
        [9.0, 5.0, 3.0],
        [1.0, 1.0, 1.0, 1.0],
        [1.0, 2.0, 1.0, 2.0, 1.0, 2.0],
        [8.0, 4.0, 4.1, 4.2, 9.0, 9.1],
        [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    ]
    chromium.open(f"{server.url}/bench/")
    stable = chromium.evaluate(
        "import('/bench/protocol.js').then((protocol) => "
        f"{json.dumps(series)}.map((samples) => protocol.isStable(samples, 5)))"
    )
    assert stable == [is_stable(samples, 5) for samples in series]
    assert set(stable) == {True, False}
