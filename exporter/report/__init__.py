"""Reports: from records to one HTML page, Markdown or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from exporter.records import Record
from exporter.report.build import Report, Section, build_report
from exporter.report.document import json_document
from exporter.report.markdown import markdown_text
from exporter.report.page import html_page
from exporter.report.sources import Collected, Notice, collect, read_source

__all__ = [
    "FORMATS",
    "Collected",
    "Notice",
    "Report",
    "Section",
    "build_report",
    "collect",
    "read_source",
    "render_html",
    "render_json",
    "render_markdown",
]

FORMATS: Mapping[str, Callable[[Report], str]] = {
    "html": html_page,
    "md": markdown_text,
    "json": json_document,
}
"""Each form of a report by its file suffix."""


def render_html(
    records: Iterable[Record],
    *,
    command: str | None = None,
    manifests: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return one self-contained HTML page; see :func:`build_report`."""
    return html_page(build_report(records, command=command, manifests=manifests))


def render_markdown(
    records: Iterable[Record],
    *,
    command: str | None = None,
    manifests: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return Markdown that fits into a pull request; see :func:`build_report`."""
    return markdown_text(build_report(records, command=command, manifests=manifests))


def render_json(
    records: Iterable[Record],
    *,
    command: str | None = None,
    manifests: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the derived figures as JSON; see :func:`build_report`."""
    return json_document(build_report(records, command=command, manifests=manifests))
