"""The real pages and the demo model on a loopback port, and faults between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from exporter.packages import runtime_files, tokenizer_files
from exporter.records import Measurement
from exporter.runtimes.web_folder import web_folder
from exporter.server.app import Service, build_app
from exporter.server.encodings import Encodings
from exporter.server.files import Package, Pages, Site, read_artifacts
from exporter.server.guards import Handler, Policy
from exporter.server.results import ResultStore
from exporter.server.transfers import Transfer
from tests.server.harness import no_limit, running_app

__all__ = ["TOKEN", "PagesServer", "serving"]

TOKEN = "a-token-for-tests"

_RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


@dataclass
class PagesServer:
    """What a test needs of the server.

    Args:
        url: its address, without the last slash.
        faults: part of a path → what answers in place of the server.
        results: what pages sent.
        transfers: what was answered.
        store: where results are kept.
    """

    url: str
    store: ResultStore
    faults: dict[str, Callable[[], web.Response]] = field(default_factory=dict)
    results: list[Measurement] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)

    @web.middleware
    async def break_some(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer in place of the server where a fault is wanted."""
        for part, fault in self.faults.items():
            if part in request.path:
                return fault()
        return await handler(request)


@contextmanager
def serving(artifacts: list[Path], folder: Path, *, isolated: bool = True) -> Iterator[PagesServer]:
    """Serve ``artifacts`` with the project's pages, without compression."""
    policy = Policy(isolated=isolated, hosts=("localhost", "laptop.test"))
    packages = [
        Package.read("onnxruntime-web", runtime_files(), _RUNTIME, policy.salt),
        Package.read(
            "@huggingface/tokenizers", tokenizer_files(), ("tokenizers.min.mjs",), policy.salt
        ),
    ]
    store = ResultStore(folder / "results")
    service = Service(
        Site(read_artifacts(artifacts), packages, Pages(web_folder())),
        Encodings(folder / "cache"),
        store,
        TOKEN,
        policy,
        requests=no_limit(),
        posts=no_limit(),
    )
    server = PagesServer("", store)
    service.on_result = server.results.append
    app = build_app(service)
    app.middlewares.insert(0, server.break_some)
    with running_app(app, service.connections, server.transfers) as port:
        server.url = f"http://localhost:{port}"
        yield server
    store.close()
