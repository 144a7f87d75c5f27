"""What the comparison of layouts makes of figures; no model is exported or run."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.layout.first_run import table
from benchmarks.layout.fusions import first_of_equals
from benchmarks.layout.measuring import Measured, NotingRuntimes, measure, opening_ratio
from benchmarks.layout.run import LAYOUTS, figures
from benchmarks.layout.table import document
from exporter.benchmark import BenchmarkOptions, InstalledRuntimes, Run
from exporter.records import Check, Memory, Times
from exporter.runtimes.worker import Opened
from tests.benchmark.fakes import DEVICE, FakeLauncher, Script, arm

LOADS_MS = {
    ("unrolled", 16): (100.0, 300.0),
    ("unrolled", 128): (100.0, 300.0),
    ("rolled", 16): (50.0, 150.0),
    ("rolled", 128): (25.0, 75.0),
}
"""Of two sessions."""


def opened(load_ms: float, **memory: Any) -> Opened:
    return Opened(Times(session_create=load_ms), Memory(**memory), Check(), 1, DEVICE)


def scripts() -> dict[str, Script | list[Script]]:
    def script(ms: float, load_ms: float) -> Script:
        times = Times(session_create=load_ms, cold_first=2 * ms)
        return Script((ms,), opened={"times": times, "memory": Memory(added_rss=1000)})

    loads = {layout: LOADS_MS[layout, 16] + LOADS_MS[layout, 128] for layout in LAYOUTS}
    return {
        layout: [script(ms, load_ms) for load_ms in loads[layout]]
        for layout, ms in (("unrolled", 10.0), ("rolled", 12.0))
    }


def measured(monkeypatch: pytest.MonkeyPatch, launcher: FakeLauncher) -> list[Measured]:
    """Measure both layouts at both lengths, without any runtime."""
    monkeypatch.setattr(
        InstalledRuntimes, "open", lambda self, case, task: launcher.open(case, task)
    )
    monkeypatch.setattr(InstalledRuntimes, "missing", lambda self, case: None)
    runs = [
        # The fake tells its workers apart by variant.
        Run(tuple(arm(layout, artifact=layout, sequence=length) for layout in LAYOUTS))
        for length in (16, 128)
    ]
    options = BenchmarkOptions(sessions=2, min_runs=4, min_seconds=0)
    found, _ = measure(runs, options)
    return found


def test_every_opening_is_kept_beside_the_record_of_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = measured(monkeypatch, FakeLauncher(scripts()))
    names = [(one.record.case.sequence, one.record.case.artifact) for one in found]
    assert names == [(16, "unrolled"), (16, "rolled"), (128, "unrolled"), (128, "rolled")]
    for one in found:
        loads = tuple(opened.times.session_create for opened in one.openings)
        assert loads == LOADS_MS[one.record.case.artifact, one.record.case.sequence]


def test_what_was_noted_is_handed_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeLauncher()
    monkeypatch.setattr(
        InstalledRuntimes, "open", lambda self, case, task: launcher.open(case, task)
    )
    noting, case = NotingRuntimes(), arm().case
    noting.open(case, None)  # type: ignore[arg-type]
    noting.open(case, None)  # type: ignore[arg-type]
    assert [len(openings) for openings in noting.take().values()] == [2]
    assert noting.take() == {}


def test_ratios_are_rolled_to_unrolled_and_loading_counts_at_all_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = list(figures("cpu", measured(monkeypatch, FakeLauncher(scripts()))))
    by_name = {(row["figure"], row["sequence"]): row for row in rows}
    load = by_name["load_ms", None]
    assert (load["unrolled"], load["rolled"]) == (200, 62.5)
    assert load["ratio"][0] == pytest.approx((0.5 * 0.25) ** 0.5, abs=1e-4)
    assert by_name["run_ms", 128]["ratio"] == [1.2, 1.2, 1.2]
    assert by_name["first_ms", 16]["unrolled"] == 20
    assert by_name["added_bytes", 16]["ratio"] == [1, 1, 1]
    assert not [row for row in rows if row["figure"] == "heap_bytes"]  # none on the CPU


def test_a_ratio_of_openings_compares_process_by_process() -> None:
    # The machine got slower by a factor of 3: both did.
    reference = (opened(100), opened(300))
    assert opening_ratio((opened(50), opened(150)), reference, "load_ms").high == pytest.approx(0.5)
    scattered = opening_ratio((opened(50), opened(300)), reference, "load_ms")
    assert scattered.value == pytest.approx(0.5**0.5)
    assert scattered.low < 0.5 and scattered.high > 1


def test_a_case_that_fails_ends_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeLauncher({"rolled": Script(opening=OSError("no such file"))})
    with pytest.raises(SystemExit, match=r"rolled, cpu, 16: no such file"):
        measured(monkeypatch, launcher)


def test_wrong_outputs_end_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Script(opened={"check": Check(status="failed", relative_error=1.0, tolerance=0.1)})
    with pytest.raises(SystemExit, match=r"rolled, cpu, 16: its outputs differ"):
        measured(monkeypatch, FakeLauncher({"rolled": failed}))


def test_the_table_names_a_loser_only_where_the_interval_lies_beyond_one() -> None:
    base = {"runtime": "node", "unrolled": 100.0, "rolled": 120.0}
    rows = [
        {**base, "figure": "run_ms", "sequence": 16, "ratio": [1.2, 1.1, 1.3]},
        {**base, "figure": "first_ms", "sequence": 16, "ratio": [1.2, 0.9, 1.6]},
        {**base, "figure": "load_ms", "sequence": None, "ratio": [0.4, 0.3, 0.5]},
        {
            **base,
            "figure": "heap_bytes",
            "sequence": 128,
            "unrolled": 160e6,
            "rolled": 130e6,
            "ratio": [0.81, 0.81, 0.81],
        },
    ]
    record = {
        "engine": "Node 20, onnxruntime-web 1",
        "runtime": "node",
        "file": "rolled",
        "sequence": 16,
        "flags": ["spread"],
    }
    results = {
        "created": "2026-01-31",
        "device": {"cpu": "a CPU", "cores": 2, "system": "a system"},
        "sessions": 6,
        "min_runs": 42,
        "file_bytes": {"unrolled": 2000, "rolled": 1000},
        "notices": [],
        "figures": rows,
        "records": [record],
    }
    text = document(results)
    place = "| WebAssembly (Node) |"
    assert f"{place} run ms, sequence 16 | 100 | 120 | 1.20 (1.10–1.30) | **rolled** |" in text
    assert f"{place} first run ms, sequence 16 | 100 | 120 | 1.20 (0.90–1.60) | neither |" in text
    assert f"{place} session load ms | 100 | 120 | 0.40 (0.30–0.50) | unrolled |" in text
    assert f"{place} WebAssembly heap MB, sequence 128 | 160 | 130 | 0.81" in text
    assert "- WebAssembly (Node), rolled, sequence 16: spread." in text


def test_variants_that_load_as_the_same_graph_are_measured_once() -> None:
    running = {
        "as exported": {"MatMul": 8, "Add": 2},
        "a": {"MatMul": 1},
        "b": {"Add": 2, "MatMul": 8},
    }
    assert first_of_equals(running) == {"as exported": "as exported", "a": "a", "b": "as exported"}


def test_first_runs_are_set_against_each_other_at_each_length_and_wait() -> None:
    found = {
        (sequence, wait_ms, layout): [[10.0 * part, 5.0, 100.0], [20.0 * part, 5.0, 100.0]]
        for sequence in (16, 128)
        for wait_ms in (0, 2000)
        for layout, part in (("unrolled", 1), ("rolled", 3 if wait_ms == 0 else 1))
    }
    rows = list(table(found))
    assert len(rows) == 2 * 2 * 3
    assert rows[0] == "| 16 | 0 s | first run | 15 | 45 | 3.00 (3.00–3.00) |"
    assert rows[1] == "| 16 | 0 s | third run | 5 | 5 | 1.00 (1.00–1.00) |"
    assert rows[9] == "| 128 | 2 s | first run | 15 | 15 | 1.00 (1.00–1.00) |"
