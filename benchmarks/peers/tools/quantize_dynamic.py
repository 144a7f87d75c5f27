"""Quantize an ONNX file to 8 bits with onnxruntime's dynamic quantizer, as it comes.

    python quantize_dynamic.py SOURCE TARGET

Runs in an environment of its own, where this project is not installed.
"""

from __future__ import annotations

import sys

from onnxruntime.quantization import quantize_dynamic

quantize_dynamic(sys.argv[1], sys.argv[2])
