"""Export shared-layer transformers to ONNX without losing the sharing."""

__version__ = "0.1.0"
