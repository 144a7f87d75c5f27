"""Answer on a bound socket, within the limits of connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from aiohttp import web

from exporter.server.limits import ConnectionGate, ConnectionLimits
from exporter.server.transfers import Transfer, transfer_logger

__all__ = ["listen"]

SHUTDOWN_S = 2.0
"""How long answers under way may take when the server ends."""

_KEEPALIVE_S = 30.0


async def listen(
    stack: contextlib.AsyncExitStack,
    app: web.Application,
    bound: socket.socket,
    *,
    connections: ConnectionLimits,
    tls: ssl.SSLContext | None = None,
    transfer: Callable[[Transfer], None] | None = None,
) -> None:
    """Serve ``app`` until ``stack`` ends.

    Args:
        stack: ends the serving.
        app: what answers.
        bound: a bound socket.
        connections: limits of connections.
        tls: serve https with it.
        transfer: told about each answer.
    """
    # What clients do wrong is answered, not printed: aiohttp would log each with a traceback.
    quiet = logging.Logger("http")
    quiet.addHandler(logging.NullHandler())
    runner = web.AppRunner(
        app,
        logger=quiet,
        access_log=quiet if transfer else None,
        access_log_class=transfer_logger(transfer or _ignore),
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=_KEEPALIVE_S,
        lingering_time=1,
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    make = runner.server
    assert make is not None  # set up
    server = await asyncio.get_running_loop().create_server(
        lambda: ConnectionGate(make(), connections),
        sock=bound,
        ssl=tls,
        ssl_handshake_timeout=connections.header_timeout_s if tls else None,
    )
    stack.callback(server.close)


def _ignore(transfer: Transfer) -> None:
    pass
