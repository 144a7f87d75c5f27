from __future__ import annotations

import numpy as np

from exporter.accounting import iter_stored, stored_bytes
from exporter.inspection.structure import (
    annotation_bytes,
    count_functions,
    count_operators,
    find_loops,
)
from exporter.inspection.tensors import graph_labels
from tests.inspection.helpers import matrix
from tests.passes.helpers import build

LOOP = """
    main (float[2,8] x) => (float[2,8] y, float[n,2,8] all) {
        s = Neg(x)
        [layers] y, all = Loop(trips, , s) <
            body = layer (int64 i, bool go, float[2,8] a) => (bool on, float[2,8] c, float[2,8] e) {
                on = Identity(go)
                own = Gather(stack, i)
                row = Gather(rows, i)
                bias = Gather(biases, row)
                b = MatMul(a, own)
                c = Add(b, bias)
                e = Neg(c)
            }
        >
    }"""
WEIGHTS = {
    "trips": np.array(3),
    "stack": np.stack([matrix(8, 8, k) for k in range(3)]),
    "rows": np.array([0, 1, 0]),
    "biases": matrix(2, 8),
}


def test_a_loop_is_described_with_its_stacks() -> None:
    model = build(LOOP, WEIGHTS)
    (loop,) = find_loops(model, graph_labels(model))
    assert (loop.name, loop.graph, loop.iterations, loop.depth_input) == ("layers", "main", 3, None)
    assert (loop.nodes, loop.carried, loop.scanned) == (7, 1, 1)
    assert loop.stacks == ("biases", "rows", "stack")
    assert loop.stacked_bytes == 3 * 256 + 2 * 32 + 3 * 8


def test_a_trip_count_that_is_an_input_gives_its_default_and_name() -> None:
    model = build(LOOP, WEIGHTS)
    model.graph.inputs.append(model.graph.initializers["trips"])
    (loop,) = find_loops(model, graph_labels(model))
    assert (loop.iterations, loop.depth_input) == (3, "trips")


def test_a_computed_trip_count_is_unknown() -> None:
    weights = {key: value for key, value in WEIGHTS.items() if key != "trips"}
    text = LOOP.replace("s = Neg(x)", "s = Neg(x) trips = Size(x)")
    model = build(text, weights)
    (loop,) = find_loops(model, graph_labels(model))
    assert loop.iterations is None


def test_operators_of_bodies_count_once_and_apart() -> None:
    counts = {c.operator: c for c in count_operators(build(LOOP, WEIGHTS))}
    assert (counts["Neg"].top_level, counts["Neg"].in_bodies) == (1, 1)
    assert (counts["Gather"].top_level, counts["Gather"].in_bodies) == (0, 3)
    assert sum(count.total for count in counts.values()) == 9


def test_functions_are_counted_with_the_graphs_inside_them() -> None:
    model = build("""
        <ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        main (bool c, float[2] x) => (float[2] y) { y = own.pick (c, x) }
        <domain: "own", opset_import: ["" : 20]>
        pick (c, v) => (w) {
            w = If (c) <
                then_branch = yes () => (float[2] p) <float[2] k = {1, 2}> { p = Add(v, k) },
                else_branch = no () => (float[2] q) { q = Neg(v) }
            >
        }""")
    assert count_functions(model) == {"own.pick": 3}
    counts = {c.operator: c for c in count_operators(model)}
    assert (counts["own.pick"].top_level, counts["Add"].in_functions) == (1, 1)
    assert [(s.name, s.tensor.nbytes) for s in iter_stored(model)] == [("k", 8)]


def test_numbers_in_constant_nodes_count_as_the_tensors_they_are() -> None:
    model = build("""
        main (float[2] x) => (float[2] y, int64[3] z, float[] s, int64[] t) {
            a = Constant <value_floats = [1.0, 2.0]> ()
            z = Constant <value_ints = [1, 2, 3]> ()
            s = Constant <value_float = 1.0> ()
            t = Constant <value_int = 1> ()
            y = Add(x, a)
        }""")
    assert [s.tensor.nbytes for s in iter_stored(model)] == [8, 24, 4, 8]
    assert all(s.value is not None for s in iter_stored(model))
    assert stored_bytes(model) == 44


def test_numbers_of_other_operators_are_no_tensors() -> None:
    model = build("main (float[2,3] x) => (float[3,2] y) { y = Transpose <perm = [1, 0]> (x) }")
    assert stored_bytes(model) == 0


def test_annotations_of_every_holder_are_counted() -> None:
    model = build(LOOP, WEIGHTS)
    assert annotation_bytes(model) == 0
    body = model.graph.node("layers").attributes["body"].as_graph()
    body[0].metadata_props["trace"] = "at ü"  # 5 + 5 bytes as UTF-8
    body[1].outputs[0].metadata_props["k"] = "v"  # 2
    model.graph.initializers["stack"].doc_string = "abc"  # 3
    model.doc_string = "d"  # 1
    model.graph.inputs[0].metadata_props["k"] = "v"  # 2
    assert annotation_bytes(model) == 18


def test_a_depth_with_a_lower_limit_is_still_the_input_that_sets_it() -> None:
    model = build("""
        main (float[2] x0, int64 most) => (float[2] y) <int64 most = {5}, int64 one = {1}> {
            trips = Max (most, one)
            y = Loop (trips, , x0) <body = layer (int64 i, bool go, float[2] a)
                => (bool on, float[2] b) { on = Identity (go) b = Add (a, a) }>
        }
    """)
    (loop,) = find_loops(model, graph_labels(model))
    assert (loop.iterations, loop.depth_input) == (5, "most")
