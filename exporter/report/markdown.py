"""The Markdown form: the same tables, short enough for a pull request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from exporter.report import tables
from exporter.report.build import Report, Section
from exporter.report.exit_views import exit_table
from exporter.report.tables import Table
from exporter.report.text import NO_BREAK, brief

__all__ = ["markdown_text"]

MAX_CHARACTERS = 60_000
"""GitHub refuses comments of more than 65,536."""

_PLAIN = re.compile(r"(?!.*(?:www\.|://))(?:[^\W_]|[ .,;:()+/%×–−·'-])*", re.IGNORECASE)


def markdown_text(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown.

    Tables and lists are cut, and say so, where the whole would not fit into a comment.
    """
    parts = [*_parts(report)]
    text = ""
    for limit in (200, 60, 20, 6, 2):
        text = "\n".join(line for part in parts for line in part(limit)) + "\n"
        if len(text) <= MAX_CHARACTERS:
            break
    return text


_Part = Callable[[int], Iterator[str]]
"""Yields its lines, given how many rows or items it may have."""


def _parts(report: Report) -> Iterator[_Part]:
    yield _text(f"## {_inline(report.title)}")
    for section in report.parts:
        if len(report.parts) > 1:
            yield _text("", f"## {_inline(section.artifact)}")
        yield from _section(section)
    yield _table("Devices", tables.device_table(report.devices))
    incidents = [f"**{i.kind}** {_inline(i.subject)}: {_inline(i.text)}" for i in report.incidents]
    yield _list("Failed or not run", incidents)
    doubts = [f"**{name}**: {_inline(text)}" for name, text in report.doubts]
    yield _list("Doubtful figures", doubts)
    yield _list("Not comparable", map(_inline, report.incomparable))
    yield _list("Left out", (_inline(str(notice)) for notice in report.notices))
    commands = [command for command, _ in report.commands]
    if report.command:
        commands.append(report.command)
    yield _list("Reproduce", (_code(brief(command, 600)) for command in commands))


def _section(section: Section) -> Iterator[_Part]:
    yield _text("", f"**{_inline(section.headline.sentence)}**")
    yield _text("", *(f"{_inline(detail)}  " for detail in section.headline.details))
    yield _list("Where it loses", map(_inline, section.headline.losses))
    yield _table("Sizes", tables.size_table(section.models, section.against))
    ratios = tables.ratio_table(section.settings)
    yield _table(f"Against {_inline(section.opponent)} (below 1 is better)", ratios)
    yield _table("Latency", tables.latency_table(section.settings))
    yield _table("Loading and memory", tables.load_table(section.settings))
    yield _table("Accuracy", tables.accuracy_table(section.evaluations))
    yield _table("Leaving early", exit_table(section.exits))


def _text(*lines: str) -> _Part:
    return lambda limit: iter(lines)


def _table(title: str, table: Table) -> _Part:
    count = sum(group.size for group in table.groups)
    titles = [column.title for column in table.columns]
    rules = ["--:" if column.numeric else "---" for column in table.columns]

    def lines(limit: int) -> Iterator[str]:
        if not count:
            return
        yield from ("", f"### {title}")
        left = limit
        for group in table.groups:
            if left <= 0:
                break
            if group.heading:
                yield from ("", f"#### {_inline(brief(group.heading, 160))}")
            yield from ("", _line(titles), _line(rules))
            yield from (_line(_cell(cell.text) for cell in row) for row in group.rows[:left])
            left -= group.size
        if (rest := count - limit) > 0:
            yield from ("", f"{rest:,} more rows are left out here.")

    return lines


def _list(title: str, items: Iterable[str]) -> _Part:
    found = list(items)

    def lines(limit: int) -> Iterator[str]:
        if not found:
            return
        yield from ("", f"### {title}", "")
        yield from (f"- {item}" for item in found[:limit])
        if (rest := len(found) - limit) > 0:
            yield f"- {rest:,} more are left out here."

    return lines


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    # A pipe ends a cell even within code; the backslash is not shown.
    return _inline(brief(text, 160)).replace("|", "\\|")


def _inline(text: str) -> str:
    """Return text that cannot act: neither markup, nor a link, nor a mention of somebody.

    What is not plain is set as code, where nothing has a meaning.
    """
    short = brief(text.replace(NO_BREAK, " "), 400)
    return short if _PLAIN.fullmatch(short) else _code(short)


def _code(text: str) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest else ""
    return f"{fence}{pad}{text}{pad}{fence}"
