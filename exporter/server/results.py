"""Measurements that devices sent, in a SQLite database that survives a crash."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from exporter.errors import BenchmarkError
from exporter.records import Measurement, Record, parse_record, to_json

__all__ = ["RESULTS_NAME", "Added", "ResultStore", "StoreFullError", "read_results"]

RESULTS_NAME = "results.sqlite"

MAX_RECORDS = 10_000
MAX_BYTES = 32 * 2**20


class StoreFullError(BenchmarkError):
    """No room for more records."""


@dataclass(frozen=True)
class Added:
    """What became of a delivery.

    Args:
        new: records that were not there before.
        known: how many were; one that differs in its device's label replaces the old one.
        total: records in the store.
    """

    new: tuple[Measurement, ...]
    known: int
    total: int


class ResultStore:
    """The records of one results folder; may be used from several threads.

    Args:
        folder: where the database lies, made where missing; ``None`` keeps the records in
            memory, until the program ends.

    Raises:
        BenchmarkError: the folder cannot be written to, or the file is no such database.
    """

    def __init__(
        self, folder: Path | None, *, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES
    ) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._lock = threading.Lock()
        self.version = 0
        """Grows with every change."""
        place = str(folder / RESULTS_NAME) if folder else ":memory:"
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(place, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS results "
                "(id TEXT PRIMARY KEY, received TEXT NOT NULL, record TEXT NOT NULL)"
            )
        except (OSError, sqlite3.Error) as error:
            raise BenchmarkError(f"results cannot be kept in {place}: {error}") from error

    def add(self, records: Sequence[Measurement]) -> Added:
        """Keep all of ``records``, or none.

        Raises:
            StoreFullError: there is no room for them.
            BenchmarkError: the database cannot be written to.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        new: dict[str, Measurement] = {}
        with self._lock:
            try:
                with self._database as database:
                    for record in records:
                        key, line = _identity(record), to_json(record)
                        added = database.execute(
                            "INSERT INTO results VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                            (key, now, line),
                        ).rowcount
                        if added:
                            new[key] = record
                        else:
                            database.execute(
                                "UPDATE results SET record = ? WHERE id = ?", (line, key)
                            )
                    total, size = database.execute(
                        "SELECT count(*), coalesce(sum(length(record)), 0) FROM results"
                    ).fetchone()
                    if new and (total > self._max_records or size > self._max_bytes):
                        raise StoreFullError(  # rolls back
                            f"the results are full ({total - len(new):,} records); "
                            "start the server with another --results folder"
                        )
            except sqlite3.Error as error:
                raise BenchmarkError(f"results cannot be written: {error}") from error
            self.version += 1
        return Added(tuple(new.values()), len(records) - len(new), total)

    def lines(self) -> list[str]:
        """Return all records as JSON, oldest first."""
        with self._lock:
            rows = self._database.execute("SELECT record FROM results ORDER BY rowid").fetchall()
        return [row[0] for row in rows]

    def close(self) -> None:
        """Write everything into the one file and close it."""
        with self._lock:
            self._database.close()


def read_results(folder: Path) -> Iterator[Record]:
    """Read the records of a results folder, oldest first; a server may be writing to it.

    Raises:
        BenchmarkError: there are no results, or they cannot be read.
    """
    path = folder / RESULTS_NAME
    if not path.is_file():
        raise BenchmarkError(
            f"{folder} holds no {RESULTS_NAME}; make one with: albert-export serve --results FOLDER"
        )
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            for (line,) in database.execute("SELECT record FROM results ORDER BY rowid"):
                yield parse_record(line)
    except sqlite3.Error as error:
        raise BenchmarkError(f"{path} cannot be read: {error}") from error


def _identity(record: Measurement) -> str:
    """Return what two deliveries of one measurement share; people may edit the label."""
    device = msgspec.structs.replace(record.device, label="")
    bare = msgspec.structs.replace(record, device=device)
    return hashlib.sha256(to_json(bare).encode()).hexdigest()
