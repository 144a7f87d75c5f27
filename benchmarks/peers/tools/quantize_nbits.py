"""Quantize an ONNX file to 4 bits with onnxruntime's MatMulNBits quantizer.

    python quantize_nbits.py SOURCE TARGET

The quantizer's own command stores the tensors of Constant nodes outside of the file, where no
reader looks for them; so its class is called. Runs in an environment of its own, where this
project is not installed.
"""

from __future__ import annotations

import sys

import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
)

config = DefaultWeightOnlyQuantConfig(
    block_size=32,
    is_symmetric=True,
    accuracy_level=4,
    op_types_to_quantize=("MatMul", "Gather"),
    bits=4,
)
quantizer = MatMulNBitsQuantizer(onnx.load(sys.argv[1]), bits=4, algo_config=config)
quantizer.process()
quantizer.model.save_model_to_file(sys.argv[2], False)
