"""``albert-export report``: measurements of many devices and days on one page."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from exporter.cli.console import clear_errors

__all__ = ["report"]

FORMATS = ("html", "md", "json")


class Formats(click.ParamType[tuple[str, ...]]):
    """Names of report forms, separated by commas."""

    name = "FORMATS"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split the names, or say which there are."""
        names = tuple(dict.fromkeys(name.strip() for name in str(value).split(",")))
        if unknown := [name for name in names if name not in FORMATS]:
            self.fail(f"{unknown[0]!r} is none of {', '.join(FORMATS)}.", param, ctx)
        return names


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-o",
    "--output",
    default="report.html",
    show_default=True,
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Where to write; other formats lie beside it. '-' prints.",
)
@click.option(
    "--format",
    "formats",
    type=Formats(),
    help="html, md, json, or several: html,md.  [what the output's name ends in, else html]",
)
@click.option(
    "--artifact",
    "--manifest",
    "artifacts",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Artifact whose manifest adds files that were not measured, and coverage.",
)
@click.option("--title", help="Title of the report.")
@clear_errors
def report(
    results: tuple[Path, ...],
    output: Path,
    formats: tuple[str, ...] | None,
    artifacts: tuple[Path, ...],
    title: str | None,
) -> None:
    """Make one page of the measurements in RESULTS.

    RESULTS are files that bench and evaluate wrote, or folders of them, from any number of
    devices and days; a record that occurs twice counts once. The page is one HTML file that
    needs no network. Lines that are no records are skipped and named.

    \b
    albert-export report results.jsonl
    albert-export report laptop.jsonl phones/ -o release.html --format html,md
    albert-export report results.jsonl --format md -o - | gh pr comment 12 -F -
    """
    from exporter.cli.report_files import STDOUT, destinations, read_manifest, write_all
    from exporter.report import FORMATS, build_report, collect

    paths = destinations(output, formats, results)
    collected = collect(results)
    for notice in collected.notices:
        click.echo(f"Notice: {notice}", err=True)
    built = build_report(
        collected.records,
        command=shlex.join(["albert-export", *sys.argv[1:]]),
        manifests=[read_manifest(path) for path in artifacts],
        notices=collected.notices,
        title=title,
    )
    texts = {path: FORMATS[name](built) for name, path in paths.items()}
    if STDOUT in texts:
        click.echo(texts[STDOUT], nl=False)
        return
    for path in write_all(texts):
        click.echo(path)
