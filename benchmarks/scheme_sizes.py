"""Export the reference encoder in each sharing scheme and print what each one stores.

    python benchmarks/scheme_sizes.py [--layers 12] [--hidden 768] [-o results.md] [--json]

Weights are random: only bytes are measured here, and whether the export is the same
model. At the defaults (ALBERT-base's shape) it takes some minutes and 1 GB of memory.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
import torch

from exporter.models import EncoderConfig, SharedEncoder, SharingScheme, save_checkpoint
from exporter.models.parameters import count_parameters
from exporter.pipeline import export_model

SCHEMES = ("all", "attention_only", "ffn_only", "grouped(3)", "none")


@click.command()
@click.option("--layers", default=12, show_default=True, help="Depth.")
@click.option("--hidden", default=768, show_default=True, help="Width; heads of 64.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Also write the table here.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record per scheme.")
def main(layers: int, hidden: int, output: Path | None, as_json: bool) -> None:
    """Export the reference encoder in five sharing schemes; print a table of bytes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in SCHEMES:
            print(f"exporting {name} …", file=sys.stderr)
            rows.append(measure(SharingScheme.parse(name), layers, hidden, Path(folder)))
    table = format_table(rows)
    print("\n".join(json.dumps(row) for row in rows) if as_json else table)
    if output is not None:
        output.write_text(table + "\n", encoding="utf-8")


def measure(scheme: SharingScheme, layers: int, hidden: int, folder: Path) -> dict[str, Any]:
    """Export one scheme; return its bytes, the baseline's, and the verification's result."""
    config = EncoderConfig(
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_attention_heads=max(1, hidden // 64),
        num_hidden_layers=layers,
        sharing=scheme,
    )
    torch.manual_seed(0)
    model = SharedEncoder(config)
    with torch.no_grad():  # fresh biases are all zero, and equal ones would be stored once
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    count = count_parameters(model)
    path = folder / "model.pt"
    save_checkpoint(model, path)
    manifest = export_model(path, folder / str(scheme)).manifest
    return {
        "scheme": str(scheme),
        "parameters": count.unique,
        "unique_bytes": manifest["unique_bytes"],
        "stored_bytes": manifest["stored_bytes"],
        "file_bytes": manifest["file_bytes"],
        "unshared_bytes": manifest["unshared_bytes"],
        "worst_abs_error": manifest["worst_abs_error"],
        "verdict": manifest["verdict"],
    }


def format_table(rows: list[dict[str, Any]]) -> str:
    """Format the rows as a Markdown table."""
    lines = [
        "| scheme | parameters | unique bytes | stored bytes | stored ÷ unique | file bytes "
        "| unshared ÷ stored | worst error |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        lines.append(
            f"| {row['scheme']} | {row['parameters']:,} | {row['unique_bytes']:,} "
            f"| {row['stored_bytes']:,} | {row['stored_bytes'] / row['unique_bytes']:.4f} "
            f"| {row['file_bytes']:,} | {row['unshared_bytes'] / row['stored_bytes']:.2f} "
            f"| {row['worst_abs_error']:.1e} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
