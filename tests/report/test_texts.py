"""What a report says of measurements on real texts, and of models that leave early on them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from exporter.records import LayersUsed, Measurement, Texts
from exporter.report import build_report, render_json, render_markdown
from exporter.report.naming import Workload
from exporter.report.tables import latency_table, ratio_table
from tests.report.making import digest, evaluation, measurement, model

TEXTS = Texts(name="reviews.jsonl", sha256=digest("data"), rows=42)
USED = LayersUsed(setting="exit_threshold", value=0.8, mean=2.5, p90=6, of=6)


def on_texts(
    variant: str, samples: list[float], *, tokens: int = 19, **changes: Any
) -> Measurement:
    made = measurement(variant, samples, **changes)
    case = msgspec.structs.replace(made.case, sequence=tokens, texts=TEXTS)
    file = model(variant.removesuffix("-exit"))
    return msgspec.structs.replace(made, case=case, model=file)


def pair(**changes: Any) -> list[Measurement]:
    """Leaving early saves much on two texts and nothing on the third."""
    early = on_texts("int8-exit", [1.0, 1.0, 8.0] * 4, layers=USED, **changes)
    return [on_texts("int8", [8.0] * 12, **changes), early]


def test_the_arm_stands_beside_its_file_with_ratio_and_layers() -> None:
    (section,) = build_report(pair()).sections
    (setting,) = section.settings
    assert [row.name for row in setting.rows] == ["int8", "int8-exit"]
    (comparison,) = setting.rows[1].comparisons
    assert comparison.against == "int8"
    assert comparison.time is not None
    assert comparison.time.value == pytest.approx(10 / 24)  # of all texts, not of the median one
    table = latency_table(section.settings)
    columns = [column.key for column in table.columns]
    full, early = table.groups[0].rows
    assert early[columns.index("layers")].text == "2.50, 6 of 6"
    assert full[columns.index("layers")].text == "all"
    assert early[columns.index("mean_ms")].value == pytest.approx(10 / 3)
    assert early[columns.index("median_ms")].value == 1.0
    assert len({len(row) for row in (*table.groups[0].rows, table.columns)}) == 1
    assert ratio_table(section.settings).groups[0].rows[0][1].text == "int8"


def test_without_texts_the_table_stays_as_it_is() -> None:
    table = latency_table(build_report([measurement()]).sections[0].settings)
    assert not {"mean_ms", "layers"} & {column.key for column in table.columns}


def test_leaving_early_is_no_file_of_its_own() -> None:
    (section,) = build_report(pair()).sections
    assert [one.name for one in section.models] == ["int8"]
    assert section.headline.variant == "int8"


def test_texts_and_random_ids_are_settings_apart_and_it_is_said() -> None:
    report = build_report([*pair(), measurement("int8", sequence=19)])
    (section,) = report.sections
    assert [setting.workload.texts != "" for setting in section.settings] == [False, True]
    (text,) = [text for text in report.incomparable if "different work" in text]
    assert text.replace("\xa0", " ").startswith(
        f"demo was measured on random ids and 42 texts of reviews.jsonl #{TEXTS.sha256[:6]}"
    )


def test_artifacts_of_other_tokenizers_stand_side_by_side() -> None:
    first = on_texts("int8", [8.0] * 12, tokens=19)
    other = on_texts("int8", [4.0] * 12, tokens=25, artifact="other")
    (group,) = build_report([first, other]).side_by_side
    (setting,) = group.settings
    assert setting.workload.sequence == 0
    assert "average" not in str(setting.workload)
    assert setting.rows[1].main is not None and setting.rows[1].main.time is not None
    assert setting.rows[1].main.time.value == pytest.approx(0.5)


def test_a_workload_names_its_texts() -> None:
    case = pair()[0].case
    text = str(Workload.of(case)).replace("\xa0", " ")
    short = TEXTS.sha256[:6]
    assert text == f"42 texts of reviews.jsonl #{short} (19 tokens on average), 1 thread"
    assert case.texts is not None
    body = msgspec.structs.replace(case, texts=msgspec.structs.replace(case.texts, column="body"))
    assert Workload.of(body).row.endswith(f"#{short}, body")
    assert replace(Workload.of(case), texts="").row == "sequence 19"


def test_json_and_markdown_tell_the_layers() -> None:
    found = json.loads(render_json(pair()))["artifacts"][0]["settings"][0]
    assert [row["layers"] and row["layers"]["mean"] for row in found["variants"]] == [None, 2.5]
    assert found["texts"].startswith("42")
    assert "2.50, 6 of 6" in render_markdown(pair())


def test_the_headline_accuracy_is_the_one_of_all_layers() -> None:
    full = evaluation("int8", 900)
    early = msgspec.structs.replace(
        evaluation("int8-exit", 850), model=full.model, created="2026-03-02T00:00:00Z"
    )
    (section,) = build_report([*pair(), full, early]).sections
    assert any("Accuracy 90.0" in detail for detail in section.headline.details)
