"""Read records from the places people keep them in; what is no record becomes a notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from exporter.errors import BenchmarkError
from exporter.records import Measurement, Record, RecordError, parse_record, to_json
from exporter.server import RESULTS_NAME, read_results

__all__ = ["Collected", "Notice", "collect", "read_lines", "read_source", "unique_records"]

MAX_LINE_BYTES = 8 << 20
"""Longer lines are no records: 100,000 samples take about 2 MB."""

MAX_NOTICES = 20
"""Per source; what follows is counted."""


@dataclass(frozen=True)
class Notice:
    """What was left out: ``where`` is a file, its line, or both; ``text`` says why."""

    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class Collected:
    """Records of several sources, each once, and what was left out."""

    records: tuple[Record, ...]
    notices: tuple[Notice, ...]


def collect(paths: Iterable[Path]) -> Collected:
    """Read and merge all sources.

    Raises:
        BenchmarkError: a source holds no valid record.
        OSError: a source cannot be read.
    """
    records: list[Record] = []
    notices: list[Notice] = []
    for path in paths:
        found = list(read_source(path))
        valid = [item for item in found if not isinstance(item, Notice)]
        skipped = [item for item in found if isinstance(item, Notice)]
        if not valid:
            reason = f"; {skipped[0]}" if skipped else ": it is empty"
            raise BenchmarkError(
                f"{path} holds no valid record{reason}; "
                "make one with: albert-export bench ARTIFACT --out results.jsonl"
            )
        records += valid
        notices += skipped[:MAX_NOTICES]
        if (more := len(skipped) - MAX_NOTICES) > 0:
            notices.append(Notice(str(path), f"{more:,} more lines skipped"))
    kept = unique_records(records)
    if (repeated := len(records) - len(kept)) > 0:
        notices.append(
            Notice("merging", f"{repeated:,} of {len(records):,} records were there already")
        )
    return Collected(kept, tuple(notices))


def read_source(path: Path) -> Iterator[Record | Notice]:
    """Yield the records of one source: a results file, a folder of them, or a server's store.

    Every other kind of source joins here: a function that yields records and notices.
    """
    reader: Callable[[Path], Iterator[Record | Notice]] = (
        _read_folder if path.is_dir() else read_lines
    )
    return reader(path)


def _read_folder(folder: Path) -> Iterator[Record | Notice]:
    if (folder / RESULTS_NAME).is_file():
        yield from read_results(folder)
    for path in sorted(folder.glob("*.jsonl")):
        yield from read_lines(path)


def read_lines(path: Path) -> Iterator[Record | Notice]:
    """Yield a JSON Lines file's records, and a notice for every line that is none."""
    with path.open("rb") as stream:
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            where = f"{path}, line {number:,}"
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = stream.readline(MAX_LINE_BYTES)
                yield Notice(where, f"skipped: longer than {MAX_LINE_BYTES >> 20} MiB")
                continue
            content = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
            if not content:
                continue
            try:
                yield parse_record(content)
            except RecordError as error:
                cut = "" if line.endswith(b"\n") else "; the file ends within this line"
                yield Notice(where, f"skipped: {error}{cut}")


def unique_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return each record once, in the order of their first appearance.

    A device's label is what a person calls it and may have been changed since: two records
    that differ in it alone are one, with the label that came last.
    """
    seen: dict[str, Record] = {}
    for record in records:
        seen[_identity(record)] = record
    return tuple(seen.values())


def _identity(record: Record) -> str:
    if isinstance(record, Measurement):
        unnamed = msgspec.structs.replace(record.device, label="")
        record = msgspec.structs.replace(record, device=unnamed)
    return to_json(record)
