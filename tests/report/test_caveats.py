from __future__ import annotations

import pytest
from msgspec.structs import replace

from exporter.records import Check, Measurement
from exporter.report import Report, build_report
from tests.report.making import LAPTOP, PHONE, digest, evaluation, measurement, trio


def report(*records: Measurement) -> Report:
    return build_report(records)


def one(texts: tuple[str, ...], part: str) -> str:
    found = [text.replace("\xa0", " ") for text in texts if part in text]
    assert len(found) == 1, texts
    return found[0]


def test_cases_that_failed_or_did_not_run_are_listed_with_their_errors() -> None:
    found = report(
        *trio(),
        measurement("int4", status="failed", error="exit code -9", flags=("likely out of memory",)),
        measurement("fp16", status="not run", error="Firefox is not installed", device=PHONE),
        measurement(
            "fp32",
            sequence=16,
            check=Check(status="failed", relative_error=0.41, tolerance=0.05),
            flags=("failed check",),
        ),
    )
    assert [incident.kind for incident in found.incidents] == ["failed check", "failed", "not run"]
    check, failed, missing = (incident.text for incident in found.incidents)
    assert check.startswith("relative error 0.41 where 0.05 is allowed")
    assert failed == "likely out of memory: exit code -9"
    assert missing == "Firefox is not installed"
    assert "demo int4 on Laptop" in found.incidents[1].subject


def test_flags_become_words_with_their_number_and_place() -> None:
    found = report(*trio(), measurement("int4", flags=("spread",)), measurement("fp16"))
    text = dict(found.doubts)["spread"]
    assert "middle half lies more than 25 %" in text
    assert "(1 of 5\xa0records: demo int4 on Laptop" in text


def test_doubts_of_one_place_are_said_together() -> None:
    found = report(
        *(measurement(variant, flags=("spread",)) for variant in ("fp32", "int8", "baseline")),
        measurement("int4", device=PHONE, flags=("spread",)),
    )
    text = dict(found.doubts)["spread"].replace("\xa0", " ")
    assert "demo fp32, int8 and unshared fp32 on Laptop, onnxruntime 1.27.0, batch 1" in text
    assert text.count("batch 1") == 2


def test_what_is_an_incident_already_is_no_doubt_as_well() -> None:
    wrong = Check(status="failed", relative_error=0.4, tolerance=0.05)
    found = report(
        measurement("fp32", check=wrong, flags=("failed check",)),
        measurement("int4", status="failed", error="x", flags=("likely out of memory",)),
    )
    assert (found.doubts, len(found.incidents)) == ((), 2)


@pytest.mark.parametrize(("sessions", "words"), [(1, "1 session is"), (2, "2 sessions are")])
def test_too_few_processes_for_an_interval_are_called_that(sessions: int, words: str) -> None:
    doubt = dict(report(*trio(session_runs=(40 // sessions,) * sessions)).doubts)["few processes"]
    assert doubt.startswith("in 3 of 3\xa0latency ratios there was only a process or two of each")
    assert doubt.endswith(
        f": {words} too few for an interval; use --sessions 4 or more, "
        "or on the benchmark page 'Thorough'"
    )


def test_several_processes_are_no_doubt() -> None:
    assert report(*trio(session_runs=(10, 10, 10, 10))).doubts == ()


def test_different_files_of_one_name_are_not_comparable() -> None:
    other = measurement("int8", content="rebuilt", run="b", day="2026-03-02")
    found = report(*trio(), other)
    text = one(found.incomparable, "names 2 different files")
    assert text.startswith("demo int8 ")
    for content in ("int8", "rebuilt"):
        assert f"#{digest(content)[:6]}" in text
    names = [model.name for model in found.sections[0].models]
    assert names[:2] == ["unshared fp32", "fp32"]
    assert sorted(names[2:]) == sorted(f"int8 #{digest(c)[:6]}" for c in ("int8", "rebuilt"))


def test_each_file_of_one_name_is_compared_with_the_baseline_it_met() -> None:
    rebuilt = [
        measurement(v, content=f"{v} 2", run="b", day="2026-03-02") for v in ("baseline", "int8")
    ]
    big = replace(rebuilt[0], model=replace(rebuilt[0].model, file_bytes=18_000_000))
    models = report(*trio(), big, rebuilt[1]).sections[0].models
    ratios = {m.file.sha256: m.against_baseline for m in models if m.variant == "int8"}
    assert ratios == {digest("int8"): 0.1, digest("int8 2"): 0.05}


def test_other_runtime_and_engine_versions_are_named() -> None:
    newer = replace(LAPTOP, engine="CPython 3.13", runtime_version="1.28.0")
    found = report(*trio(), *trio(device=newer, run="b", day="2026-04-01"))
    assert one(found.incomparable, "versions").startswith(
        "onnxruntime was measured in versions 1.27.0 and 1.28.0"
    )
    assert one(found.incomparable, "CPython").startswith(
        "Laptop was measured with CPython 3.12 and CPython 3.13"
    )


def test_devices_with_other_workloads_are_named() -> None:
    other = replace(PHONE, label="Tablet")
    found = report(*trio(device=PHONE), *trio(device=other, run="b", sequence=16))
    text = one(found.incomparable, "different batches, sequences or threads")
    assert text.startswith("demo on browsers: 2 devices") and text.endswith("none on all of them")


def test_threads_used_that_are_not_those_asked_for_are_named() -> None:
    found = report(measurement(threads=2, threads_used=1))
    assert one(found.incomparable, "threads used").endswith("2026-03-01 used 1 of 2")


def test_a_baseline_of_another_run_is_no_partner() -> None:
    found = report(measurement("baseline"), measurement("int8", run="b", day="2026-03-02"))
    assert "demo on Laptop" in one(found.incomparable, "different runs make no pairs")


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"data_sha256": digest("other")}, "2 different data files"),
        ({"variant": "int8"}, "is not the one measured"),
    ],
)
def test_evaluations_of_other_data_or_files_are_named(fields: dict[str, str], part: str) -> None:
    records = [*trio(), evaluation("fp32", 900), replace(evaluation("fp32", 890), **fields)]
    assert one(build_report(records).incomparable, part)


def test_records_of_one_build_on_one_device_raise_no_doubt() -> None:
    records = [*trio(), *trio(run="b", day="2026-03-02"), evaluation("int8", 900)]
    assert build_report(records).incomparable == ()
    assert build_report(records).incidents == ()
