"""What answers plain http beside https: one page that says what is missing there."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from aiohttp import web

from exporter.server.guards import Handler, Policy, host_name, plain_errors
from exporter.server.limits import ConnectionLimits

__all__ = ["build_plain_app"]

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Please use https</title>
<link rel="stylesheet" href="/plain.css">
</head>
<body>
<main>
<h1>This page needs https</h1>
<p>You came by plain http. Over the network, browsers then withhold what a measurement
needs:</p>
<ul>
<li>threads: no shared memory, so one thread only;</li>
<li>precise clocks: times come in steps of 0.1 ms or more;</li>
<li>storage for models (Cache API, OPFS): each visit downloads them again;</li>
<li>the wake lock: the screen may turn off during a measurement;</li>
<li>brotli: downloads are larger.</li>
</ul>
<p><a href="{url}">Continue with https</a></p>
<p>The browser will warn that it does not know the certificate: it was made a moment ago, on
the machine you want to reach, and nobody vouches for it. Continue only if this is your own
network. To send results, scan the code in the terminal there instead of following the
link.</p>
</main>
</body>
</html>
"""

_STYLE = """:root { color-scheme: light dark; font: 1.1rem/1.5 system-ui, sans-serif }
main { max-width: 40rem; margin: 2rem auto; padding: 0 1rem }
a { font-weight: bold }
"""


def build_plain_app(
    policy: Policy,
    https_port: int,
    connections: ConnectionLimits,
    on_fault: Callable[[str], None] = lambda line: None,
) -> web.Application:
    """Return the application for plain http.

    Args:
        policy: which hosts are answered.
        https_port: where the pages are.
        connections: told when a connection's first request has come.
        on_fault: told about faults, in one line.
    """

    async def page(request: web.Request) -> web.StreamResponse:
        name = host_name(request.headers["Host"]) or ""
        host = f"[{name}]" if ":" in name else name
        text = _PAGE.format(url=escape(f"https://{host}:{https_port}/"))
        return web.Response(text=text, content_type="text/html", charset="utf-8")

    async def style(request: web.Request) -> web.StreamResponse:
        return web.Response(text=_STYLE, content_type="text/css", charset="utf-8")

    async def missing(request: web.Request) -> web.StreamResponse:
        raise web.HTTPNotFound(text=f"only https serves files, on port {https_port}")

    @web.middleware
    async def count_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        connections.started(request.protocol)
        return await handler(request)

    app = web.Application(middlewares=[count_request, plain_errors(on_fault), policy.check_host])
    app.on_response_prepare.append(policy.add_headers)
    app.router.add_get("/plain.css", style)
    for path in ("/", "/index.html", "/demo/", "/bench/"):
        app.router.add_get(path, page)
    app.router.add_get("/{path:.*}", missing)
    return app
