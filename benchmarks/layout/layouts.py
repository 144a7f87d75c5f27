"""ALBERT-base in both layouts, exported by the command line.

python benchmarks/layout/layouts.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from transformers import AlbertConfig, AlbertModel

LAYOUTS = ("rolled", "unrolled")


def main() -> None:
    """Write the checkpoint and the two artifacts, if they are not there yet."""
    folder = Path(sys.argv[1])
    checkpoint = folder / "albert-base"
    if not checkpoint.exists():
        torch.manual_seed(0)
        config = AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)
        model = AlbertModel(config)
        with torch.no_grad():  # fresh biases are all zero, and equal ones are stored once
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.01)
        model.save_pretrained(checkpoint)
    for layout in LAYOUTS:
        if not (folder / layout).exists():
            command = [sys.executable, "-m", "exporter", str(checkpoint)]
            command += ["-o", str(folder / layout), "--layout", layout]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
