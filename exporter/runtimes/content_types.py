"""Media types by file name: a table of our own, since the system's differ or lack entries."""

from __future__ import annotations

from pathlib import PurePosixPath

__all__ = ["BINARY", "PAGE_SUFFIXES", "compressible", "content_type"]

BINARY = "application/octet-stream"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".md": "text/plain; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".onnx": BINARY,
    ".onnx_data": BINARY,
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}

PAGE_SUFFIXES = frozenset(
    {
        ".css", ".html", ".ico", ".js", ".json", ".mjs", ".png", ".svg", ".txt",
        ".webmanifest", ".woff2",
    }
)  # fmt: skip
"""What a page consists of; other files in its folder are not served."""

_COMPRESSED = {".ico", ".png", ".woff2"}


def content_type(name: str) -> str:
    """Return the media type of a file name; of an unknown one ``application/octet-stream``."""
    return _TYPES.get(PurePosixPath(name).suffix.lower(), BINARY)


def compressible(name: str) -> bool:
    """Whether compressing a file of that name may gain anything."""
    return PurePosixPath(name).suffix.lower() not in _COMPRESSED
