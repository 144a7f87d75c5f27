"""What each answer cost on the wire, for those who want to count it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

__all__ = ["Transfer", "transfer_logger"]


@dataclass(frozen=True)
class Transfer:
    """One answer.

    Args:
        method, path, status: request and answer.
        encoding: ``Content-Encoding``, if any.
        sent_bytes: head and body as HTTP/1.1 writes them; 0 where the client went away.
        seconds: from the request to the last byte.
    """

    method: str
    path: str
    status: int
    encoding: str | None
    sent_bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def transfer_logger(report: Callable[[Transfer], None]) -> type[AbstractAccessLogger]:
    """Return aiohttp's kind of access logger, which tells ``report`` about each answer."""

    class TransferLogger(AbstractAccessLogger):
        def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
            coding = response.headers.get("Content-Encoding")
            sent = response.body_length  # aiohttp counts the head into it
            report(
                Transfer(
                    request.method, request.path, response.status, coding, sent, round(time, 4)
                )
            )

    return TransferLogger
