"""What is in a model file: bytes stored twice, weights a quantizer misses, loops, sizes.

A neutral reader: it changes nothing, and needs neither torch nor onnxruntime nor the passes.
"""

from __future__ import annotations

from exporter.inspection.duplicates import CopyGroup
from exporter.inspection.gates import failed_gates, parse_bytes
from exporter.inspection.inspect import inspect_path
from exporter.inspection.report import Inspection, ModelInspection, allowed_waste_bytes

__all__ = [
    "CopyGroup",
    "Inspection",
    "ModelInspection",
    "allowed_waste_bytes",
    "failed_gates",
    "inspect_path",
    "parse_bytes",
]
