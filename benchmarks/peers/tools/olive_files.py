"""Make the files of Olive.

    python olive_files.py SOURCE.onnx FOLDER int8|int4

Writes ``FOLDER/model.onnx``. Runs in an environment of its own, where this project is not
installed. The order of the passes is what makes the file small: the quantizers see a shared
weight only where no alias hides it.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import olive

ALIASES = {"type": "OnnxPeepholeOptimizer"}
# The 4-bit quantizer passes over a Gemm.
NO_GEMM = {"type": "GraphSurgeries", "surgeries": [{"surgeon": "GemmToMatMulAdd"}]}
PASSES = {
    "int8": {
        "aliases": ALIASES,
        "quantize": {"type": "OnnxDynamicQuantization", "precision": "int8"},
    },
    "int4": {
        "aliases": ALIASES,
        "gemm": NO_GEMM,
        "quantize": {"type": "OnnxBlockWiseRtnQuantization", "bits": 4, "block_size": 32},
    },
}


def main() -> None:
    """Run the passes, keep the model."""
    source, folder, precision = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    with TemporaryDirectory() as work:
        olive.run(
            {
                "input_model": {"type": "OnnxModel", "model_path": str(source)},
                "passes": PASSES[precision],
                "output_dir": f"{work}/out",
                "cache_dir": f"{work}/cache",
                "log_severity_level": 1,
            }
        )
        for found in Path(work, "out").rglob("model.onnx*"):
            shutil.copyfile(found, folder / found.name)


if __name__ == "__main__":
    main()
