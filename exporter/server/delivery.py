"""Read measurements from the body of a request, without trusting any of it."""

from __future__ import annotations

import asyncio

from aiohttp import web

from exporter.records import Measurement, RecordError, parse_record

__all__ = ["MAX_BODY_BYTES", "MAX_RECORDS", "read_delivery"]

MAX_BODY_BYTES = 2**20
MAX_RECORDS = 200

BODY_TIMEOUT_S = 10.0

_TYPES = ("application/json", "application/x-ndjson")


async def read_delivery(request: web.Request) -> list[Measurement]:
    """Return the measurements of a request: one in JSON, or one per line.

    Raises:
        web.HTTPException: 400, 408, 413 or 415, with a text that names line and field.
    """
    if request.content_type not in _TYPES or "Content-Encoding" in request.headers:
        raise web.HTTPUnsupportedMediaType(text=f"send {' or '.join(_TYPES)}, not compressed")
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise _too_large()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            body = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="the body came too slowly") from None
    except web.HTTPRequestEntityTooLarge:  # a body without a length
        raise _too_large() from None
    lines = [line for line in body.splitlines() if line.strip()]
    if request.content_type == "application/json":
        lines = [body] if body.strip() else []
    if not lines:
        raise web.HTTPBadRequest(text="no record")
    if len(lines) > MAX_RECORDS:
        raise web.HTTPRequestEntityTooLarge(
            max_size=MAX_RECORDS,
            actual_size=len(lines),
            text=f"{len(lines)} records at once; the limit is {MAX_RECORDS}",
        )
    return [_measurement(number, line) for number, line in enumerate(lines, start=1)]


def _measurement(number: int, line: bytes) -> Measurement:
    try:
        record = parse_record(line)
    except RecordError as error:
        text = "".join(letter if letter.isprintable() else " " for letter in str(error))
        raise web.HTTPBadRequest(text=f"record {number}: {text[:500]}") from error
    if not isinstance(record, Measurement):
        raise web.HTTPBadRequest(text=f"record {number}: only measurements are taken")
    return record


def _too_large() -> web.HTTPException:
    return web.HTTPRequestEntityTooLarge(
        max_size=MAX_BODY_BYTES, text=f"a delivery may have {MAX_BODY_BYTES:,} bytes"
    )
