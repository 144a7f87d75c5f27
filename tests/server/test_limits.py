from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.server import delivery, replies
from exporter.server.limits import ConnectionLimits, RateLimit, client_key
from tests.server.harness import TOKEN, RunningServer, no_limit, running
from tests.server.samples import PAGES, measurement

PARTIAL_HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
PARTIAL_BODY = (
    f"POST /api/results HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
).encode()


@contextlib.contextmanager
def clients(port: int, count: int) -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        yield opened
    finally:
        for client in opened:
            client.close()


def everything(client: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_two_hundred_slow_clients_are_told_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BODY_TIMEOUT_S", 1.5)
    limits = ConnectionLimits(header_timeout_s=1.5)
    with (
        running(tmp_path, connections=limits, posts=no_limit()) as server,
        clients(server.port, 200) as slow,
    ):
        for number, client in enumerate(slow):
            client.sendall(PARTIAL_HEAD if number % 2 else PARTIAL_BODY)
        assert server.ask("/").status == 200
        assert server.post(measurement()).status == 200
        for client in slow:
            answer = everything(client)
            assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert len(server.service.store.lines()) == 1
        assert server.ask("/").status == 200
        assert server.faults == []


def test_a_drop_now_and_then_does_not_prolong_the_wait(tmp_path: Path) -> None:
    limits = ConnectionLimits(header_timeout_s=0.6)
    with running(tmp_path, connections=limits) as server, clients(server.port, 1) as (client,):
        client.sendall(PARTIAL_HEAD)
        client.settimeout(0.1)
        answer = b""
        for _ in range(50):
            with contextlib.suppress(TimeoutError):
                answer = client.recv(1000)
                break
            client.sendall(b"x")
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_sent_a_request_in_time_stays_open(tmp_path: Path) -> None:
    limits = ConnectionLimits(header_timeout_s=0.3)
    with running(tmp_path, connections=limits) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        with contextlib.closing(connection):
            for _ in range(2):
                connection.request("GET", "/style.css")
                own = connection.sock
                assert connection.getresponse().read() == PAGES["style.css"]
                time.sleep(0.5)
            assert connection.sock is own


def test_connections_beyond_the_limit_are_told_to_come_later(tmp_path: Path) -> None:
    limits = ConnectionLimits(total=5, per_client=3)
    with running(tmp_path, connections=limits) as server:
        with clients(server.port, 3) as opened:
            for client in opened:
                client.sendall(PARTIAL_HEAD)
            with clients(server.port, 1) as (late,):
                answer = everything(late)
            assert answer.startswith(b"HTTP/1.1 503 "), answer
            assert b"Retry-After: 5\r\n" in answer
            assert b"too many connections" in answer
        answers = []
        for _ in range(50):  # those that left make room
            with contextlib.suppress(ConnectionError):
                answers.append(server.ask("/").status)
            if answers and answers[-1] == 200:
                break
            time.sleep(0.02)
        assert answers[-1] == 200


def test_all_connections_together_are_limited() -> None:
    limits = ConnectionLimits(total=3, per_client=2)
    assert [limits.enter(client) for client in ("a", "a", "a", "b", "c")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    limits.leave("a")
    assert limits.enter("c")


def test_the_limits_fit_what_the_system_allows() -> None:
    for open_files, total, per_client in ((-1, 400, 256), (1024, 400, 256), (256, 108, 72)):
        limits = ConnectionLimits.for_open_files(open_files)
        entered = [limits.enter("a") for _ in range(500)]
        assert entered.count(True) == per_client
        others = [limits.enter(str(number)) for number in range(500)]
        assert others.count(True) == total - per_client
    assert ConnectionLimits.for_open_files(16).enter("a")


def test_many_deliveries_of_one_client_are_slowed_down(tmp_path: Path) -> None:
    with running(tmp_path, posts=RateLimit(burst=3, per_second=0.1)) as server:
        statuses = [server.post(b"{").status for _ in range(5)]
        assert statuses == [400, 400, 400, 429, 429]
        answer = server.post(measurement())
        assert answer.status == 429
        assert 1 <= int(answer.headers["Retry-After"]) <= 10
        assert server.service.store.lines() == []
        assert server.ask("/").status == 200


def test_many_requests_of_one_client_are_slowed_down(tmp_path: Path) -> None:
    with running(tmp_path, requests=RateLimit(burst=3, per_second=0.1)) as server:
        assert [server.ask("/").status for _ in range(4)] == [200, 200, 200, 429]


def test_a_limit_fills_up_again_for_each_client() -> None:
    now = 0.0
    limit = RateLimit(burst=2, per_second=0.5, clock=lambda: now)
    assert [limit.wait_s("a") for _ in range(3)] == [0, 0, 2]
    assert limit.wait_s("b") == 0
    now = 1.0
    assert limit.wait_s("a") == 1
    now = 2.0
    assert [limit.wait_s("a") for _ in range(2)] == [0, 2]
    now = 1000.0
    assert [limit.wait_s("a") for _ in range(3)] == [0, 0, 2]


def test_the_table_of_clients_does_not_grow_without_end() -> None:
    limit = RateLimit(burst=1, per_second=0.001)
    for number in range(10_000):
        limit.wait_s(str(number))
    assert len(limit._levels) == 4096
    assert limit.wait_s("9999") > 0


def test_one_network_of_the_new_protocol_is_one_client() -> None:
    assert client_key("2001:db8:0:1::5") == client_key("2001:db8:0:1:ffff::9%eth0")
    assert client_key("2001:db8:0:1::5") != client_key("2001:db8:0:2::5")
    assert client_key("::ffff:192.168.1.5") == client_key("192.168.1.5") == "192.168.1.5"
    assert client_key("") == ""


def test_a_large_file_to_many_slow_clients_takes_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.server.encodings.LARGEST_BYTES", 1_000_000)
    size, count = 50 * 2**20, 20
    folder = tmp_path / "model-onnx/large"
    folder.mkdir(parents=True)
    with (folder / "model.onnx").open("wb") as stream:
        stream.truncate(size)
    with running(tmp_path) as server:
        # Listed by hand: the fixture's manifest knows no sparse file.
        large = _serve_also(server, folder / "model.onnx")
        request = f"GET {large} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        with clients(server.port, count) as slow:
            tracemalloc.start()
            for client in slow:
                client.sendall(request)
            for client in slow:
                assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
            time.sleep(0.3)  # buffers fill
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 10 * 2**20  # 1,000 MB are asked for
            assert server.ask("/").status == 200
        received = [0, 0]

        def read(number: int) -> None:
            received[number] = len(server.ask(large).body)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert received == [size, size]


def test_a_client_that_stops_reading_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "WRITE_TIMEOUT_S", 0.3)
    folder = tmp_path / "model-onnx/large"
    folder.mkdir(parents=True)
    with (folder / "model.onnx").open("wb") as stream:
        stream.truncate(50 * 2**20)
    monkeypatch.setattr("exporter.server.encodings.LARGEST_BYTES", 1_000_000)
    with running(tmp_path) as server:
        large = _serve_also(server, folder / "model.onnx")
        with clients(server.port, 1) as (client,):
            client.sendall(f"GET {large} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            time.sleep(1.0)
            assert len(everything(client)) < 50 * 2**20
        assert server.faults == []
        assert server.ask("/").status == 200


def _serve_also(server: RunningServer, path: Path) -> str:
    """Let a running server know one more page, and return its path."""
    from exporter.server.files import ServedFile

    pages = server.service.site.pages
    pages._files["large.onnx"] = ServedFile.read(path.parent, path.name)
    return "/large.onnx"
