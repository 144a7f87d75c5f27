"""What the benchmark scripts make of figures; the tools themselves are not run."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.environments import Environment, ToolError
from benchmarks.noise.run import SLOWER, SlowWorker
from benchmarks.peers import making
from benchmarks.peers.chains import CHAINS, OURS, Chain, Step
from benchmarks.peers.table import document
from benchmarks.scaling.plot import draw
from benchmarks.scaling.table import document as scaling_document


def _row(chain: str, precision: str, **values: Any) -> dict[str, Any]:
    start = {"chain": chain, "precision": precision, "note": "", "missing": [], "command": ""}
    figures = {"reached": 9, "operations": 9, "relative_error": 0.04, "file_bytes": 12_000_000}
    return {**start, **figures, **values}


def _results(rows: list[dict[str, Any]]) -> dict[str, Any]:
    device = {"cpu": "a CPU", "cores": 2, "system": "a system", "cpu_flags": ["avx2"]}
    return {
        "created": "2026-01-31",
        "device": device,
        "versions": {"onnxruntime": "1"},
        "sessions": 5,
        "notices": [],
        "rows": rows,
    }


def _losses(rows: list[dict[str, Any]]) -> str:
    return document(_results(rows)).split("## Where we lose")[1]


def test_a_smaller_file_of_another_chain_is_named_as_our_loss() -> None:
    rows = [_row(OURS, "int8"), _row("Peer", "int8", file_bytes=11_000_000)]
    assert "smaller files than ours (12.00 MB): Peer 11.00 MB" in _losses(rows)


def test_a_file_that_lacks_an_output_does_not_win() -> None:
    smaller = _row("Peer", "int8", file_bytes=11_000_000, missing=["pooler_output"])
    losses = _losses([_row(OURS, "int8"), smaller])
    assert "Peer" not in losses
    assert "Peer: its files have no pooler_output" in document(_results([smaller]))


def test_a_small_error_wins_only_where_the_weights_were_reached() -> None:
    own = _row(OURS, "int8")
    reached = _row("Peer", "int8", relative_error=0.01)
    missed = _row("Other", "int8", relative_error=0.01, reached=1)
    assert "smaller error than ours (0.04): Peer 0.01." in _losses([own, reached, missed])


def test_a_latency_wins_only_where_the_whole_interval_is_below_one() -> None:
    own = _row(OURS, "int8")
    clear = _row("Clear", "int8", ratio=[0.9, 0.85, 0.95])
    doubtful = _row("Doubtful", "int8", ratio=[0.9, 0.7, 1.1])
    assert "runs faster: Clear at 0.90 of our time" in _losses([own, clear, doubtful])
    assert "Doubtful" not in _losses([own, clear, doubtful])


def test_a_chain_that_fails_is_a_row_with_its_error() -> None:
    failed = {"chain": "Peer", "precision": "int8", "note": "", "error": "ValueError: no"}
    text = document(_results([_row(OURS, "int8"), failed]))
    assert "| Peer | – | – | fails | – |" in text
    assert "- Peer, int8: `ValueError: no`" in text


def test_a_tool_that_fails_ends_its_file_and_those_made_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Environment, folder: Path, arguments: list[str], log: Path) -> None:
        if "fail" in arguments:
            raise ToolError('exit code 1: File "x"\nValueError: /a/long/path/model is bad')
        Path(arguments[0], "model.onnx").write_bytes(b"made")
        log.write_text('noise\n{"reached": 3, "total": 4}\n')

    monkeypatch.setattr(Environment, "run", run)
    tool = Environment("tool", ())
    chains = [
        Chain(
            "Bad",
            {"fp32": Step(tool, ("fail",), "x"), "int8": Step(tool, ("{folder}",), "Bad fp32")},
        ),
        Chain("Good", {"fp32": Step(tool, ("{folder}",), "x")}),
    ]
    (tmp_path / "files").mkdir()
    bad, after, good = making.make_products(chains, tmp_path)
    assert (bad.path, bad.error) == (None, "ValueError: …/model is bad")
    assert (after.path, after.error) == (None, "there is no Bad fp32")
    assert good.path is not None and good.path.read_bytes() == b"made"
    assert good.told == {"reached": 3, "total": 4}


def test_every_chain_has_a_name_of_its_own_and_reads_what_is_made_before_it() -> None:
    assert len({chain.name for chain in CHAINS}) == len(CHAINS)
    made: set[str] = set()
    for chain in CHAINS:
        for precision, step in chain.files.items():
            source = step if isinstance(step, str) else step.source
            assert source in made or source.startswith("base"), source
            made.add(f"{chain.name} {precision}")


def test_the_planted_slow_down_takes_a_fifth_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks) / 1e4)
    worker = SlowWorker(SimpleNamespace(run=lambda: 10.0, opened=None))  # type: ignore[arg-type]
    assert worker.run() == pytest.approx(10 * (1 + SLOWER), abs=0.1)


def _scaling_rows() -> list[dict[str, Any]]:
    return [
        {
            "axis": "depth",
            "value": depth,
            "layout": layout,
            "file_bytes": 5_000_000 * factor,
            "export_s": 2.0,
            "export_peak_bytes": 4e8,
            "load_ms": 5.0 * depth,
            "added_bytes": 1e7,
            "median_ms": 3.0 * depth,
            "ratio": None if layout == "rolled" else [1.5, 1.25, 1.75],
        }
        for depth in (2, 6)
        for layout, factor in (("rolled", 1), ("unrolled", 1), ("unshared", depth))
    ]


def test_curves_have_a_mark_for_every_row_and_stay_within_their_panel() -> None:
    drawing = draw(_scaling_rows())
    assert drawing.count("<circle") == 5 * 2 * 3  # figures, depths, layouts
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawing)]
    assert np.isfinite(heights).all() and min(heights) >= 30 and max(heights) <= 146
    assert "<title>unshared, depth 6: 30 MB</title>" in drawing


def test_the_scaling_table_gives_ratios_with_their_interval() -> None:
    results = _results(_scaling_rows()) | {"bench_options": "--seq 128"}
    text = scaling_document(results)
    assert "| 6 | unshared | 30.00 | 2.0 | 400 | 30 | 10 | 18.0 | 1.50 (1.25–1.75) |" in text
    assert "| 6 | rolled | 5.00 | 2.0 | 400 | 30 | 10 | 18.0 | 1 |" in text
