"""Where the files of the web pages are, in a checkout and in an installed package."""

from __future__ import annotations

from pathlib import Path

from exporter.errors import BenchmarkError

__all__ = ["web_folder"]


def web_folder() -> Path:
    """Return the folder ``web_demo``.

    Raises:
        BenchmarkError: this installation came without it.
    """
    package = Path(__file__).resolve().parents[1]
    # A wheel holds it within the package, a checkout beside it.
    for folder in (package / "web_demo", package.parent / "web_demo"):
        if (folder / "measure" / "core.js").is_file():
            return folder.resolve()
    raise BenchmarkError(f"the web files are missing: neither in {package} nor beside it")
