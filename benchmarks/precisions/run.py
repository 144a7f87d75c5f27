"""Bytes, coverage and errors of ALBERT-base in every precision, from every kind of source.

    python -m benchmarks.precisions.run [--work-dir DIR]

Writes ``results.md`` and ``results.json`` beside this file. All of it must come out the same
on every machine, but for the last digits of the errors. Times are measured by
``albert-export bench``; see ``times.md``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.commands import CommandError, albert_export
from benchmarks.repair.tools import TOOLS, run_tool

HERE = Path(__file__).parent
MB = 1e6
LIMITS = {
    ("base", "fp16"): 23_600_000,
    ("base", "int8"): 11_800_000,
    ("base", "int4"): 6_700_000,
    ("masked-lm", "fp32"): 45_100_000,
    ("masked-lm", "int8"): 11_700_000,
}
"""Bytes that a whole file may take, by model and precision."""

FORMS = "int8-unsigned,int8-reduced,int8-int4-tables,int4-float,int4-int8,int4-nbits"


@dataclass(frozen=True)
class Case:
    """One source and how it is exported."""

    model: str
    source: str
    made_by: str
    options: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name of its artifact."""
        return "-".join([self.source.removesuffix(".onnx"), *self.options]).replace("--", "")


CASES = (
    Case("base", "base", "checkpoint"),
    Case("base", "base", "checkpoint, unrolled", ("--layout", "unrolled")),
    Case("base", "base", "checkpoint, Q, K and V apart", ("--no-fuse",)),
    Case(
        "base",
        "base",
        "checkpoint, unrolled, Q, K and V apart",
        ("--no-fuse", "--layout", "unrolled"),
    ),
    Case("base", "base-torchscript.onnx", "TorchScript exporter"),
    Case("base", "base-dynamo.onnx", "dynamo exporter"),
    Case("base", "base-slimmed.onnx", "TorchScript exporter + onnxslim"),
    Case("masked-lm", "masked-lm", "checkpoint"),
    Case("masked-lm", "masked-lm-torchscript.onnx", "TorchScript exporter"),
    Case("masked-lm", "masked-lm-dynamo.onnx", "dynamo exporter"),
)


@click.command()
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where files are made and kept.")
def main(work_dir: Path | None) -> None:
    """Make the sources, export them, write the tables."""
    work = work_dir or Path(tempfile.mkdtemp(prefix="precisions-"))
    subprocess.run([sys.executable, HERE / "sources.py", work], check=True)
    if not (work / "base-slimmed.onnx").exists():
        slim = next(tool for tool in TOOLS if tool.name == "onnxslim")
        run_tool(slim, work, work / "base-torchscript.onnx", work / "base-slimmed.onnx")
    manifests = {}
    for case in CASES:
        print(f"{case.source} {' '.join(case.options)} …", file=sys.stderr)
        manifests[case] = export(work / case.source, work / "out" / case.key, "all", case.options)
    forms = export(work / "base", work / "out" / "forms", f"fp32,{FORMS}")
    rows = [row for case, manifest in manifests.items() for row in _rows(case, manifest)]
    form_rows = _rows(Case("base", "base", "checkpoint"), forms)[1:]
    document = _document(manifests, rows, form_rows)
    record = {"sizes": rows, "forms": form_rows}
    (HERE / "results.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (HERE / "results.md").write_text(document, encoding="utf-8")
    print(document)
    if missed := [row for row in rows if row["limit"] and row["file_bytes"] > row["limit"]]:
        raise SystemExit(f"limits missed: {', '.join(_name(row) for row in missed)}")


def export(source: Path, target: Path, precisions: str, options: Any = ()) -> dict[str, Any]:
    """Export with the command line; return the manifest."""
    arguments = ("export", source, "-o", target, "--precision", precisions, "--force", *options)
    try:
        return albert_export(*arguments).output
    except CommandError as error:
        raise SystemExit(f"{source}: {error}") from error


def _rows(case: Case, manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            **asdict(case),
            "precision": model["variant"],
            "file_bytes": model["file_bytes"],
            "limit": _limit(case, model["variant"]),
            "coverage": model["coverage"],
            "relative_error": model["verification"]["relative_error"],
            "cosine": model["verification"]["cosine"],
            "errors_by_depth": model["errors_by_depth"],
        }
        for model in manifest["models"]
    ]


def _limit(case: Case, precision: str) -> int | None:
    # With every layer written out some KB of names come on top, which no limit speaks of.
    return None if "--layout" in case.options else LIMITS.get((case.model, precision))


def _name(row: dict[str, Any]) -> str:
    return f"{row['model']} {row['precision']} from {row['made_by']}"


def _document(
    manifests: dict[Case, dict[str, Any]],
    rows: list[dict[str, Any]],
    forms: list[dict[str, Any]],
) -> str:
    lines = [
        "# Precisions of ALBERT-base",
        "",
        "All parameters random, whole files, MB of 10⁶ bytes. Operations: products and lookups "
        "that read a weight stored in the precision, of all that read one; every weight byte is "
        "reached where both are equal.",
        "",
        "    python -m benchmarks.precisions.run",
        "",
        "| model | made by | layout | fp32 MB | fp16 MB | int8 MB | int4 MB | operations |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for case, manifest in manifests.items():
        sizes = {model["variant"]: model["file_bytes"] / MB for model in manifest["models"]}
        int8 = next(model for model in manifest["models"] if model["variant"] == "int8")
        reached = int8["coverage"]
        lines.append(
            f"| {case.model} | {case.made_by} | {manifest['layout']['chosen']} "
            + "".join(f"| {sizes[name]:.3f} " for name in ("fp32", "fp16", "int8", "int4"))
            + f"| {reached['operations_reached']} of {reached['operations_total']} |"
        )
    lines += [
        "",
        "Q, K and V of one input are multiplied as one packed product, unless `--no-fuse` is "
        "given: then the operations are 8 products rolled, or 74 written out, and three lookups. "
        "A masked language model has one product more, its decoder, whose weight is the "
        "embedding.",
        "",
        "## Errors",
        "",
        "Root mean square of the difference to PyTorch in float32, in proportion to the output's; "
        "random weights are the hard case for few bits, trained ones lose less.",
        "",
        "| model, from its checkpoint | fp16 | int8 | int4 |",
        "|---|--:|--:|--:|",
    ]
    for model in ("base", "masked-lm"):
        found = {
            row["precision"]: row["relative_error"]
            for row in rows
            if row["source"] == model and not row["options"]
        }
        errors = " | ".join(f"{found[name]:.2%}" for name in ("fp16", "int8", "int4"))
        lines.append(f"| {model} | {errors} |")
    lines += ["", *_depth_lines(rows), "", *_form_lines(forms)]
    return "\n".join(lines) + "\n"


def _depth_lines(rows: list[dict[str, Any]]) -> list[str]:
    base = [row for row in rows if row["source"] == "base" and not row["options"]]
    by_precision = {row["precision"]: row["errors_by_depth"] for row in base}
    depths = [entry["uses"] for entry in by_precision["int8"]]
    lines = [
        "After so many passes through the shared layer, head included (base):",
        "",
        "| passes | " + " | ".join(str(depth) for depth in depths) + " |",
        "|---|" + "--:|" * len(depths),
    ]
    for name in ("fp16", "int8", "int4"):
        values = " | ".join(f"{entry['relative_error']:.2%}" for entry in by_precision[name])
        lines.append(f"| {name} | {values} |")
    return lines


def _form_lines(forms: list[dict[str, Any]]) -> list[str]:
    return [
        "## Alternatives (base, rolled)",
        "",
        "| precision | MB | operations | error |",
        "|---|--:|--:|--:|",
        *(
            f"| {row['precision']} | {row['file_bytes'] / MB:.3f} "
            f"| {row['coverage']['operations_reached']} of {row['coverage']['operations_total']} "
            f"| {row['relative_error']:.2%} |"
            for row in forms
        ),
    ]


if __name__ == "__main__":
    main()
