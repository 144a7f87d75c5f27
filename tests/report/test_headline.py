from __future__ import annotations

from msgspec.structs import replace

from exporter.records import Check, Measurement, Memory, Record
from exporter.report import build_report
from exporter.report.headline import Headline
from tests.report.making import PHONE, evaluation, measurement, trio


def headline(records: list[Record] | list[Measurement]) -> Headline:
    (section,) = build_report(records).sections
    return section.headline


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def test_one_setting_gives_size_ratio_and_place() -> None:
    found = headline(trio(int8=0.71, session_runs=(20, 20)))
    assert plain(found.sentence) == (
        "int8: 0.90 MB (0.72 MB on the wire), 10.0× smaller than the unshared fp32 baseline, "
        "0.71× its latency on Laptop, onnxruntime 1.27.0."
    )
    assert "95 % interval of the ratio 0.71–0.71" in found.details[0]
    assert found.losses == ()
    assert "Nothing measured was clearly slower" in " ".join(found.details)
    single = headline(trio(int8=0.71))
    assert single.sentence == found.sentence
    assert "interval" not in " ".join(single.details)


def test_what_leaves_early_is_named_beside_the_file_that_does_so() -> None:
    early = measurement("int8-exit", [2.5] * 40, content="int8")
    without = headline([*trio(int8=0.5)[1:], early])
    assert plain(without.sentence) == (
        "int8: 0.90 MB (0.72 MB on the wire), 5.15 ms per run on Laptop, onnxruntime 1.27.0; "
        "leaving early (int8-exit) 2.50 ms, 0.49× the latency of all its layers."
    )
    phone = trio(int8=0.8, device=PHONE, run="b")
    phone.append(measurement("int8-exit", [2.0] * 40, content="int8", device=PHONE, run="b"))
    records = [*trio(int8=0.5), early, *phone]
    assert plain(headline(records).sentence).endswith(
        "on 2 devices; leaving early (int8-exit) 0.24× to 0.49× the latency of all its layers."
    )
    other = measurement("int8-exit", [2.5] * 40, content="another file")
    assert "leaving early" not in headline([*trio(int8=0.5)[1:], other]).sentence


def test_what_sharing_alone_does_is_told_apart_from_the_precision() -> None:
    found = headline(trio(int8=0.71))
    assert "Sharing alone, in fp32: 3.00 MB, 3.00× smaller." in map(plain, found.details)
    itself = headline(trio(int8=1.5, fp32=0.9))
    assert itself.variant == "fp32"
    assert "Sharing alone" not in " ".join(itself.details)


def test_how_unshared_models_do_is_no_loss_of_the_shared_ones() -> None:
    heavy = Memory(added_rss=90_000_000)
    records = [*trio(), measurement("baseline-int8", [20.0] * 40, memory=heavy)]
    assert headline(records).losses == ()


def test_a_baseline_that_was_too_slow_is_said() -> None:
    records = trio(device=PHONE)
    records[0] = measurement(
        "baseline", status="failed", error="given up", flags=("too slow",), device=PHONE
    )
    assert headline(records).details[0] == (
        "The unshared fp32 baseline did not run on Phone, WASM in Chrome 140: it was too slow."
    )


def test_several_devices_give_a_range_and_name_best_and_worst() -> None:
    records = [*trio(int8=0.5), *trio(int8=0.8, device=PHONE, run="b")]
    found = headline(records)
    assert plain(found.sentence).endswith(", 0.50× to 0.80× its latency on 2 devices.")
    assert plain(found.details[0]) == (
        "Best on Laptop, onnxruntime 1.27.0: 0.50×; worst on Phone, WASM in Chrome 140: 0.80×; "
        "of 2 settings, faster in 2."
    )


def test_a_variant_that_is_slower_anywhere_is_passed_over_and_named() -> None:
    records = [
        *trio(int8=0.5, fp32=0.9),
        *trio(int8=1.3, fp32=0.9, device=PHONE, run="b"),
    ]
    found = headline(records)
    assert found.variant == "fp32"
    assert plain(found.losses[0]) == (
        "int8 is slower than unshared fp32 in 1 of 2 settings: 1.30× on Phone, WASM in Chrome 140"
    )
    assert "int8 is slower than fp32 in 1 of 2 settings" in plain(found.losses[1])


def test_where_all_are_slower_it_says_so() -> None:
    found = headline(trio(int8=1.2, fp32=1.1))
    assert found.variant == "fp32"
    assert "1.10× its latency (slower) on Laptop" in plain(found.sentence)
    assert "each was slower than the unshared fp32 baseline somewhere" in found.details[-1]


def test_no_difference_is_not_called_a_gain() -> None:
    noisy = [10.0, 12.0, 9.0, 11.0, 10.5, 9.5, 12.5, 8.5] * 5
    other = noisy[3:] + noisy[:3]
    found = headline([measurement("baseline", noisy), measurement("fp32", other)])
    assert "its latency (no clear difference) on" in found.sentence
    runs = [
        measurement(v, x, run=r) for r in "ab" for v, x in (("baseline", noisy), ("fp32", other))
    ]
    found = headline(runs)
    assert "its latency (no clear difference) on" in found.sentence
    assert "of 2 settings, no clear difference in 2." in plain(found.details[0])


def test_a_file_with_wrong_outputs_never_makes_the_headline() -> None:
    records = trio(int8=0.5)
    records[2] = measurement(
        "int8",
        records[2].samples_ms,
        check=Check(status="failed", relative_error=0.4, tolerance=0.05),
        flags=("failed check",),
    )
    found = headline(records)
    assert found.variant == "fp32"
    assert plain(found.losses[0]) == (
        "int8 computes wrong outputs in 1 setting: relative error 0.4 where 0.05 is allowed, "
        "on Laptop, onnxruntime 1.27.0"
    )


def test_without_a_baseline_there_is_a_time_and_no_ratio() -> None:
    found = headline([measurement("fp32", [5.0] * 5)])
    assert plain(found.sentence).endswith(", 5.00 ms per run on Laptop, onnxruntime 1.27.0.")
    assert "No unshared baseline was measured beside it." in found.details


def test_a_baseline_that_ran_out_of_memory_is_said() -> None:
    records = trio(device=PHONE)
    records[0] = measurement(
        "baseline",
        status="failed",
        error="RangeError",
        flags=("likely out of memory",),
        device=PHONE,
    )
    found = headline(records)
    assert "10.0× smaller" in found.sentence
    assert found.details[0] == (
        "The unshared fp32 baseline did not run on Phone, WASM in Chrome 140, "
        "likely for lack of memory."
    )


def test_more_memory_than_the_baseline_is_a_loss() -> None:
    records = trio()
    records[2] = measurement("int8", records[2].samples_ms, memory=Memory(added_rss=16_000_000))
    (loss,) = headline(records).losses
    assert loss == (
        "int8 takes more memory than the unshared fp32 baseline: "
        "2.00× on Laptop, onnxruntime 1.27.0"
    )


def test_accuracy_stands_beside_that_of_fp32() -> None:
    found = headline([*trio(), evaluation("fp32", 910), evaluation("int8", 905)])
    assert "Accuracy 90.5 %, fp32 91.0 % on test.jsonl (1,000 rows)." in map(plain, found.details)


def test_nothing_measured_is_said_plainly() -> None:
    found = headline([measurement("fp32", status="failed", error="crashed")])
    assert found.sentence == "No model was measured with right outputs."
    assert found.variant is None


def test_the_smallest_of_those_that_are_nowhere_slower_is_chosen_and_not_the_fastest() -> None:
    found = headline(trio(int8=0.9, fp32=0.5))
    assert found.variant == "int8"
    assert found.details[-1].startswith("Chosen for the headline: the smallest file")


def test_the_accuracy_of_another_file_of_that_name_does_not_count() -> None:
    rated = evaluation("int8", 905)
    assert "Accuracy 90.5 %" in " ".join(map(plain, headline([*trio(), rated]).details))
    other = replace(rated, model=replace(rated.model, sha256="0" * 64))
    assert "Accuracy" not in " ".join(headline([*trio(), other]).details)
