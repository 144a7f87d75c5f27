"""Free names for nodes."""

from __future__ import annotations

import onnx_ir as ir

from exporter.passes.scopes import Names, all_graphs

__all__ = ["NodeNames"]


class NodeNames(Names):
    """Every node name of a model; onnxruntime refuses two equal ones in one graph."""

    def __init__(self, model: ir.Model) -> None:
        self._taken = {node.name for graph in all_graphs(model) for node in graph if node.name}
