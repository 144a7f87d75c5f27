"""The results of ``run.py`` as the Markdown of the model card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from exporter.scores import paired_interval, wilson_interval
from exporter.training.labelled_files import FOREIGN_FILE, HELD_OUT_FILE

__all__ = ["BEGIN", "DATA", "END", "tables"]

BEGIN = "<!-- exports: begin, written by benchmarks/demo_model/run.py -->"
END = "<!-- exports: end -->"
DATA = (HELD_OUT_FILE, FOREIGN_FILE)
_WORDS = ("held-out, at least 1.0", "amazon, imdb and yelp")
_SHORT = ("held-out", "other")

Row = Mapping[str, Any]


def tables(results: Mapping[str, Any]) -> str:
    """Write the figures."""
    parts = (_files, _teacher_and_student, _depths)
    return "\n".join(line for part in parts for line in part(results)).rstrip()


def _files(results: Mapping[str, Any]) -> Iterator[str]:
    by_file = _by_file(results)
    yield f"| model | file | {_headings(results)} |"
    yield "|---|---:|---:|---:|"
    for (who, variant, data), row in by_file.items():
        if data == DATA[0]:
            cells = [_accuracy(by_file[who, variant, data]) for data in DATA]
            size = f"{row['file_bytes'] / 1e6:.2f} MB"
            yield f"| {who}, {variant} | {size} | {' | '.join(cells)} |"
    yield ""


def _teacher_and_student(results: Mapping[str, Any]) -> Iterator[str]:
    by_file = _by_file(results)
    pairs = {row["data"]: row for row in results["teacher_fp32_and_student_int8"]}
    kept, gained = [], []
    for data in DATA:
        teacher, student = by_file["teacher", "fp32", data], by_file["student", "int8", data]
        majority = teacher["majority"]
        kept.append(f"{_share(student) / _share(teacher):.1%}")
        gained.append(f"{(_share(student) - majority) / (_share(teacher) - majority):.1%}")
    yield "The student in int8 beside its teacher in fp32, sentence by sentence:"
    yield ""
    yield f"| | {_headings(results)} |"
    yield "|---|---:|---:|"
    yield f"| difference | {' | '.join(_difference([pairs[data]]) for data in DATA)} |"
    yield f"| kept of the accuracy | {' | '.join(kept)} |"
    yield f"| kept of what is above the majority baseline | {' | '.join(gained)} |"
    yield ""


def _depths(results: Mapping[str, Any]) -> Iterator[str]:
    depths = results["depths"]
    names = [f"{row['variant']}: {_SHORT[DATA.index(row['data'])]}" for row in depths]
    yield "After each number of passes:"
    yield ""
    yield f"| passes | {' | '.join(names)} |"
    yield "|---|" + "---:|" * len(names)
    for index in range(len(depths[0]["correct"])):
        shares = [f"{row['correct'][index] / row['rows']:.1%}" for row in depths]
        yield f"| {index + 1} | {' | '.join(shares)} |"
    yield ""
    fp32 = [row["correct"] for row in depths if row["variant"] == "fp32"]
    one, every = (sum(correct[index] for correct in fp32) for index in (0, -1))
    pairs = results["fp32_all_passes_and_one"]
    yield (
        f"Of all {sum(pair['rows'] for pair in pairs):,} sentences the fp32 file labels {one:,} "
        f"right after one pass, and {every:,} after all {len(fp32[0])}: a difference of "
        f"{_difference(pairs)}."
    )


def _by_file(results: Mapping[str, Any]) -> dict[tuple[str, str, str], Row]:
    return {(row["who"], row["variant"], row["data"]): row for row in results["files"]}


def _headings(results: Mapping[str, Any]) -> str:
    sizes = {row["data"]: row["rows"] for row in results["files"]}
    return " | ".join(f"{words} (n = {sizes[d]:,})" for d, words in zip(DATA, _WORDS, strict=True))


def _share(row: Row) -> float:
    return float(row["correct"] / row["rows"])


def _accuracy(row: Row) -> str:
    low, high = wilson_interval(row["correct"], row["rows"])
    return f"{_share(row):.1%} ({low:.1%} to {high:.1%})"


def _difference(pairs: Sequence[Row]) -> str:
    """Write how many points the second is better than the first, with the 95 % interval."""
    rows, first, second = (
        sum(pair[name] for pair in pairs) for name in ("rows", "only_first", "only_second")
    )
    low, high = (100 * bound for bound in paired_interval(first, second, rows))
    return f"{100 * (second - first) / rows:+.1f} points ({low:+.1f} to {high:+.1f})"
