"""How much one client may ask for: requests by address, and open connections."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

__all__ = ["ConnectionGate", "ConnectionLimits", "RateLimit", "client_key"]

HEADER_TIMEOUT_S = 10.0
"""How long a new connection may take for its first request."""

_CLIENTS = 4096


class RateLimit:
    """A token bucket per client address.

    Args:
        burst: requests a client may send at once.
        per_second: how many it gets back per second.
        clock: tells seconds.
    """

    def __init__(
        self, burst: int, per_second: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst, self._rate, self._clock = burst, per_second, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> int:
        """Count one request of ``client``; 0 if it may pass, else the seconds to wait."""
        now = self._clock()
        level, then = self._levels.pop(client, (float(self._burst), now))
        level = min(self._burst, level + (now - then) * self._rate)
        passes = level >= 1
        self._levels[client] = (level - 1 if passes else level, now)
        if len(self._levels) > _CLIENTS:  # the one not seen for longest has filled up again
            self._levels.popitem(last=False)
        return 0 if passes else math.ceil((1 - level) / self._rate)


class ConnectionLimits:
    """Counts open connections, and ends those that send no request.

    Args:
        total: connections at a time.
        per_client: connections of one address at a time.
        header_timeout_s: time for the first request of a connection.
    """

    def __init__(
        self, total: int = 400, per_client: int = 256, header_timeout_s: float = HEADER_TIMEOUT_S
    ) -> None:
        self.header_timeout_s = header_timeout_s
        self._total, self._per_client = total, per_client
        self._open: Counter[str] = Counter()
        self._waiting: dict[asyncio.BaseProtocol, ConnectionGate] = {}

    @classmethod
    def for_open_files(cls, limit: int) -> ConnectionLimits:
        """Return limits that fit a process that may hold ``limit`` files open (-1: any number).

        A download takes two of them; and one client leaves a third of the room to others.
        """
        total = max(min(400, limit // 2 - 20), 10) if limit >= 0 else 400
        return cls(total=total, per_client=min(256, total * 2 // 3))

    def enter(self, client: str) -> bool:
        """Count a connection; whether it may stay."""
        if self._open.total() >= self._total or self._open[client] >= self._per_client:
            return False
        self._open[client] += 1
        return True

    def leave(self, client: str) -> None:
        """Count a connection that ended."""
        self._open[client] -= 1
        if not self._open[client]:
            del self._open[client]

    def wait(self, protocol: asyncio.BaseProtocol, gate: ConnectionGate) -> None:
        """Remember that ``protocol`` has no request yet."""
        self._waiting[protocol] = gate

    def started(self, protocol: asyncio.BaseProtocol | None) -> None:
        """Say that ``protocol`` has one: its deadline is over."""
        gate = self._waiting.pop(protocol, None) if protocol is not None else None
        if gate is not None:
            gate.cancel_deadline()


class ConnectionGate(asyncio.Protocol):
    """Stands before aiohttp's protocol of one connection; passes on what is within limits."""

    def __init__(self, inner: asyncio.Protocol, limits: ConnectionLimits) -> None:
        self._inner, self._limits = inner, limits
        self._client: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
        """Let the connection in, or tell it to come later."""
        self._transport = transport
        client = client_key((transport.get_extra_info("peername") or [""])[0])
        if not self._limits.enter(client):
            self._refuse("503 Service Unavailable", "too many connections; try again")
            return
        self._client = client
        self._limits.wait(self._inner, self)
        self._deadline = asyncio.get_running_loop().call_later(
            self._limits.header_timeout_s, self._expire
        )
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on."""
        if self._client is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on."""
        return self._inner.eof_received() if self._client is not None else None

    def pause_writing(self) -> None:
        """Pass on."""
        if self._client is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass on."""
        if self._client is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on, and make room."""
        if self._client is None:
            return
        self._limits.started(self._inner)
        self._limits.leave(self._client)
        self._inner.connection_lost(exc)

    def cancel_deadline(self) -> None:
        """The first request is there."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _expire(self) -> None:
        self._limits.started(self._inner)
        self._refuse("408 Request Timeout", "no request came in time")

    def _refuse(self, status: str, text: str) -> None:
        assert self._transport is not None  # refused only once connected
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        rest = f"Content-Length: {len(text) + 1}\r\nConnection: close\r\nRetry-After: 5\r\n\r\n"
        self._transport.write(f"{head}{rest}{text}\n".encode())
        self._transport.close()


def client_key(address: str) -> str:
    """Return what counts as one client: an IPv4 address, or an IPv6 network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed)
