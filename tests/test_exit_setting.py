"""What the manifest says about leaving early, as it is used to run a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import BenchmarkError
from exporter.exit_setting import calibrated_setting
from tests.evaluation.exits import LAYERS, calibrated, leaving_artifact
from tests.evaluation.helpers import make_artifact, word_counter


def test_the_chosen_value_becomes_the_input_of_the_rule(tmp_path: Path) -> None:
    setting = calibrated_setting(calibrated(leaving_artifact(tmp_path), 0.75), "int8")
    assert setting is not None
    assert (setting.rule.name, setting.value, setting.layers) == ("confidence", 0.75, LAYERS)
    assert setting.feeds == {"exit_threshold": np.float32(0.75)}


def test_the_passes_of_all_rows_are_summarized(tmp_path: Path) -> None:
    setting = calibrated_setting(calibrated(leaving_artifact(tmp_path), 0.75), "int8")
    assert setting is not None
    used = setting.used(np.array([1, 1, 1, 3]))
    assert (used.setting, used.value, used.of) == ("exit_threshold", 0.75, LAYERS)
    assert (used.mean, used.p90) == (1.5, pytest.approx(2.4))


def test_a_model_that_was_not_calibrated_has_no_setting(tmp_path: Path) -> None:
    assert calibrated_setting(leaving_artifact(tmp_path / "exit"), "int8") is None
    plain = make_artifact(tmp_path / "plain", {"fp32": word_counter()})
    assert calibrated_setting(plain, "fp32") is None


def test_a_model_that_the_artifact_lacks_is_named_with_those_it_has(tmp_path: Path) -> None:
    artifact = leaving_artifact(tmp_path)
    with pytest.raises(BenchmarkError, match="has no model 'int4'; it has: fp32, int8"):
        calibrated_setting(artifact, "int4")
