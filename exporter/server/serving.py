"""Serve artifacts until told to stop: the one use case of this package."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import resource
import secrets
import signal
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.packages import cache_folder, runtime_files, tokenizer_files
from exporter.records import Measurement
from exporter.runtimes.web_folder import web_folder
from exporter.server.app import Service, build_app
from exporter.server.binding import Binding, bind
from exporter.server.encodings import Encodings
from exporter.server.files import (
    Package,
    Pages,
    Site,
    check_hashes,
    read_artifacts,
)
from exporter.server.guards import Policy
from exporter.server.lan import tls_context
from exporter.server.limits import ConnectionLimits
from exporter.server.listening import listen
from exporter.server.plain_page import build_plain_app
from exporter.server.results import ResultStore
from exporter.server.transfers import Transfer

__all__ = ["Events", "ServeOptions", "Started", "serve"]

_RUNTIME = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
_TOKENIZERS = ("tokenizers.min.mjs",)


@dataclass(frozen=True)
class ServeOptions:
    """What to serve, and to whom.

    Args:
        artifacts: folders.
        host: address to listen on; with ``lan``, a loopback address means all addresses.
        port: port; 0 takes any free one. With ``lan`` and https, the next one too.
        lan: other devices may come.
        https: with a new certificate; ``None``: on the network yes, on loopback no.
        isolated: send COOP and COEP, so that pages get threads.
        results: folder that keeps what devices send; ``None``: until the end only.
        cache: folder of runtime packages and compressed copies.
    """

    artifacts: tuple[Path, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    lan: bool = False
    https: bool | None = None
    isolated: bool = True
    results: Path | None = None
    cache: Path = field(default_factory=cache_folder)

    @property
    def secure(self) -> bool:
        """Whether the pages come by https."""
        return self.lan if self.https is None else self.https


@dataclass(frozen=True)
class Started:
    """The server listens.

    Args:
        urls: where the pages are; the first one is the best.
        scan_url: the same with the token, for the code to scan; ``None`` on loopback.
        plain_url: where plain http explains itself.
        token: for devices that cannot scan.
        models: the variants of each artifact, by its name.
    """

    urls: tuple[str, ...]
    scan_url: str | None
    plain_url: str | None
    token: str
    models: Mapping[str, tuple[str, ...]]


def _ignore(_: object) -> None:
    pass


@dataclass(frozen=True)
class Events:
    """Who is told what.

    Args:
        progress: the step before the start, in words; from several threads.
        started: called once.
        result: each new measurement that a device sent.
        notice: one line about something that went wrong and does not end the server.
        transfer: each answer.
    """

    progress: Callable[[str], None] = _ignore
    started: Callable[[Started], None] = _ignore
    result: Callable[[Measurement], None] = _ignore
    notice: Callable[[str], None] = _ignore
    transfer: Callable[[Transfer], None] | None = None


def serve(options: ServeOptions, events: Events = Events()) -> None:
    """Serve until SIGINT or SIGTERM; call it from the main thread.

    Raises:
        ArtifactError: an artifact is none, or is damaged.
        PackageError: the runtime's files are not there and cannot be fetched.
        BenchmarkError: a port or a host cannot be used, or results cannot be kept.
    """
    plain = options.lan and options.secure
    binding = bind(options.host, options.port, lan=options.lan, plain=plain)
    with contextlib.closing(binding):
        policy = Policy(
            isolated=options.isolated,
            hosts=frozenset(("localhost", *binding.addresses, *binding.names)),
            any_address=options.lan,
        )
        site = _read_site(options, policy, events)
        store = ResultStore(options.results)
        with contextlib.closing(store):
            encodings = Encodings(options.cache / "compressed")
            try:
                encodings.prepare(site.files(), events.progress)
            except OSError as error:
                events.notice(f"no room for compressed copies ({error}); files go uncompressed")
            service = Service(
                site,
                encodings,
                store,
                secrets.token_urlsafe(16),
                policy,
                ConnectionLimits.for_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
                on_result=events.result,
                on_fault=events.notice,
            )
            asyncio.run(_run(service, binding, options, events))


def _read_site(options: ServeOptions, policy: Policy, events: Events) -> Site:
    artifacts = read_artifacts(options.artifacts)
    check_hashes(artifacts, events.progress)
    events.progress("getting the runtime for browsers, which is fetched once")
    salt = policy.salt
    packages = (
        Package.read("onnxruntime-web", runtime_files(options.cache), _RUNTIME, salt),
        Package.read("@huggingface/tokenizers", tokenizer_files(options.cache), _TOKENIZERS, salt),
    )
    return Site(artifacts, packages, Pages(web_folder()))


async def _run(service: Service, binding: Binding, options: ServeOptions, events: Events) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    tls = _tls(binding) if options.secure else None
    async with contextlib.AsyncExitStack() as stack:
        listen_on = functools.partial(
            listen, stack, connections=service.connections, transfer=events.transfer
        )
        await listen_on(build_app(service), binding.main, tls=tls)
        if binding.plain is not None:
            plain = build_plain_app(
                service.policy, binding.port, service.connections, events.notice
            )
            await listen_on(plain, binding.plain)
        events.started(_started(service, binding, options))
        await stop.wait()


def _tls(binding: Binding) -> ssl.SSLContext:
    names = (*binding.addresses, *binding.names, "localhost", "127.0.0.1", "::1")
    return tls_context(tuple(dict.fromkeys(names)))


def _started(service: Service, binding: Binding, options: ServeOptions) -> Started:
    scheme = "https" if options.secure else "http"
    hosts = [f"[{host}]" if ":" in host else host for host in binding.addresses]
    urls = [f"{scheme}://{host}:{binding.port}/" for host in hosts]
    if options.lan:
        urls.append(f"{scheme}://localhost:{binding.port}/")
    return Started(
        urls=tuple(urls),
        scan_url=f"{urls[0]}#token={service.token}" if options.lan else None,
        plain_url=f"http://{hosts[0]}:{binding.port + 1}/" if binding.plain else None,
        token=service.token,
        models={
            served.name: tuple(model["variant"] for model in served.artifact.manifest["models"])
            for served in service.site.artifacts
        },
    )
