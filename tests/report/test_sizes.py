from __future__ import annotations

import hashlib
from typing import Any

import pytest
from msgspec.structs import replace

from exporter.errors import BenchmarkError
from exporter.report import build_report
from tests.report.making import SIZES, digest, measurement, trio


def manifest(**fields: Any) -> dict[str, Any]:
    variants = ("fp32", "int8", "int4", "baseline")
    coverage = {"operations_reached": 8, "operations_total": 9, "bytes_share": 0.987}
    return {
        "name": "folder",
        "scheme": "all",
        "unique_bytes": 2_900_000,
        "unshared_bytes": 8_900_000,
        "models": [
            {
                "variant": variant,
                "path": f"onnx/{variant}.onnx",
                "file_bytes": SIZES[variant],
                "coverage": coverage if variant == "int4" else None,
            }
            for variant in variants
        ],
        "files": {f"onnx/{variant}.onnx": {"sha256": digest(variant)} for variant in variants},
        **fields,
    }


def test_a_manifest_adds_files_that_were_not_measured() -> None:
    (section,) = build_report(trio(), manifests=[manifest()]).sections
    assert [model.variant for model in section.models] == ["baseline", "fp32", "int8", "int4"]
    added = section.models[-1]
    assert added.file.file_bytes == SIZES["int4"]
    assert added.against_baseline == pytest.approx(SIZES["int4"] / SIZES["baseline"])
    assert added.coverage == "8 of 9 operations, 98.7\xa0% of bytes"
    assert section.models[2].file.brotli_bytes == 720_000
    (described,) = section.described
    assert described.summary.replace("\xa0", " ") == (
        "sharing scheme all, 2.90 MB unique parameters, 8.90 MB unshared"
    )


def test_external_data_counts_in_the_hash_as_in_records() -> None:
    files = {
        "onnx/fp32.onnx": {"sha256": digest("graph")},
        "onnx/fp32.onnx_data": {"sha256": digest("weights")},
    }
    together = hashlib.sha256(f"{digest('graph')}\n{digest('weights')}".encode()).hexdigest()
    model = {"variant": "fp32", "path": "onnx/fp32.onnx", "file_bytes": 5}
    report = build_report(trio(), manifests=[manifest(models=[model], files=files)])
    unmatched = report.sections[-1]
    assert unmatched.artifact == "folder"
    assert unmatched.models[0].file.sha256 == together


def test_an_artifact_without_records_is_shown_and_said_to_have_none() -> None:
    other = manifest(files={f"onnx/{v}.onnx": {"sha256": digest(f"other {v}")} for v in SIZES})
    report = build_report(trio(), manifests=[other])
    assert [section.artifact for section in report.sections] == ["demo", "folder"]
    assert [str(notice) for notice in report.notices] == [
        "folder: no record measures a file of this artifact"
    ]


def test_a_file_measured_that_is_no_longer_the_artifact_s_is_named() -> None:
    files = {f"onnx/{v}.onnx": {"sha256": digest(v)} for v in SIZES}
    files["onnx/int8.onnx"] = {"sha256": digest("rebuilt")}
    report = build_report(trio(), manifests=[manifest(files=files)])
    assert any("was measured from another file" in text for text in report.incomparable)


@pytest.mark.parametrize("broken", [{"models": [{}]}, {"files": {}}, {"models": 5}])
def test_an_incomplete_manifest_is_one_clear_error(broken: dict[str, Any]) -> None:
    with pytest.raises(BenchmarkError, match="a manifest is incomplete"):
        build_report(trio(), manifests=[manifest(**broken)])


def test_of_several_records_of_a_file_the_one_that_knows_its_bytes_on_the_wire_counts() -> None:
    bare = measurement("fp32", run="a")
    bare = replace(bare, model=replace(bare.model, brotli_bytes=None, gzip_bytes=None))
    for records in ([bare, measurement("fp32", run="b")], [measurement("fp32", run="b"), bare]):
        (section,) = build_report(records).sections
        (model,) = section.models
        assert model.file.brotli_bytes == 2_400_000
