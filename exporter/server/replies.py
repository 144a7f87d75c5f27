"""Answer a request for a file: negotiated coding, conditions, ranges, in small pieces.

aiohttp's own ``FileResponse`` is not used, since it would send unlisted ``.br`` and ``.gz``
neighbours of a model, take ``br;q=0`` for a wish, name content by its time instead of its
hash, and ignore an ``If-Range`` that holds an ETag.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import BinaryIO

from aiohttp import web

from exporter.server.encodings import Coding, Encodings
from exporter.server.files import ChangedFileError, ServedFile

__all__ = [
    "IMMUTABLE",
    "NEVER_STORED",
    "REVALIDATE",
    "accepted",
    "choose",
    "lists_etag",
    "send_file",
]

IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
NEVER_STORED = "no-store"

WRITE_TIMEOUT_S = 30.0
"""How long a client may take for one piece before it is cut off."""

_CHUNK_BYTES = 1 << 16
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_CODINGS: tuple[Coding, ...] = ("br", "gzip")


async def send_file(
    request: web.Request,
    file: ServedFile,
    encodings: Encodings,
    *,
    caching: str,
    salt: str = "",
) -> web.StreamResponse:
    """Send ``file``, or what the request's conditions and range make of it.

    Args:
        caching: ``Cache-Control`` of the answer.
        salt: goes into the ETag; what the answer depends on besides the content.

    Raises:
        web.HTTPException: 304, 410 (changed since the server started), 412 or 416.
    """
    plain_etag = _etag(file, salt)
    asked = _asked_range(request, plain_etag)
    # A range is one of the file itself: its parts fit together whatever was accepted.
    wished = None
    if not asked:
        made = [coding for coding in _CODINGS if encodings.get(file, coding)]
        wished = choose(request.headers, made)
    stream, coding, size = await asyncio.to_thread(_open, file, encodings, wished)
    with stream:
        etag = _etag(file, salt, coding)
        headers = {"ETag": etag, "Cache-Control": caching, "Vary": "Accept-Encoding"}
        if "If-Match" in request.headers and not lists_etag(request, "If-Match", etag):
            raise web.HTTPPreconditionFailed(headers=headers, text="the file is another one")
        if lists_etag(request, "If-None-Match", etag):
            raise web.HTTPNotModified(headers=headers)
        if coding is None:
            headers["Accept-Ranges"] = "bytes"
        else:
            headers["Content-Encoding"] = coding
        part = _satisfy(asked, size) if asked else range(size)
        if asked:
            headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
        response = web.StreamResponse(status=206 if asked else 200, headers=headers)
        response.headers["Content-Type"] = file.content_type
        response.content_length = len(part)
        await response.prepare(request)
        if request.method != "HEAD":
            await _stream(request, response, stream, part)
    return response


def accepted(headers: Mapping[str, str]) -> dict[str, float]:
    """Return the weights of the content codings that a client accepts."""
    weights: dict[str, float] = {}
    for item in headers.get("Accept-Encoding", "").lower().split(","):
        coding, *parameters = (part.strip() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                try:
                    weight = float(value)
                except ValueError:
                    weight = 0.0
        weights[coding] = weight
    return weights


def choose(headers: Mapping[str, str], made: Collection[Coding]) -> Coding | None:
    """Return the best of the codings ``made`` that a client accepts."""
    weights = accepted(headers)
    rest = weights.get("*", 0.0)
    return next((c for c in _CODINGS if c in made and weights.get(c, rest) > 0), None)


def lists_etag(request: web.Request, header: str, etag: str) -> bool:
    """Whether a condition names ``etag``, weakly compared, or any."""
    listed = [
        item.strip().removeprefix("W/") for item in request.headers.get(header, "").split(",")
    ]
    return etag in listed or listed == ["*"]


def _etag(file: ServedFile, salt: str, coding: Coding | None = None) -> str:
    return f'"{"-".join(filter(None, (file.sha256[:32], salt, coding)))}"'


def _open(
    file: ServedFile, encodings: Encodings, coding: Coding | None
) -> tuple[BinaryIO, Coding | None, int]:
    try:
        plain = file.open()  # even for a copy: a model that was replaced is gone in every form
    except ChangedFileError as error:
        raise web.HTTPGone(
            text=f"{error}; start the server again", headers={"Cache-Control": NEVER_STORED}
        ) from error
    copy = encodings.get(file, coding) if coding else None
    if copy is None:
        return plain, None, file.bytes
    try:
        compressed = copy.path.open("rb")
    except OSError:  # somebody cleaned the cache folder
        return plain, None, file.bytes
    plain.close()
    return compressed, coding, copy.bytes


def _asked_range(request: web.Request, etag: str) -> tuple[int | None, int | None] | None:
    """Return first and last byte as asked for; a range that is no single one is ignored."""
    match = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if request.method != "GET" or match is None or request.headers.get("If-Range", etag) != etag:
        return None
    first, last = (int(digits) if digits else None for digits in match.groups())
    if first is None:
        return None if last is None else (None, last)
    return None if last is not None and last < first else (first, last)


def _satisfy(asked: tuple[int | None, int | None], size: int) -> range:
    first, last = asked
    if first is None:
        part = range(max(size - (last or 0), 0), size)
    else:
        part = range(first, size if last is None else min(last + 1, size))
    if not len(part):
        raise web.HTTPRequestRangeNotSatisfiable(
            headers={"Content-Range": f"bytes */{size}"}, text=f"the file has {size} bytes"
        )
    return part


async def _stream(
    request: web.Request, response: web.StreamResponse, stream: BinaryIO, part: range
) -> None:
    stream.seek(part.start)
    left = len(part)
    try:
        while left:
            chunk = await asyncio.to_thread(stream.read, min(_CHUNK_BYTES, left))
            if not chunk:
                raise ConnectionAbortedError("the file was cut short while it was sent")
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await response.write(chunk)
            left -= len(chunk)
    except (TimeoutError, ConnectionAbortedError):
        # The length was promised: a broken connection is the only honest end.
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client was too slow, or the file was cut short") from None
