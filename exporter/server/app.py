"""The server's answers, as one aiohttp application.

``/``                    the pages
``/api/artifacts.json``  see :mod:`exporter.server.catalogue`
``/api/session``         the token, for a browser on the serving machine
``/api/results``         POST stores measurements, GET lists them; both need the token
``/f/<sha256>/<name>``   a file of an artifact by its content; never changes
``/p/<digest>/<name>``   a file of a runtime package; never changes
``/a/<slug>/<path>``     a file of an artifact by its path
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import brotli  # type: ignore[import-untyped]
from aiohttp import web

from exporter.records import Measurement
from exporter.server.catalogue import catalogue
from exporter.server.delivery import MAX_BODY_BYTES, read_delivery
from exporter.server.encodings import Encodings
from exporter.server.files import ServedFile, Site
from exporter.server.guards import (
    Handler,
    Policy,
    check_origin,
    host_name,
    is_loopback,
    plain_errors,
)
from exporter.server.limits import ConnectionLimits, RateLimit, client_key
from exporter.server.replies import (
    IMMUTABLE,
    NEVER_STORED,
    REVALIDATE,
    choose,
    lists_etag,
    send_file,
)
from exporter.server.results import ResultStore, StoreFullError

__all__ = ["Service", "build_app"]


@dataclass
class Service:
    """What the application works with.

    Args:
        site: what is served.
        encodings: its compressed copies.
        store: where results go.
        token: what a device must show to send or see results.
        policy: hosts and headers.
        connections: told when a connection's first request has come.
        requests: limit of requests per client.
        posts: limit of deliveries per client.
        on_result: told about each new measurement.
        on_fault: told about faults, in one line.
    """

    site: Site
    encodings: Encodings
    store: ResultStore
    token: str
    policy: Policy = field(default_factory=Policy)
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    requests: RateLimit = field(default_factory=lambda: RateLimit(burst=600, per_second=100))
    posts: RateLimit = field(default_factory=lambda: RateLimit(burst=60, per_second=1))
    on_result: Callable[[Measurement], None] = lambda record: None
    on_fault: Callable[[str], None] = lambda line: None


def build_app(service: Service) -> web.Application:
    """Return the application that answers for ``service``."""
    answers = _Answers(service)
    app = web.Application(
        middlewares=[
            answers.count_request,
            plain_errors(service.on_fault),
            service.policy.check_host,
            answers.limit_rate,
        ],
        client_max_size=MAX_BODY_BYTES,
    )
    app.on_response_prepare.append(service.policy.add_headers)
    app.router.add_get("/api/artifacts.json", answers.artifacts)
    app.router.add_get("/api/session", answers.session)
    app.router.add_get("/api/results", answers.list_results)
    app.router.add_post("/api/results", answers.store_results)
    app.router.add_get("/f/{sha256}/{name}", answers.content)
    app.router.add_get("/p/{digest}/{name}", answers.package)
    app.router.add_get("/a/{slug}/{path:.+}", answers.artifact_file)
    app.router.add_get("/{path:.*}", answers.page)
    return app


class _Answers:
    def __init__(self, service: Service) -> None:
        self._service = service
        site, policy = service.site, service.policy
        document = catalogue(site, service.encodings, isolated=policy.isolated)
        text = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
        self._catalogue = {
            None: text,
            "br": brotli.compress(text),
            "gzip": gzip.compress(text, mtime=0),
        }
        self._catalogue_digest = hashlib.sha256(text).hexdigest()[:32]
        self._by_path = {
            (served.slug, name): file
            for served in site.artifacts
            for name, file in served.files.items()
        }
        self._by_content = {
            (file.sha256, PurePosixPath(file.name).name): file for file in self._by_path.values()
        }
        self._packages = {
            (package.digest, name): file
            for package in site.packages
            for name, file in package.files.items()
        }
        self._results_epoch = hashlib.sha256(service.token.encode()).hexdigest()[:8]

    @web.middleware
    async def count_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._service.connections.started(request.protocol)
        return await handler(request)

    @web.middleware
    async def limit_rate(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        post = request.method == "POST"
        limit = self._service.posts if post else self._service.requests
        if wait_s := limit.wait_s(client_key(request.remote or "")):
            raise web.HTTPTooManyRequests(
                text=f"too many requests; wait {wait_s} s", headers={"Retry-After": str(wait_s)}
            )
        return await handler(request)

    async def page(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        pages = self._service.site.pages
        if pages.is_folder(path):
            raise web.HTTPPermanentRedirect(f"/{path}/", headers={"Cache-Control": REVALIDATE})
        return await self._send(request, pages.find(path), REVALIDATE)

    async def content(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["sha256"], request.match_info["name"]
        return await self._send(request, self._by_content.get(key), IMMUTABLE)

    async def package(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["digest"], request.match_info["name"]
        return await self._send(request, self._packages.get(key), IMMUTABLE)

    async def artifact_file(self, request: web.Request) -> web.StreamResponse:
        key = request.match_info["slug"], request.match_info["path"]
        return await self._send(request, self._by_path.get(key), REVALIDATE)

    async def _send(
        self, request: web.Request, file: ServedFile | None, caching: str
    ) -> web.StreamResponse:
        if file is None:
            raise web.HTTPNotFound(text="there is no such file on this server")
        service = self._service
        return await send_file(
            request, file, service.encodings, caching=caching, salt=service.policy.salt
        )

    async def artifacts(self, request: web.Request) -> web.StreamResponse:
        coding = choose(request.headers, ("br", "gzip"))
        etag = f'"{"-".join(filter(None, (self._catalogue_digest, coding)))}"'
        headers = {"ETag": etag, "Cache-Control": REVALIDATE, "Vary": "Accept-Encoding"}
        if lists_etag(request, "If-None-Match", etag):
            raise web.HTTPNotModified(headers=headers)
        if coding is not None:
            headers["Content-Encoding"] = coding
        return web.Response(
            body=self._catalogue[coding],
            content_type="application/json",
            charset="utf-8",
            headers=headers,
        )

    async def session(self, request: web.Request) -> web.StreamResponse:
        check_origin(request)
        host = host_name(request.headers["Host"]) or ""
        if not (is_loopback(request.remote or "") and is_loopback(host)):
            raise web.HTTPForbidden(text="scan the code in the terminal to send results")
        return web.json_response({"token": self._service.token})

    async def list_results(self, request: web.Request) -> web.StreamResponse:
        self._check_token(request)
        store = self._service.store
        etag = f'"{self._results_epoch}-{store.version}"'
        headers = {"ETag": etag, "Cache-Control": NEVER_STORED}
        if lists_etag(request, "If-None-Match", etag):
            raise web.HTTPNotModified(headers=headers)
        lines = await asyncio.to_thread(store.lines)
        if request.query.get("format") == "jsonl":
            headers["Content-Disposition"] = 'attachment; filename="results.jsonl"'
            text = "".join(f"{line}\n" for line in lines)
            return web.Response(text=text, content_type="application/x-ndjson", headers=headers)
        text = f'{{"records": [{", ".join(lines)}], "total": {len(lines)}}}'
        return web.Response(text=text, content_type="application/json", headers=headers)

    async def store_results(self, request: web.Request) -> web.StreamResponse:
        check_origin(request)
        self._check_token(request)
        records = await read_delivery(request)
        try:
            added = await asyncio.to_thread(self._service.store.add, records)
        except StoreFullError as error:
            raise web.HTTPInsufficientStorage(text=str(error)) from error
        for record in added.new:
            self._service.on_result(record)
        return web.json_response(
            {"stored": len(added.new), "known": added.known, "total": added.total}
        )

    def _check_token(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, f"Bearer {self._service.token}".encode()):
            raise web.HTTPUnauthorized(
                text="no token, or an old one: scan the code in the terminal again",
                headers={"WWW-Authenticate": "Bearer"},
            )
