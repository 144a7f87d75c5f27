"""A real server on a loopback port, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from exporter.records import Measurement
from exporter.server.app import Service, build_app
from exporter.server.encodings import Encodings
from exporter.server.files import Package, Pages, Site, read_artifacts
from exporter.server.guards import Policy
from exporter.server.limits import ConnectionLimits, RateLimit
from exporter.server.listening import listen
from exporter.server.results import ResultStore
from exporter.server.transfers import Transfer
from tests.server.samples import PAGES, RUNTIME, write_artifact, write_files

TOKEN = "a-token"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class RunningServer:
    """What a test needs of a running server."""

    port: int
    service: Service
    folder: Path
    results: list[Measurement] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)

    def ask(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
    ) -> Answer:
        """Send one request, with the path exactly as given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())

    def raw(self, request: bytes) -> bytes:
        """Send bytes, and read until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(request)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
            return b"".join(parts)

    def post(self, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
        """Deliver a record as a page does; ``headers`` replace or (empty) remove some."""
        given = {
            "Authorization": f"Bearer {TOKEN}",
            "Content-Type": "application/json",
            "Origin": f"http://127.0.0.1:{self.port}",
            **(headers or {}),
        }
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name: value for name, value in given.items() if value}
        return self.ask("/api/results", sent, method="POST", body=content)

    def catalogue(self) -> dict[str, Any]:
        content: dict[str, Any] = self.ask("/api/artifacts.json").json()
        return content


def make_service(folder: Path, **changes: Any) -> Service:
    """Write a small site into ``folder`` and read it."""
    artifact = write_artifact(folder / "model-onnx")
    pages = write_files(folder / "pages", PAGES)
    runtime = write_files(folder / "runtime", RUNTIME)
    policy = changes.pop("policy", Policy())
    site = Site(
        read_artifacts([artifact]),
        [Package.read("onnxruntime-web", runtime, list(RUNTIME), policy.salt)],
        Pages(pages),
    )
    encodings = Encodings(folder / "cache")
    encodings.prepare(site.files())
    store = changes.pop("store", None) or ResultStore(folder / "results")
    return Service(site, encodings, store, TOKEN, policy, **changes)


@contextlib.contextmanager
def running(folder: Path, **changes: Any) -> Iterator[RunningServer]:
    """Serve a small site; ``changes`` are arguments of the service."""
    service = make_service(folder, **changes)
    server = RunningServer(0, service, folder)
    service.on_result = server.results.append
    service.on_fault = server.faults.append
    with running_app(build_app(service), service.connections, server.transfers) as server.port:
        yield server
    service.store.close()


@contextlib.contextmanager
def running_app(
    app: web.Application,
    connections: ConnectionLimits,
    transfers: list[Transfer],
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """Serve ``app`` on a free port, and yield it."""
    bound = socket.create_server(("127.0.0.1", 0))
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            await listen(
                stack, app, bound, connections=connections, tls=tls, transfer=transfers.append
            )
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(10)
        yield int(bound.getsockname()[1])
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        bound.close()
    assert not thread.is_alive()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def no_limit() -> RateLimit:
    """A limit that no test reaches."""
    return RateLimit(burst=10**6, per_second=10**6)
