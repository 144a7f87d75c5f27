"""The parts of the block detector: order and equality of nodes, and the proof of a run."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from exporter.passes.blocks.annotations import Annotations
from exporter.passes.blocks.detect import find_runs
from exporter.passes.blocks.graph_index import GraphIndex
from exporter.passes.blocks.policy import RollPolicy
from exporter.passes.blocks.verify import BlockRun, Carried, Inner, Outer, verify_blocks
from tests.passes.roll_graphs import LAYER, chain, matrix

NAMES = ["h", "g", "x"]


def places(index: GraphIndex, *blocks: str) -> list[list[int]]:
    """Positions of the nodes that compute the named values."""
    by_name = {str(node.outputs[0].name): place for place, node in enumerate(index.nodes)}
    return [[by_name[name] for name in block.split()] for block in blocks]


def verified(model: ir.Model, *blocks: str) -> BlockRun | str:
    index = GraphIndex(model.graph)
    result = verify_blocks(index, places(index, *blocks), Annotations(model))
    return result if isinstance(result, (BlockRun, str)) else result.reason


def reordered(model: ir.Model) -> ir.Model:
    """The same graph with independent nodes in another order."""
    nodes = list(model.graph)
    relu = next(node for node in nodes if node.op_type == "Relu")
    free = [node for node in nodes if node.op_type == "Neg"]
    model.graph.remove(free)
    model.graph.insert_before(relu, free)
    return model


def test_the_order_of_nodes_does_not_depend_on_the_file() -> None:
    before = "a = Neg(x0)  b = Neg(a)"
    after = "s = Add(x3, b)"
    one = chain([LAYER] * 3, before=before, after=after, outputs="float[B,4] s")
    other = reordered(chain([LAYER] * 3, before=before, after=after, outputs="float[B,4] s"))
    assert [n.outputs[0].name for n in one.graph] != [n.outputs[0].name for n in other.graph]
    orders = [[n.outputs[0].name for n in GraphIndex(m.graph).nodes] for m in (one, other)]
    assert orders[0] == orders[1]


def test_equal_signatures_mean_equal_operators_and_attributes() -> None:
    layers = [
        "a{i} = Softmax<axis = 0>(x{p})  x{i} = Neg(a{i})",
        "a{i} = Softmax<axis = 0>(x{p})  x{i} = Neg(a{i})",
        "a{i} = Softmax<axis = 1>(x{p})  x{i} = Neg(a{i})",
        "a{i} = LeakyRelu<alpha = 0.0>(x{p})  x{i} = Neg(a{i})",
        "a{i} = LeakyRelu<alpha = -0.0>(x{p})  x{i} = Neg(a{i})",
        "a{i} = RandomUniformLike<seed = 1.0>(x{p})  x{i} = Neg(a{i})",
        "a{i} = RandomUniformLike<seed = 1.0>(x{p})  x{i} = Neg(a{i})",
    ]
    index = GraphIndex(chain(layers).graph)
    (nodes,) = places(index, " ".join(f"a{i}" for i in range(1, 8)))
    signatures = [index.signature[node] for node in nodes]
    assert signatures[0] == signatures[1]
    assert len(set(signatures)) == 6
    (ends,) = places(index, "x1 x2 x7")
    assert len({index.signature[node] for node in ends}) == 1


def test_a_node_depends_on_what_its_branches_capture() -> None:
    branch = (
        "y = If(c) <then_branch = t () => (float[B,4] to) { to = Neg(g1) },"
        "else_branch = e () => (float[B,4] eo) { eo = Neg(x2) }>"
    )
    model = chain([LAYER] * 2, after=branch, inputs="float[B,4] x0, bool c", outputs="float[B,4] y")
    index = GraphIndex(model.graph)
    ((branching, g1, x2),) = places(index, "y g1 x2")
    assert index.ancestors[branching] >> x2 & 1
    assert branching in index.users[index.nodes[g1].outputs[0]]


def test_a_proven_run_knows_where_each_input_comes_from() -> None:
    run = verified(chain([LAYER] * 3), "h1 g1 x1", "h2 g2 x2", "h3 g3 x3")
    assert isinstance(run, BlockRun)
    weight = run.shared[0]
    assert weight.name == "W"
    assert run.sources == (
        (Carried(0), Outer(weight)),
        (Inner(0, 0),),
        (Inner(1, 0), Carried(0)),
    )
    (carried,) = run.carried
    assert (carried.initial.name, carried.column, carried.output) == ("x0", 2, 0)


def test_every_false_claim_is_contradicted() -> None:
    model = chain([LAYER] * 3)
    assert "overlap" in str(verified(model, "h1 g1 x1", "h1 g2 x2"))
    assert "differ" in str(verified(model, "h1 g1 x1", "g2 h2 x2"))
    # x1 lies between, and leads back in.
    assert "lies between" in str(verified(model, "h1 g1", "h2 g2"))
    swapped_layer = LAYER.replace("Add(g{i}, x{p})", "Add(x{p}, g{i})")
    swapped = chain([LAYER, swapped_layer])
    assert "not alike" in str(verified(swapped, "h1 g1 x1", "h2 g2 x2"))
    other = chain([LAYER, LAYER.replace("W", "V")], {"W": matrix(0), "V": matrix(1)[:, :4]})
    assert isinstance(verified(other, "h1 g1 x1", "h2 g2 x2"), BlockRun)  # W and V stacked
    wider = chain(
        ["h{i} = MatMul(x{p}, W)", "h{i} = MatMul(h1, V)  x{i} = Relu(h{i})"],
        {"W": matrix(0), "V": matrix(1)[:, :3]},
        outputs="float[B,3] x2",
    )
    assert "not alike" in str(verified(wider, "h1", "h2"))


def test_an_omitted_input_must_be_omitted_in_all_blocks() -> None:
    clip = "h{i} = MatMul(x{p}, W)  x{i} = Clip(h{i}, , top)"
    low = "h{i} = MatMul(x{p}, W)  x{i} = Clip(h{i}, top, top)"
    weights = {"W": matrix(0), "top": np.array(1, np.float32)}
    assert isinstance(verified(chain([clip] * 2, weights), "h1 x1", "h2 x2"), BlockRun)
    assert "omitted" in str(verified(chain([clip, low], weights), "h1 x1", "h2 x2"))


def test_runs_are_found_around_the_largest_constant_first() -> None:
    weights = {"W": matrix(0), "V": matrix(1)[:1]}
    small = "h{i} = Add(x{p}, V)  g{i} = Relu(h{i})  x{i} = Mul(g{i}, x{p})"
    model = chain([small] * 40 + [LAYER] * 3, weights)
    found = find_runs(GraphIndex(model.graph), Annotations(model), RollPolicy())
    assert [run.count for run in found.runs] == [3]
