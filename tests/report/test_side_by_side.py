"""Artifacts that took turns in one run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from exporter.records import Measurement, ModelFile
from exporter.report import Section, build_report, render_html, render_json, render_markdown
from tests.report.making import PHONE, digest, measurement, read_html, trio

SIZES = {"rolled": 3_000_000, "unrolled": 3_100_000, "unshared": 9_000_000}


def beside(
    unrolled: float = 1.0, unshared: float = 2.0, variant: str = "fp32", **options: Any
) -> list[Measurement]:
    """One file each of three artifacts, in turns."""
    records = []
    for artifact, factor in (("rolled", 1.0), ("unrolled", unrolled), ("unshared", unshared)):
        samples = [10.0 * factor * (1 + 0.01 * (i % 7)) for i in range(40)]
        record = measurement(variant, samples, artifact=artifact, session_runs=(20, 20), **options)
        file = ModelFile(
            path="onnx/model.onnx",
            sha256=digest(f"{artifact} {variant}"),
            file_bytes=SIZES[artifact],
        )
        records.append(replace(record, model=file))
    return records


def joint(records: list[Measurement]) -> Section:
    (section,) = build_report(records).side_by_side
    return section


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def test_each_is_compared_with_the_first_by_pairs_of_their_run() -> None:
    section = joint(beside(unrolled=0.9))
    assert section.artifacts == ("rolled", "unrolled", "unshared")
    (setting,) = section.settings
    assert [(row.name, row.reference) for row in setting.rows] == [
        ("rolled", True),
        ("unrolled", False),
        ("unshared", False),
    ]
    assert setting.rows[0].main is None
    for row, value in ((setting.rows[1], 0.9), (setting.rows[2], 2.0)):
        assert row.main is not None and row.main.time is not None
        assert row.main.against == "rolled"
        assert row.main.time.value == pytest.approx(value)
        assert (row.main.time.pairs, row.main.time.sessions) == (40, 2)


def test_the_headline_names_all_of_them_with_bytes_and_latency() -> None:
    assert plain(joint(beside()).headline.sentence) == (
        "Against rolled: unrolled 1.03× the bytes, 1.00× the latency (no clear difference); "
        "unshared 3.00× the bytes, 2.00× the latency (slower)."
    )
    several = joint([*beside(), *beside(unrolled=0.5, run="b", sequence=16)])
    assert "unrolled 1.03× the bytes, 0.50× to 1.00× the latency;" in several.headline.sentence
    assert plain(several.headline.details[-1]) == "Measured in 2 settings, in turns."


def test_variants_are_compared_with_the_same_one_and_baselines_left_out() -> None:
    records = [*beside(), *beside(variant="int8", unshared=3.0)]
    records.append(measurement("baseline", [20.0] * 40, artifact="rolled"))
    section = joint(records)
    names = [row.name for row in section.settings[0].rows]
    assert names[:3] == ["rolled fp32", "unrolled fp32", "unshared fp32"]
    assert names[3:] == ["rolled int8", "unrolled int8", "unshared int8"]
    assert [row.main.against for row in section.settings[0].rows if row.main] == [
        *["rolled fp32"] * 2,
        *["rolled int8"] * 2,
    ]
    assert [m.name for m in section.models] == names
    assert section.headline.sentence.startswith("Against rolled fp32: ")
    assert section.headline.details[0].startswith("Against rolled int8: ")


def test_one_that_failed_is_a_row_and_a_wrong_one_no_headline() -> None:
    records = beside()
    records[1] = measurement("fp32", artifact="unrolled", status="failed", error="exit code 1")
    section = joint(records)
    assert not section.settings[0].rows[1].measured
    main = section.settings[0].rows[1].main
    assert main is not None and main.missing == "fp32 failed"
    assert "unrolled" not in section.headline.sentence


def test_artifacts_of_different_runs_are_not_set_side_by_side() -> None:
    report = build_report([*trio(), *trio(artifact="other", run="b")])
    assert report.side_by_side == ()
    assert [part.artifact for part in report.parts] == ["demo", "other"]


def test_what_stands_beside_others_is_not_said_again() -> None:
    assert [part.artifact for part in build_report(beside()).parts] == [
        "rolled, unrolled and unshared"
    ]
    alone = trio(artifact="rolled", device=PHONE, run="b")
    parts = build_report([*beside(), *alone]).parts
    assert [part.artifact for part in parts] == ["rolled, unrolled and unshared", "rolled"]


def test_every_form_shows_them() -> None:
    records = beside(unrolled=1.5)
    page = read_html(render_html(records))
    (lead,) = page.all("p", class_="lead")
    assert "Against rolled: unrolled" in lead.text
    assert "Against rolled" in [heading.text for heading in page.all("h2")]
    ratios = [cell.text for cell in page.all("td", data_key="against_baseline")]
    assert ratios == ["1.03×", "3.00×"]
    styles = [bar.attributes["class"] for bar in page.all("figure")[0].all("rect")]
    assert styles == ["reference", "model", "model"]
    text = render_markdown(records)
    assert "### Against rolled (below 1 is better)" in text
    assert text.count("1.50×") == 2  # headline and table
    (group,) = json.loads(render_json(records))["side_by_side"]
    assert group["artifact"] == ["rolled", "unrolled", "unshared"]
    compared = group["settings"][0]["variants"][1]["comparisons"][0]
    assert compared["against"] == "rolled"
    assert compared["time"]["value"] == pytest.approx(1.5)
