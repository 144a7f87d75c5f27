"""Graph passes, each on ``onnx_ir``'s pass contract. Needs neither torch nor onnxruntime."""
