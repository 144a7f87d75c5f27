"""Remove what torch's exporter writes about the machine and source it ran on."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import onnx_ir as ir

from exporter.passes.match import Match, ReportingPass
from exporter.passes.scopes import all_graphs

__all__ = ["StripExportTracesPass"]

_PREFIXES = ("pkg.torch.", "pkg.onnxscript.")

# torch writes this key without a prefix, so it goes only where its other keys show the author.
_UNPREFIXED = "namespace"


class StripExportTracesPass(ReportingPass):
    """Remove the metadata of torch's exporter: stack traces, source paths, trace names.

    ::

        MatMul {pkg.torch.onnx.stack_trace: "File /home/...", note: "x"}  ->  MatMul {note: "x"}

    1. Keys under ``pkg.torch.`` and ``pkg.onnxscript.`` go, from the model, graphs,
       functions, nodes and values.
    2. The key ``namespace`` goes from a node that had such keys.
    3. Everything else stays: other keys, doc strings, producer.

    Meant for graphs captured by this program: in a file from elsewhere even these keys
    belong to whoever wrote it.
    """

    def rewrite(self, model: ir.Model) -> None:
        """Strip every metadata holder of ``model``."""
        for name, metadata in _holders(model):
            traces = [key for key in metadata if key.startswith(_PREFIXES)]
            if traces and _UNPREFIXED in metadata:
                traces.append(_UNPREFIXED)
            for key in traces:
                del metadata[key]
            if traces:
                self.matches.append(Match(name, f"removed {', '.join(sorted(traces))}"))


def _holders(model: ir.Model) -> Iterator[tuple[str, MutableMapping[str, str]]]:
    yield "model", model.metadata_props
    for graph in all_graphs(model):
        yield str(graph.name), graph.metadata_props
        values = [*graph.inputs]
        if isinstance(graph, ir.Graph):
            values += [v for v in graph.initializers.values() if not v.is_graph_input()]
        for node in graph:
            yield str(node.name), node.metadata_props
            values += node.outputs
        yield from ((str(value.name), value.metadata_props) for value in values)
