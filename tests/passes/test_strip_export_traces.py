from __future__ import annotations

import numpy as np
import onnx_ir as ir

from exporter.passes.strip_export_traces import StripExportTracesPass
from tests.passes.helpers import assert_pass_preserves, build

TEXT = "g (float[2] x) => (float[2] z) { y = Add(x, W)  z = Neg(y) }"
X = {"x": np.array([1, 2], np.float32)}


def traced() -> ir.Model:
    model = build(TEXT, {"W": np.ones(2, np.float32)})
    add, neg = model.graph
    add.metadata_props.update(
        {"pkg.torch.onnx.stack_trace": 'File "/home/me/model.py"', "namespace": "a.B", "mine": "1"}
    )
    neg.outputs[0].metadata_props["pkg.torch.onnx.original_node_name"] = "neg"
    model.graph.initializers["W"].metadata_props["pkg.onnxscript.optimizer.folded_from"] = "v"
    model.graph.metadata_props["pkg.torch.export.ExportedProgram.graph_signature"] = "p_W"
    model.metadata_props.update({"pkg.torch.x": "y", "licence": "MIT"})
    model.producer_name, model.graph.doc_string = "someone", "about it"
    return model


def test_traces_go_from_model_graph_nodes_values_and_initializers() -> None:
    after = assert_pass_preserves(StripExportTracesPass, traced(), X)
    content = ir.to_proto(after).SerializeToString()
    assert b"pkg." not in content and b"/home/me" not in content and b"a.B" not in content


def test_what_others_wrote_stays() -> None:
    after = assert_pass_preserves(StripExportTracesPass, traced(), X)
    assert after.metadata_props == {"licence": "MIT"}
    assert after.graph.node(0).metadata_props == {"mine": "1"}
    assert (after.producer_name, after.graph.doc_string) == ("someone", "about it")


def test_a_namespace_that_torch_did_not_write_stays() -> None:
    model = build(TEXT, {"W": np.ones(2, np.float32)})
    model.graph.node(0).metadata_props.update({"namespace": "mine", "pkg.other": "x"})
    assert_pass_preserves(StripExportTracesPass, model, X, modified=False)


def test_traces_go_from_inner_graphs_functions_and_constants() -> None:
    model = build(
        """<ir_version: 10, opset_import: ["" : 20, "d" : 1]>
        g (bool c, float[2] x) => (float[2] y) {
            y = If (c) <
                then_branch = t () => (float[2] a) { a = d.f(x) },
                else_branch = e () => (float[2] b) { b = Constant<value = float[2] {1, 2}>() } > }
        <domain: "d", opset_import: ["" : 20]> f (v) => (w) { w = Neg(v) }"""
    )
    for graph in (*model.graphs(), *model.functions.values()):
        graph.metadata_props["pkg.torch.a"] = "trace"
        for node in graph:
            node.metadata_props["pkg.torch.b"] = "trace"
    after = assert_pass_preserves(StripExportTracesPass, model, {**X, "c": np.array(True)})
    assert b"trace" not in ir.to_proto(after).SerializeToString()
