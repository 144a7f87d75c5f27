from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exporter.cli.report_command import report
from exporter.errors import BenchmarkError
from exporter.records import Evaluation, Measurement, parse_record, to_json
from exporter.server import delivery, read_results
from exporter.server import results as results_module
from exporter.server.results import ResultStore, StoreFullError
from tests.server.harness import TOKEN, Answer, RunningServer, no_limit, running
from tests.server.samples import NOISE, measurement, sha256

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def record(**changes: Any) -> Measurement:
    parsed = parse_record(json.dumps(measurement(**changes)))
    assert isinstance(parsed, Measurement)
    return parsed


def evaluation() -> Evaluation:
    parsed = parse_record(
        json.dumps(
            {
                "kind": "evaluation",
                "tool": "0.1.0",
                "created": "2026-01-31T12:00:00Z",
                "artifact": "model-onnx",
                "variant": "int8",
                "model": {"path": "m", "sha256": sha256(NOISE), "file_bytes": 1},
                "data": "test.csv",
                "data_sha256": sha256(b""),
                "rows": 2,
                "correct": 1,
                "majority": 0.5,
                "interval_95": [0.1, 0.9],
            }
        )
    )
    assert isinstance(parsed, Evaluation)
    return parsed


def test_what_two_devices_send_is_stored_shown_and_read_back(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for number, label in enumerate(("Phone", "Tablet"), start=1):
            answer = server.post(measurement(label=label, run=label))
            assert (answer.status, answer.json()) == (
                200,
                {"stored": 1, "known": 0, "total": number},
            )
        assert [result.device.label for result in server.results] == ["Phone", "Tablet"]
        listed = server.ask("/api/results", BEARER)
        assert listed.headers["Content-Type"].startswith("application/json")
        assert [entry["device"]["label"] for entry in listed.json()["records"]] == [
            "Phone",
            "Tablet",
        ]
        assert listed.json()["total"] == 2
        # While the server still runs.
        assert list(read_results(tmp_path / "results")) == server.results
        exported = server.ask("/api/results?format=jsonl", BEARER)
        assert exported.headers["Content-Type"].startswith("application/x-ndjson")
        lines = exported.text.splitlines()
        assert [parse_record(line) for line in lines] == server.results
    assert list(read_results(tmp_path / "results")) == server.results


def test_two_devices_meet_in_one_report(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for label, engine, ms in (
            ("Phone of Ada", "Safari 19", 20.0),
            ("Tablet", "Chrome 156", 9.5),
        ):
            device = {**measurement()["device"], "label": label, "engine": engine}
            sent = measurement(run=label, device=device, samples_ms=[ms] * 5)
            assert server.post(sent).status == 200
    document = tmp_path / "report.md"
    arguments = [str(tmp_path / "results"), "--format", "md", "--output", str(document)]
    done = CliRunner().invoke(report, arguments)
    assert done.exit_code == 0, done.output
    text = document.read_text(encoding="utf-8")
    for words in ("Phone of Ada", "WASM in Safari 19", "20", "Tablet", "WASM in Chrome 156", "9.5"):
        assert words in text


def test_the_same_record_again_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        spaced = json.dumps(measurement(), indent=3).encode()
        for stored in (1, 0, 0):
            answer = server.post(spaced if stored else measurement())
            assert answer.json() == {"stored": stored, "known": 1 - stored, "total": 1}
        assert len(server.results) == 1


def test_a_new_label_replaces_the_old_one(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.add([record(label="Unnamed")])
    added = store.add([record(label="Ada's phone")])
    assert (added.new, added.known, added.total) == ((), 1, 1)
    store.close()
    assert [
        entry.device.label for entry in read_results(tmp_path) if isinstance(entry, Measurement)
    ] == ["Ada's phone"]


def test_several_records_are_stored_all_or_none(tmp_path: Path) -> None:
    ndjson = {"Content-Type": "application/x-ndjson"}
    with running(tmp_path) as server:
        good = [json.dumps(measurement(run=str(number))) for number in range(3)]
        broken = "\n".join([*good, json.dumps(measurement(samples_ms=[-1.0]))])
        answer = server.post(broken.encode(), ndjson)
        assert answer.status == 400
        assert answer.text.startswith("record 4: no valid record: ")
        assert "samples_ms" in answer.text
        assert server.service.store.lines() == []
        answer = server.post(("\n".join(good) + "\n\n").encode(), ndjson)
        assert answer.json() == {"stored": 3, "known": 0, "total": 3}


def assert_refused(server: RunningServer, answer: Answer, status: int, words: str) -> None:
    assert (answer.status, words in answer.text) == (status, True), answer
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.text.count("\n") == 1 and "Traceback" not in answer.text
    assert server.service.store.lines() == []
    assert server.results == [] and server.faults == []


def test_what_is_no_good_record_is_refused_and_not_stored(tmp_path: Path) -> None:
    with running(tmp_path, posts=no_limit()) as server:
        deep = b"[" * 100_000
        for body, status, words in (
            (b"", 400, "no record"),
            (b"   ", 400, "no record"),
            (b"{", 400, "record 1: no valid record"),
            (b"\xff\xfe", 400, "record 1: no valid record"),
            (b"[]", 400, "record 1: no valid record"),
            (deep, 400, "record 1: no valid record"),
            (json.dumps(measurement(extra=1)).encode(), 400, "extra"),
            (json.dumps(measurement(schema=1)).encode(), 400, "schema 1"),
            (json.dumps(measurement(samples_ms=[])).encode(), 400, "samples_ms"),
            (json.dumps(measurement(label="x" * 201)).encode(), 400, "label"),
            (json.dumps(measurement(label=5)).encode(), 400, "label"),
            (json.dumps(measurement(samples_ms=[float("nan")])).encode(), 400, "record 1"),
            (json.dumps(measurement(model="\u001b[2J\u202e")).encode(), 400, "model"),
            (to_json(evaluation()).encode(), 400, "only measurements"),
            (b"x" * (2**20 + 1), 413, "1,048,576 bytes"),
        ):
            assert_refused(server, server.post(body), status, words)


def test_who_has_no_token_neither_sends_nor_sees(tmp_path: Path) -> None:
    with running(tmp_path, posts=no_limit()) as server:
        for given in ("", "Bearer wrong", "Bearer ", TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN}x"):
            answer = server.post(measurement(), {"Authorization": given})
            assert_refused(server, answer, 401, "scan the code")
            seen = server.ask("/api/results", {"Authorization": given} if given else {})
            assert_refused(server, seen, 401, "scan the code")
        assert server.ask(f"/api/results?token={TOKEN}").status == 401
        binary = server.ask("/api/results", {"Authorization": "Bearer \xe9"})
        assert binary.status == 401


def test_other_content_types_are_refused(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for media_type in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ):
            answer = server.post(measurement(), {"Content-Type": media_type})
            assert_refused(server, answer, 415, "application/json")
        packed = gzip.compress(json.dumps(measurement()).encode())
        answer = server.post(packed, {"Content-Encoding": "gzip"})
        assert_refused(server, answer, 415, "not compressed")


def test_a_body_without_a_length_is_limited_too(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        head = (
            f"POST /api/results HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
            "Connection: close\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        answer = server.raw(head.encode() + chunk * 17 + b"0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
        assert server.service.store.lines() == []


def test_a_body_that_is_announced_too_large_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BODY_TIMEOUT_S", 1.0)
    with running(tmp_path) as server:
        head = (
            f"POST /api/results HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1099511627776\r\n\r\n"
        )
        # Waiting would end in 408.
        assert server.raw(head.encode() + b"{").startswith(b"HTTP/1.1 413 ")


def test_too_many_records_at_once_are_refused(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        lines = "\n".join(json.dumps(measurement(run=str(number))) for number in range(201))
        answer = server.post(lines.encode(), {"Content-Type": "application/x-ndjson"})
        assert_refused(server, answer, 413, "201 records at once; the limit is 200")


def test_a_full_store_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    with running(tmp_path, store=ResultStore(tmp_path / "results", max_records=2)) as server:
        for number in range(2):
            assert server.post(measurement(run=str(number))).status == 200
        answer = server.post(measurement(run="3"))
        assert answer.status == 507
        assert "results are full (2 records)" in answer.text
        assert server.post(measurement(run="1")).json() == {"stored": 0, "known": 1, "total": 2}
        assert len(list(read_results(tmp_path / "results"))) == 2
        assert len(server.results) == 2


def test_a_store_is_limited_in_bytes_too(tmp_path: Path) -> None:
    store = ResultStore(None, max_bytes=3000)
    store.add([record(run="1")])
    with pytest.raises(StoreFullError):
        store.add([record(run="2", samples_ms=[1.0] * 2000)])
    assert len(store.lines()) == 1


def test_a_table_that_did_not_change_is_not_sent_again(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        first = server.ask("/api/results", BEARER)
        same = {**BEARER, "If-None-Match": first.headers["ETag"]}
        assert server.ask("/api/results", same).status == 304
        server.post(measurement())
        assert server.ask("/api/results", same).json()["total"] == 1


def test_results_outlive_the_server_and_a_crash(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    store.add([record(run="1")])
    # No close: what a killed process leaves behind.
    assert [entry.tool for entry in read_results(tmp_path)] == ["0.1.0"]
    again = ResultStore(tmp_path)
    assert again.add([record(run="1"), record(run="2")]).total == 2
    mode = sqlite3.connect(tmp_path / "results.sqlite").execute("PRAGMA journal_mode").fetchone()
    assert mode == ("wal",)


def test_threads_and_servers_can_share_a_folder(tmp_path: Path) -> None:
    stores = [ResultStore(tmp_path), ResultStore(tmp_path)]

    def fill(number: int) -> None:
        for turn in range(10):
            stores[number % 2].add([record(run=f"{number}-{turn}")])

    threads = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(read_results(tmp_path))) == 40


def test_results_that_cannot_be_read_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"holds no results\.sqlite; make one with"):
        list(read_results(tmp_path))
    (tmp_path / "results.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(BenchmarkError, match="cannot be read: file is not a database"):
        list(read_results(tmp_path))
    with pytest.raises(BenchmarkError, match="results cannot be kept in"):
        ResultStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BenchmarkError, match="results cannot be kept in"):
        ResultStore(tmp_path / "file/below")


def test_a_folder_with_an_odd_name_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "what? #1 %41"
    store = ResultStore(folder)
    store.add([record()])
    assert len(list(read_results(folder))) == 1


def test_a_fault_is_one_line_for_the_visitor_and_one_for_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> str:
        raise RuntimeError("private detail")

    with running(tmp_path) as server:
        monkeypatch.setattr(results_module, "to_json", fail)
        answer = server.post(measurement())
        assert (answer.status, answer.text) == (
            500,
            "a fault of the server; its terminal says more\n",
        )
        assert server.faults == ["a fault while answering POST: RuntimeError: private detail"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert server.ask("/").status == 200


def test_reading_results_needs_no_web_server(tmp_path: Path) -> None:
    ResultStore(tmp_path).add([record()])
    program = (
        "import sys\nfrom pathlib import Path\nfrom exporter.server import read_results\n"
        f"print(len(list(read_results(Path({str(tmp_path)!r})))))\n"
        "print('loaded:', *(m for m in ('aiohttp', 'torch', 'segno', 'ssl') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["1", "loaded:"]
