"""Figures, claims and pages made of the results of the sharing study."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.sharing_tradeoff import latency, performing, table
from benchmarks.sharing_tradeoff.claims import Claim, above, claims, interactions
from benchmarks.sharing_tradeoff.drawing import draw
from benchmarks.sharing_tradeoff.latency import by_scheme
from benchmarks.sharing_tradeoff.results import (
    Cell,
    Estimate,
    Figure,
    Results,
    apart,
    read_results,
    read_times,
)
from benchmarks.sharing_tradeoff.settings import FULL, OTHER_START, SMOKE
from benchmarks.sharing_tradeoff.table import document
from exporter.errors import CheckpointError
from tests.training.study_rows import result_row


@pytest.fixture
def results() -> Results:
    return Results(
        [
            result_row(task, scheme, seed, distilled, share, precision=precision)
            for task in ("classify", "generate")
            for scheme in ("none", "grouped(2)", "all")
            for seed in (0, 1, 2)
            for distilled in (False, True)
            for share in (0.0, 0.5)
            for precision in ("fp32", "int8")
        ]
    )


def test_spread_is_that_of_students_distribution_over_seeds() -> None:
    figure = Figure((1.0, 2.0, 3.0))
    assert figure.mean == 2
    assert figure.half_width == pytest.approx(4.303 / math.sqrt(3))
    assert Figure((1.0,)).half_width == math.inf
    assert (figure - Figure((1.0, 1.0, 1.0))).values == (0, 1, 2)


def test_figures_with_nothing_in_common_are_subtracted_by_their_means() -> None:
    # Of equal spreads and counts: 4 degrees of freedom, and twice the variance of one mean.
    found = apart(Figure((3.0, 4.0, 5.0)), Figure((2.0, 1.0, 3.0)))
    assert found == Estimate(2.0, pytest.approx(2.776 * math.sqrt(2 / 3)))
    # One that does not vary adds nothing: 2 degrees of freedom are the other's.
    assert apart(Figure((3.0, 4.0, 5.0)), Figure((1.0, 1.0, 1.0))).half_width == pytest.approx(
        4.303 / math.sqrt(3)
    )
    assert apart(Figure((3.0, 3.0)), Figure((1.0, 1.0))) == Estimate(2.0, 0.0)
    assert apart(Figure((3.0,)), Figure((1.0,))).half_width == math.inf


def test_the_least_sure_of_all_combinations_decides(results: Results) -> None:
    unpruned = Results([row for row in results.rows if not row["pruned"]])
    for row in unpruned.rows:
        run = row["run"]
        # Costs nothing in the mean, and so much more or less seed by seed.
        kind = (run["task"], run["scheme"], row["precision"], run["distilled"])
        if kind == ("classify", "all", "int8", False):
            row["correct"] += 50 * (run["seed"] - 1)
    found = [claim for claim in claims(unpruned) if "least sure" in claim.text]
    assert "least sure: int8" in found[0].text
    assert [claim.verdict for claim in found] == ["not decided", "holds"]


def test_a_combination_that_surely_costs_too_much_decides_before_one_that_may(
    results: Results,
) -> None:
    half = 4.303 / math.sqrt(3)  # of three seeds one point apart
    for row in results.rows:
        run = row["run"]
        if (run["task"], run["scheme"], run["distilled"]) == ("classify", "all", False):
            apart_by = 10 * (run["seed"] - 1) / half  # correct of 1,000, for ± 1 point
            if (row["precision"], row["pruned"]) == ("int8", 0.0):
                row["correct"] += 2.73 * apart_by - 5
            if (row["precision"], row["pruned"]) == ("fp32", 0.5):
                row["correct"] += 0.25 * apart_by
    found = dict(interactions(results, "classify", "all"))
    for name, mean, half_width in (("int8", -0.5, 2.73), ("50 % pruned", -2.0, 0.25)):
        assert found[name].mean == pytest.approx(mean)
        assert found[name].half_width == pytest.approx(half_width)
    claim = next(claim for claim in claims(results) if "least sure" in claim.text)
    assert "(least sure: 50 % pruned)" in claim.text
    assert claim.verdict == "does not hold"


def test_a_claim_is_decided_only_by_a_whole_interval() -> None:
    def verdict(*values: float) -> str:
        return Claim("", Figure(values), 3, 5, "%").verdict

    assert verdict(4.0, 4.01, 3.99) == "holds"
    assert verdict(1.0, 1.01, 0.99) == "does not hold"
    assert verdict(3.0, 3.01, 2.99) == "not decided"
    assert verdict(4.0) == "not decided"


def test_losses_are_shares_of_the_unshared_accuracy(results: Results) -> None:
    found = {claim.text: claim for claim in claims(results)}
    full = found["Full sharing costs understanding 3 to 5 % of its accuracy"]
    assert full.measured.mean == pytest.approx(100 * 30 / 801, abs=0.01)
    assert full.verdict == "holds"
    assert found["Full sharing costs generation 10 to 15 % of its accuracy"].verdict == (
        "does not hold"
    )
    assert found["grouped(2) costs understanding under 2 % of its accuracy"].verdict == "holds"


def test_perplexity_is_set_against_another_models(results: Results) -> None:
    assert above(results, Cell("generate", "all")).mean == pytest.approx(10)  # 44 against 40
    own = above(results, Cell("generate", "all", precision="int8"), Cell("generate", "all"))
    assert own.mean == pytest.approx(0)
    other = above(results, Cell("generate", "none"), Cell("generate", "all"))
    assert other.mean == pytest.approx(-100 / 11)


def test_what_a_change_costs_more_under_sharing_is_its_interaction(results: Results) -> None:
    found = dict(interactions(results, "classify", "all"))
    assert found["int8"].mean == pytest.approx(0)
    assert found["50 % pruned"].mean == pytest.approx(-2)  # 40 of 1,000 lost instead of 20
    assert found["distilled, 50 % pruned, int8"].mean == pytest.approx(-2)
    assert "plain" not in found


def test_a_first_seed_that_is_not_whole_is_none_to_show(results: Results) -> None:
    begun = [r for r in results.rows if r["run"]["seed"] == 0 and r["run"]["task"] == "classify"]
    assert Results(begun).seeds() == []
    begun += [r for r in results.rows if r["run"]["seed"] == 0 and r["run"]["scheme"] == "none"]
    assert Results(begun).seeds() == []


def test_a_seed_of_which_runs_are_missing_is_left_out(results: Results) -> None:
    fewer = [r for r in results.rows if r["run"] != results.rows[-1]["run"]]
    assert Results(fewer).seeds() == [0, 1]
    assert len(Results(fewer).accuracy(Cell("classify", "all")).values) == 2
    assert results.seeds() == [0, 1, 2]


def test_results_of_other_settings_are_named(tmp_path: Path) -> None:
    content = _content()
    (tmp_path / "0.json").write_text(json.dumps(content))
    rows = read_results(tmp_path, SMOKE).rows
    assert [row["correct"] for row in rows] == [row["correct"] for row in content["variants"]]
    with pytest.raises(ValueError, match=r"0\.json is of other settings"):
        read_results(tmp_path, FULL)
    with pytest.raises(ValueError, match="holds no results"):
        read_results(tmp_path / "none", SMOKE)


def _content() -> dict[str, Any]:
    run = {"task": "classify", "scheme": "all", "seed": 0, "distilled": False}
    variants = [
        result_row("classify", "all", 0, False, share, precision=precision)
        for share in SMOKE.prunings
        for precision in SMOKE.precisions
    ]
    study = SMOKE.digest("classify")
    return {"run": run, "study": study, "parameters": {"unique": 1}, "variants": variants}


def _without_counts(content: dict[str, Any]) -> str:
    del content["variants"][0]["correct"]
    return json.dumps(content)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (lambda content: json.dumps(content)[:300], "0.json cannot be read: "),
        (lambda content: "[]", "0.json is not a JSON object"),
        (lambda content: "{}", "0.json is damaged: remove it, and run it again"),
        (_without_counts, "0.json is damaged: remove it, and run it again"),
        (
            lambda content: json.dumps({**content, "variants": content["variants"][:2]}),
            "0.json lacks variants: remove it, and run it again",
        ),
    ],
)
def test_a_damaged_file_of_results_is_named(
    damaged: Callable[[dict[str, Any]], str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/0.json").write_text(damaged(_content()))
    with pytest.raises((CheckpointError, ValueError)) as caught:
        read_results(tmp_path / "raw", SMOKE)
    assert message in str(caught.value)
    done = CliRunner().invoke(
        table.main, ["--raw", str(tmp_path / "raw"), "--output", str(tmp_path / "page")]
    )
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "0.json" in done.output
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize("content", ["[]", '{"classify": 3}', "{"])
def test_a_damaged_file_of_times_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "latency.json").write_text(content)
    with pytest.raises((CheckpointError, ValueError), match=r"latency\.json (is|cannot)"):
        read_times(tmp_path / "latency.json", FULL)


def test_page_and_drawing_are_those_of_the_committed_results(tmp_path: Path) -> None:
    done = CliRunner().invoke(table.main, ["--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for name in ("results.md", "results.svg"):
        assert (tmp_path / name).read_bytes() == (table.HERE / name).read_bytes()
    for study, folder in ((FULL, "raw"), (OTHER_START, "raw-other-start")):
        results = table.HERE / folder
        assert all(performing.finished(run, study, results) for run in study.runs())


def test_times_of_other_settings_are_named(tmp_path: Path) -> None:
    assert read_times(tmp_path / "latency.json", FULL) == {}
    schemes = {"none": {"fp32": [2.0, 1.0, 1.0, 1.0]}}
    own = {"study": FULL.digest("generate"), "schemes": schemes}
    (tmp_path / "latency.json").write_text(json.dumps({"generate": own}))
    assert read_times(tmp_path / "latency.json", FULL) == {"generate": schemes}
    with pytest.raises(ValueError, match=r"latency\.json is of other settings"):
        read_times(tmp_path / "latency.json", SMOKE)


def test_artifacts_that_are_not_there_are_named_with_the_command_that_makes_them(
    tmp_path: Path,
) -> None:
    done = CliRunner().invoke(latency.main, ["--work-dir", str(tmp_path)])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "artifacts/classify-none-plain-0 is missing" in done.output
    assert f"benchmarks.sharing_tradeoff.run --work-dir {tmp_path} makes it" in done.output


def test_studies_of_different_seeds_are_not_set_side_by_side(tmp_path: Path) -> None:
    for folder in ("raw", "raw-other-start"):
        shutil.copytree(table.HERE / folder, tmp_path / folder)
    (tmp_path / "raw-other-start" / "generate-all-plain-2.json").unlink()
    options = ["--raw", str(tmp_path / "raw"), "--output", str(tmp_path)]
    done = CliRunner().invoke(table.main, options)
    assert done.exit_code == 1
    assert "other seeds" in done.output
    assert not (tmp_path / "results.md").exists()


def test_the_page_has_every_scheme_and_change(results: Results) -> None:
    times = {
        task: {scheme: {"fp32": [2.0, 1.25, 1.0, 1.5]} for scheme in results.schemes(task)}
        for task in ("classify", "generate")
    }
    text = document(results, times)
    assert (
        "| grouped(2) | 150,000 | 50 % | 0.60 (0.15) | 0.15 (0.15) | 2.00 (×1.25, 1.00–1.50)"
        in text
    )
    assert "| all | distilled | 79.10 ± 0.25 | 78.60 ± 0.25 | 75.10 ± 0.25 | 74.60 ± 0.25 |" in text
    assert "| 50 % pruned | -2.00 ± 0.00 | -2.00 ± 0.00 |" in text
    assert "fp32 ms" in text
    assert "fp32 ms" not in document(results, {})
    del times["classify"]["grouped(2)"], times["generate"]["all"]["fp32"]
    without = document(results, times)
    assert "| grouped(2) | 150,000 | 50 % | 0.60 (0.15) | 0.15 (0.15) | – | – |" in without
    assert "random weights that" not in text
    assert "| all | 3.75 ± 0.01 | 3.65 ± 0.01 | 3.75 ± 0.01 | 3.65 ± 0.01 | 10.00 ± 0.00 |" in text


def test_another_start_stands_beside_it(results: Results) -> None:
    rows = [
        {**row, "correct": row["correct"] - 50 * (row["run"]["scheme"] == "all")}
        for row in results.rows
        if row["run"]["scheme"] != "grouped(2)" and not row["run"]["distilled"]
    ]
    for row in rows:
        row["loss"] += 1000 * math.log(2) * (row["run"]["scheme"] == "all")
    assert Results(rows).seeds() == []
    text = document(results, {}, Results(rows, ways=OTHER_START.distilled))
    assert "| all | 77.10 ± 0.25 | 72.10 ± 0.25 | 44.00 ± 0.00 | 88.00 ± 0.00 |" in text
    assert (
        "| `all` loses, or adds, % | 3.75 ± 0.01 | 9.99 ± 0.03 | 10.00 ± 0.00 | 120.0 ± 0.0 |"
    ) in text


def test_the_drawing_has_a_mark_for_each_figure_within_its_panel(results: Results) -> None:
    drawing = draw(results)
    assert drawing.count("<title>") == 1 + 2 * (3 * 2 + 4 * 2)
    assert drawing.count('<circle class="seed"') == 3 * 2 * (3 * 2 + 4 * 2)
    heights = [float(y) for y in re.findall(r'<circle [^>]*cy="([\d.]+)"', drawing)]
    assert np.isfinite(heights).all()
    assert 34 <= min(heights) <= max(heights) <= 216
    assert "<title>distilled, all: 79.1</title>" in drawing


def test_times_go_to_the_scheme_of_their_artifact_with_the_ratio_to_none() -> None:
    def ratio(value: float) -> dict[str, float]:
        return {"value": value, "low": value - 0.05, "high": value + 0.05}

    output = {
        "records": [
            {"case": {"artifact": "classify-none-plain-0", "variant": "fp32"}},
            {"case": {"artifact": "classify-none-plain-0", "variant": "int8"}},
            {"case": {"artifact": "classify-all-plain-0", "variant": "int8"}},
        ],
        "summary": [
            {"median_ms": 4.0, "ratios": {}},
            {"median_ms": 2.0, "ratios": {"fp32": ratio(0.5)}},
            {
                "median_ms": 1.5,
                "ratios": {"fp32": ratio(0.4), "classify-none-plain-0 int8": ratio(0.75)},
            },
        ],
    }
    names = {"classify-none-plain-0": "none", "classify-all-plain-0": "all"}
    assert by_scheme(output, names) == {
        "none": {"fp32": [4.0, 1.0, 1.0, 1.0], "int8": [2.0, 1.0, 1.0, 1.0]},
        "all": {"int8": [1.5, 0.75, 0.7, 0.8]},
    }
