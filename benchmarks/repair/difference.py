"""Print the largest absolute difference between two ONNX files' outputs.

    python benchmarks/repair/difference.py ONE.onnx OTHER.onnx

Independent of the exporter's own verification: other inputs, one file after the other,
onnxruntime's graph optimizations on, as people run it.
"""

from __future__ import annotations

import sys

import numpy as np
import onnxruntime

SHAPES = ((1, 1), (2, 16), (1, 77), (3, 40))
"""Batch and sequence."""


def main() -> None:
    """Run both files, print one number."""
    one, other = (answers(path) for path in sys.argv[1:3])
    if [sorted(outputs) for outputs in one] != [sorted(outputs) for outputs in other]:
        raise SystemExit("the files have different outputs")
    differences = [
        np.abs(a[name] - b[name]).max() for a, b in zip(one, other, strict=True) for name in a
    ]
    # ``max`` of Python would pass over a NaN.
    print(float(np.max(differences)))


def answers(path: str) -> list[dict[str, np.ndarray]]:
    """Return the outputs of each shape; rows after the first end in padding."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    results = []
    for seed, (batch, length) in enumerate(SHAPES):
        rng = np.random.default_rng(1000 + seed)
        mask = np.ones((batch, length), np.int64)
        for row in range(1, batch):
            mask[row, length - length // (row + 2) :] = 0
        known = {
            "input_ids": rng.integers(0, 2000, (batch, length)),
            "attention_mask": mask,
            "token_type_ids": rng.integers(0, 2, (batch, length)),
        }
        feeds = {value.name: known[value.name] for value in session.get_inputs()}
        results.append(dict(zip(names, session.run(None, feeds), strict=True)))
    return results


if __name__ == "__main__":
    main()
