"""The setting to leave early with: the cheapest that costs little accuracy."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from exporter.artifact import MANIFEST_NAME, Artifact, sha256_file
from exporter.calibration import CalibrationOptions, Point, calibrate_artifact, choose
from exporter.calibration.calibrate import _distinct, _settings
from exporter.early_exit import RULES
from exporter.errors import ArtifactError, BenchmarkError
from exporter.exit_setting import calibrated_setting
from exporter.inputs import Feeds
from exporter.runtimes.cpu import CpuSession
from exporter.scores import Comparison
from tests.evaluation.exits import LAYERS, leaving_artifact
from tests.evaluation.helpers import make_artifact, word_counter

ROWS = (
    ("good good film", "negative"),  # int8 is right after three passes alone, fp32 never
    ("good", "positive"),
    ("bad", "negative"),
    ("good good good film", "negative"),  # none is ever right
)
VALUES = (0.0, 0.6, 0.9)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "d.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS))
    return path


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return leaving_artifact(tmp_path / "exit-onnx")


def point(value: float, correct: int, layers: float, full: int = 90) -> Point:
    lost = Comparison(100, 1.0, max(full - correct, 0), max(correct - full, 0))
    return Point(value, correct, lost, layers, layers, 1.0, 1.0, 1.0)


def test_the_cheapest_point_within_the_loss_is_taken() -> None:
    curve = [point(0.5, 80, 1), point(0.7, 88, 2), point(0.8, 91, 3), point(1, 90, 12)]
    assert [choose(curve, loss).value for loss in (0, 1.9, 2, 9.9, 10)] == [0.8, 0.8, 0.7, 0.7, 0.5]


def test_nothing_but_the_full_depth_may_be_cheap_enough() -> None:
    assert choose([point(0.5, 80, 1), point(1, 90, 12)], 0.5).value == 1


def test_a_setting_that_saves_nothing_is_not_taken() -> None:
    assert choose([point(0.5, 80, 1), point(0.99, 90, 12), point(1, 90, 12)], 0.5).value == 1


def test_of_equally_cheap_points_the_most_accurate_is_taken_then_the_first() -> None:
    curve = [point(0.5, 90, 2), point(0.6, 91, 2), point(0.7, 91, 2), point(1, 90, 12)]
    assert choose(curve, 0.5).value == 0.6


def test_each_model_gets_its_own_curve_and_choice(artifact: Artifact, data: Path) -> None:
    _, results = calibrate_artifact(artifact, data, CalibrationOptions(values=VALUES))
    fp32, int8 = results
    assert [result.variant for result in results] == ["fp32", "int8"]
    assert [point.value for point in int8.points] == [0.0, 0.6, 0.9, 1.0]
    assert [point.correct for point in int8.points] == [2, 2, 3, 3]
    assert [point.mean_layers for point in int8.points] == [1, 1, 2, 3]
    assert [point.loss for point in int8.points] == [25, 25, 0, 0]
    assert int8.points[2].p90_layers == pytest.approx(np.percentile([3, 2, 2, 1], 90))
    assert (fp32.chosen.value, int8.chosen.value) == (0.0, 0.9)
    assert all(point.mean_ms > 0 for point in int8.points)
    assert int8.points[-1].relative_ms == 1


def test_values_may_come_in_any_order_and_more_than_once(artifact: Artifact, data: Path) -> None:
    options = CalibrationOptions(values=(0.9, 1, 0.0, 0.6, 0.9), variants=["int8"])
    _, (int8,) = calibrate_artifact(artifact, data, options)
    assert [point.value for point in int8.points] == [0.0, 0.6, 0.9, 1.0]


def test_a_change_is_tried_from_the_largest_on(tmp_path: Path) -> None:
    steady = leaving_artifact(tmp_path / "steady")
    rules = {**steady.manifest["early_exit"], "rule": "change"}
    changing = Artifact(steady.folder, {**steady.manifest, "early_exit": rules})
    assert _settings(changing, (0.1, 0.0, 0.7))[1] == [0.7, 0.1, 0.0]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1, 1.5])
def test_a_value_that_says_nothing_is_refused_and_never_written(
    value: float, artifact: Artifact, data: Path
) -> None:
    with pytest.raises(BenchmarkError, match="exit_threshold is a number from 0 to 1, not"):
        calibrate_artifact(artifact, data, CalibrationOptions(values=(0.9, value)))
    assert Artifact.load(artifact.folder).manifest == artifact.manifest


@pytest.mark.parametrize("value", [1.5, -1, math.nan, math.inf, -math.inf, 1e30])
def test_patience_is_a_whole_number(value: float) -> None:
    with pytest.raises(BenchmarkError, match="patience is a whole number from 0 to 2147483647"):
        RULES["patience"].check(value)


def test_values_at_the_bounds_of_a_rule_are_allowed() -> None:
    for rule in RULES.values():
        for value in (0, rule.largest, rule.never, *rule.values):
            rule.check(value)
    with pytest.raises(BenchmarkError, match="not inf"):
        RULES["change"].check(math.inf)


def test_what_cannot_be_written_is_told_before_anything_runs(
    artifact: Artifact, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (artifact.folder, os.W_OK))
    seen: list[str] = []
    with pytest.raises(ArtifactError, match=r"cannot write to .*; calibrate a copy of it"):
        calibrate_artifact(artifact, data, progress=lambda variant, *_: seen.append(variant))
    assert seen == []


def test_more_loss_allows_an_earlier_exit(artifact: Artifact, data: Path) -> None:
    options = CalibrationOptions(max_loss=25, values=VALUES, variants=["int8"])
    _, (int8,) = calibrate_artifact(artifact, data, options)
    assert int8.chosen.value == 0.0


def test_the_manifest_holds_choice_and_curve_and_the_files_stay(
    artifact: Artifact, data: Path
) -> None:
    before = {name: sha256_file(artifact.folder / name) for name in artifact.manifest["files"]}
    options = CalibrationOptions(values=VALUES, variants=["int8"])
    written, _ = calibrate_artifact(artifact, data, options)
    read = Artifact.load(artifact.folder, check_hashes=True)
    assert read.manifest == written.manifest
    fp32, int8 = read.manifest["models"]
    assert fp32["calibration"] is None
    assert {key: int8["calibration"][key] for key in ("value", "max_loss", "data", "rows")} == {
        "value": 0.9, "max_loss": 0.5, "data": "d.csv", "rows": 4,
    }  # fmt: skip
    assert int8["calibration"]["data_sha256"] == sha256_file(data)
    chosen = int8["calibration"]["curve"][2]
    assert (chosen["value"], chosen["accuracy"], chosen["mean_layers"]) == (0.9, 0.75, 2.0)
    assert len(chosen["accuracy_95"]) == len(chosen["loss_95"]) == 2
    assert {n: sha256_file(artifact.folder / n) for n in read.manifest["files"]} == before
    assert sorted(path.name for path in artifact.folder.iterdir()) == sorted(
        [*read.manifest["files"], MANIFEST_NAME]
    )


def test_calibrating_another_model_keeps_what_is_there(artifact: Artifact, data: Path) -> None:
    for variant in ("int8", "fp32"):
        options = CalibrationOptions(values=VALUES, variants=[variant])
        artifact, _ = calibrate_artifact(artifact, data, options)
    settings = [calibrated_setting(artifact, variant) for variant in ("fp32", "int8")]
    assert [setting and setting.value for setting in settings] == [0.0, 0.9]
    assert settings[1] is not None
    assert settings[1].layers == LAYERS
    assert settings[1].feeds == {"exit_threshold": np.float32(0.9)}


def test_thresholds_that_cannot_differ_from_0_are_tried_only_if_asked_for(
    artifact: Artifact, data: Path
) -> None:
    _, (by_rule,) = calibrate_artifact(artifact, data, CalibrationOptions(variants=["int8"]))
    assert [point.value for point in by_rule.points][:3] == [0.0, 0.55, 0.6]  # of two labels
    options = CalibrationOptions(values=(0, 0.5), variants=["int8"])
    _, (asked,) = calibrate_artifact(artifact, data, options)
    assert [point.value for point in asked.points] == [0.0, 0.5, 1.0]
    rule = RULES["confidence"]
    assert _distinct(rule.values, rule, 1_000)[:2] == [0.0, 0.5]
    change = RULES["change"]
    assert _distinct(change.values, change, 2) == [*change.values]


def test_a_point_knows_the_pass_after_which_every_text_left(artifact: Artifact, data: Path) -> None:
    options = CalibrationOptions(values=VALUES, variants=["int8"])
    _, (int8,) = calibrate_artifact(artifact, data, options)
    assert [point.same_layers for point in int8.points] == [1, 1, None, 3]


def test_progress_tells_which_of_how_many_models(artifact: Artifact, data: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    calibrate_artifact(artifact, data, progress=lambda *step: seen.append(step))
    assert seen[0] == ("fp32 (1 of 2)", 4, 0)
    assert seen[-1] == ("int8 (2 of 2)", 4, 4)
    assert len(seen) == 2 * 5


def test_the_settings_take_turns_at_being_the_first_to_meet_a_text(
    artifact: Artifact, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first run of a text costs more than the others, whatever the setting.
    data.write_text("text,label\n" + "good,positive\n" * 400)
    tried: list[float] = []
    run = CpuSession.run

    def noting(session: CpuSession, feeds: Feeds) -> Feeds:
        tried.append(float(feeds.get("exit_threshold", np.float32(-1))))
        return run(session, feeds)

    monkeypatch.setattr(CpuSession, "run", noting)
    orders = []
    for _ in range(2):
        tried.clear()
        options = CalibrationOptions(values=(0, 0.5, 0.75), variants=["fp32"])
        calibrate_artifact(artifact, data, options)
        assert len(tried) == 1 + 4 + 400 * 4  # the labels' number, the warm-up, and the texts
        orders.append(np.array(tried[5:]).reshape(400, 4))
    first, second = orders
    assert np.array_equal(first, second)
    assert (np.sort(first, axis=1) == [0, 0.5, 0.75, 1]).all()
    for place in first.T:
        counts = [int(np.sum(place == value)) for value in (0, 0.5, 0.75, 1)]
        assert min(counts) > 75, counts  # 100 of each, were it even


def test_a_patience_that_no_depth_reaches_is_not_tried(tmp_path: Path, data: Path) -> None:
    artifact = leaving_artifact(tmp_path / "patient", "patience")
    _, (result,) = calibrate_artifact(artifact, data, CalibrationOptions(variants=["int8"]))
    assert [point.value for point in result.points] == [0, 1, 2, RULES["patience"].never]
    assert [point.mean_layers for point in result.points] == [1, 2.25, 3, 3]


def test_what_cannot_be_calibrated_is_refused(
    tmp_path: Path, artifact: Artifact, data: Path
) -> None:
    plain = make_artifact(tmp_path / "plain", {"fp32": word_counter()})
    with pytest.raises(BenchmarkError, match="export the model again with --early-exit"):
        calibrate_artifact(plain, data)
    with pytest.raises(BenchmarkError, match="no model 'int4'; it has: fp32, int8"):
        calibrate_artifact(artifact, data, CalibrationOptions(variants=["int4"]))
    with pytest.raises(BenchmarkError, match="0 points or more, not -1"):
        CalibrationOptions(max_loss=-1)
    assert json.loads((artifact.folder / MANIFEST_NAME).read_text()) == artifact.manifest
