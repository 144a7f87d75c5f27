"""Where the server listens, and under which addresses it is reached."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.errors import BenchmarkError
from exporter.server.guards import is_loopback
from exporter.server.lan import local_addresses, local_names

__all__ = ["Binding", "bind"]

_PORTS_TRIED = 50


@dataclass(frozen=True)
class Binding:
    """Sockets that are bound, and not listening yet.

    Args:
        main: for the pages.
        plain: for the plain http page beside https, on the next port.
        addresses: under which the server is reached; the first one is the best.
        names: further host names it answers to.
    """

    main: socket.socket
    plain: socket.socket | None
    addresses: Sequence[str]
    names: Sequence[str] = ()

    @property
    def port(self) -> int:
        """Port of the pages."""
        return int(self.main.getsockname()[1])

    def close(self) -> None:
        """Give the ports back."""
        self.main.close()
        if self.plain is not None:
            self.plain.close()


def bind(host: str, port: int, *, lan: bool, plain: bool) -> Binding:
    """Take the ports.

    Args:
        host: an address, or ``localhost``; with ``lan`` a loopback address means all.
        port: 0 takes any free one.
        lan: whether other devices shall reach it.
        plain: also take the next port.

    Raises:
        BenchmarkError: the port is taken (the text names the next free one), may not be
            used, the host is none of this machine, or it is no loopback address without
            ``lan``.
    """
    if not lan and not is_loopback(host):
        raise BenchmarkError(
            f"--host {host} is reached from the network; add --lan if that is wanted"
        )
    everywhere = (lan and is_loopback(host)) or host in ("0.0.0.0", "::")
    address = "0.0.0.0" if everywhere else ("127.0.0.1" if host == "localhost" else host)
    reached = local_addresses() if everywhere else [address]
    if not reached:
        raise BenchmarkError("no network address found; connect to a network, or leave --lan out")
    main = _socket(address, port)
    try:
        second = _socket(address, main.getsockname()[1] + 1) if plain else None
    except BaseException:
        main.close()
        raise
    return Binding(main, second, reached, local_names() if lan else ())


def _socket(address: str, port: int) -> socket.socket:
    try:
        return _try(address, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            hint = f"try --port {free}" if (free := _next_free(address, port)) else "try another"
            raise BenchmarkError(f"port {port} is taken; {hint}") from error
        if error.errno == errno.EACCES:
            raise BenchmarkError(f"port {port} may not be used; try --port 8000") from error
        raise BenchmarkError(f"cannot listen on {address}: {error.strerror or error}") from error
    except OverflowError as error:
        raise BenchmarkError(f"port {port} is none; the largest is 65535") from error


def _next_free(address: str, port: int) -> int | None:
    for candidate in range(port + 1, min(port + _PORTS_TRIED, 65_534)):
        try:
            # Two in a row: https needs the next one too.
            _try(address, candidate).close()
            _try(address, candidate + 1).close()
        except OSError:
            continue
        return candidate
    return None


def _try(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Without it, a server that was just ended would block its port for a minute.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(0)  # on some systems only this finds out that the port is taken
    except BaseException:
        made.close()
        raise
    return made
