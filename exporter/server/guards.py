"""What every answer carries, and which requests get none: headers, hosts, origins, errors."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from aiohttp import web

from exporter.server.replies import NEVER_STORED

__all__ = ["Policy", "check_origin", "host_name", "is_loopback", "plain_errors"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# `blob:` lets a page use the copies of the runtime that it keeps itself where no browser would.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' blob: 'wasm-unsafe-eval'",
        "worker-src 'self' blob:",
        "connect-src 'self' blob:",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

_DENIED = (
    "accelerometer", "camera", "display-capture", "geolocation", "gyroscope", "hid",
    "magnetometer", "microphone", "midi", "payment", "serial", "usb",
)  # fmt: skip
_ALLOWED = ("clipboard-write", "cross-origin-isolated", "screen-wake-lock")

PERMISSIONS_POLICY = ", ".join(
    [*(f"{feature}=(self)" for feature in _ALLOWED), *(f"{feature}=()" for feature in _DENIED)]
)

SCRIPT_POLICY = (
    "default-src 'none'; script-src 'self' blob: 'wasm-unsafe-eval'; connect-src 'self' blob:"
)
"""The part of it that binds workers, whose script brings its own. Everything that is no page
has this one, since headers are a third of what small files cost."""

_COMMON = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_DOCUMENT = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Permissions-Policy": PERMISSIONS_POLICY,
    "Referrer-Policy": "no-referrer",
}
_EMBEDDER = {"Cross-Origin-Embedder-Policy": "require-corp"}
_OPENER = {"Cross-Origin-Opener-Policy": "same-origin"}

_HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::\d{1,5})?")


@dataclass(frozen=True)
class Policy:
    """Which hosts are served, and with which headers.

    Args:
        isolated: pages are sent with COOP and COEP, so that browsers give them threads.
            Scripts always are, or cached ones could not be used by an isolated page later.
        hosts: names that a ``Host`` header may hold.
        any_address: it may also hold any IP address: a rebound DNS name never is one.
    """

    isolated: bool = True
    hosts: Collection[str] = ("localhost",)
    any_address: bool = False

    @property
    def salt(self) -> str:
        """Changes when the headers do: browsers keep a page's headers as long as its ETag."""
        headers = {**_COMMON, **_DOCUMENT, **_EMBEDDER, **_OPENER}
        content = repr((sorted(headers.items()), SCRIPT_POLICY, self.isolated))
        return hashlib.sha256(content.encode()).hexdigest()[:6]

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Complete the headers of an answer; connect to ``on_response_prepare``."""
        response.headers.update(_COMMON)
        if _is_document(request, response):
            response.headers.update(_DOCUMENT)
            if self.isolated:
                response.headers.update({**_EMBEDDER, **_OPENER})
        else:
            response.headers["Content-Security-Policy"] = SCRIPT_POLICY
            response.headers.update(_EMBEDDER)
        response.headers.setdefault("Cache-Control", NEVER_STORED)
        response.headers["Server"] = "albert-export"

    def serves(self, request: web.Request) -> bool:
        """Whether the request names this server, and not a name that DNS was bent to."""
        headers = request.headers.getall("Host", [])
        name = host_name(headers[0]) if len(headers) == 1 else None
        if name is None:
            return False
        address = _address(name)
        if address is None:
            return name in self.hosts
        return self.any_address or address.is_loopback or name in self.hosts

    @web.middleware
    async def check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request for another host."""
        if not self.serves(request):
            raise web.HTTPMisdirectedRequest(
                text="this server does not answer under that name; use the address it printed"
            )
        return await handler(request)


def _is_document(request: web.Request, response: web.StreamResponse) -> bool:
    kind = response.headers.get("Content-Type")
    if kind is None:  # nothing new about what the browser has
        return request.path.endswith(("/", ".html"))
    return kind.startswith("text/html")


def plain_errors(report: Callable[[str], None]) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Return a middleware that answers every error as one line of plain text.

    Args:
        report: told about faults of this program.
    """

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            kept = {
                name: value
                for name, value in error.headers.items()
                if name not in ("Content-Type", "Content-Length")
            }
            text = None if error.empty_body else f"{error.text}\n"
            return web.Response(status=error.status, headers=kept, text=text)
        except ConnectionError:
            # The client is gone. What is returned can reach nobody; raising would be logged.
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=499)
        except Exception as error:
            report(f"a fault while answering {request.method}: {type(error).__name__}: {error}")
            return web.Response(status=500, text="a fault of the server; its terminal says more\n")

    return answer


def check_origin(request: web.Request) -> None:
    """Refuse what another site's page sends. Clients that are no browsers send no origin.

    Raises:
        web.HTTPForbidden: another origin, or a browser that says the request crosses sites.
    """
    own = f"{request.scheme}://{request.headers.get('Host', '')}"
    foreign = request.headers.get("Origin", own).lower() != own.lower()
    if foreign or request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        raise web.HTTPForbidden(text="only pages of this server may do that")


def host_name(header: str) -> str | None:
    """Return the name or address in a ``Host`` header, in lower case and without its port."""
    match = _HOST.fullmatch(header)
    return (match["address"] or match["name"]).lower().removesuffix(".") if match else None


def is_loopback(name: str) -> bool:
    """Whether a host name or address is this machine's own."""
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
