"""How long an export takes at 12, 24 and 48 layers that share one set of weights.

    python benchmarks/depth_cost.py [--depths 12,24,48] [-o results.md]

Exports a randomly initialised ALBERT-base of each depth and times each step. Capture looks
at two layers whatever the depth; verification runs all of them, in PyTorch and in onnxruntime.
"""

from __future__ import annotations

import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import click
import torch
from transformers import AlbertConfig, AlbertModel

from exporter.pipeline import export_model

VERIFYING = "writing and verifying the model"


@click.command()
@click.option("--depths", default="12,24,48", show_default=True, help="Numbers of layers.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Also write the table here.")
def main(depths: str, output: Path | None) -> None:
    """Export ALBERT-base at several depths; print seconds per step and bytes."""
    lines = [
        "| layers | file bytes | nodes | all steps but verification s | verification s |",
        "|--:|--:|--:|--:|--:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        measure(2, Path(folder))  # imports and caches
        for depth in map(int, depths.split(",")):
            lines.append(measure(depth, Path(folder)))
    print("\n".join(lines))
    if output is not None:
        output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(depth: int, folder: Path) -> str:
    """Export one depth; return its row."""
    print(f"exporting {depth} layers …", file=sys.stderr)
    config = AlbertConfig(
        hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_hidden_layers=depth
    )
    torch.manual_seed(0)
    AlbertModel(config).save_pretrained(folder / f"albert-{depth}")
    starts: list[tuple[str, float]] = []
    artifact = export_model(
        folder / f"albert-{depth}",
        folder / f"out-{depth}",
        progress=lambda step: starts.append((step, time.perf_counter())),
    )
    starts.append(("end", time.perf_counter()))
    seconds: dict[str, float] = {}
    for (step, start), (_, end) in pairwise(starts):
        seconds[step] = seconds.get(step, 0.0) + end - start
    verifying = seconds.pop(VERIFYING)
    main_model = artifact.manifest["models"][0]
    return (
        f"| {depth} | {artifact.manifest['file_bytes']:,} | {main_model['nodes']} "
        f"| {sum(seconds.values()):.1f} | {verifying:.1f} |"
    )


if __name__ == "__main__":
    main()
