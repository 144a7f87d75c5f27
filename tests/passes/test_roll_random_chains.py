"""Random layers in random file orders: always rolled, always to the same bits."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.passes.roll_repeated_blocks import RollRepeatedBlocksPass
from exporter.passes.unroll_loops import UnrollLoopsPass
from tests.passes.helpers import assert_pass_preserves, assert_same_bits, run
from tests.passes.roll_graphs import FEEDS, attempt, chain, matrix, node_count, vector

# Templates of one node: its inputs are values of the layer, the layer before, or outside.
OPERATORS = [
    "MatMul({a}, W)",
    "MatMul({a}, V)",
    "Add({a}, {b})",
    "Sub({a}, {b})",
    "Mul({a}, bias)",
    "Add({a}, c{{i}})",
    "Tanh({a})",
    "Softmax<axis = 1>({a})",
    "Add({a}, outer)",
]


@dataclass
class Drawn:
    layer: str
    layers: int
    streams: int
    order: int

    def model(self) -> ir.Model:
        weights = {"W": matrix(0), "V": matrix(1), "bias": vector(0)}
        weights |= {f"c{i}": vector(i) for i in range(1, self.layers + 1)}
        start = "outer = Neg(x)  " + "  ".join(
            f"s{n}_0 = {op}(outer)"
            for n, op in zip(range(self.streams), ["Tanh", "Abs"], strict=False)
        )
        end = f"y = {'Add' if self.streams > 1 else 'Neg'}(" + ", ".join(
            f"s{n}_{self.layers}" for n in range(self.streams)
        )
        model = chain(
            [self.layer] * self.layers,
            weights,
            before=start,
            after=end + ")",
            inputs="float[B,4] x",
            outputs="float[B,4] y",
        )
        shuffle(model, self.order)
        return model


def shuffle(model: ir.Model, seed: int) -> None:
    """Put the nodes in another topological order."""
    rng = random.Random(seed)
    waiting, done, order = list(model.graph), set(model.graph.inputs), []
    done.update(model.graph.initializers.values())
    while waiting:
        ready = [node for node in waiting if all(value in done for value in node.inputs)]
        node = rng.choice(ready)
        waiting.remove(node)
        order.append(node)
        done.update(node.outputs)
    model.graph.remove(order)
    model.graph.extend(order)


@st.composite
def chains(draw: st.DrawFn, most_streams: int = 2) -> Drawn:
    streams = draw(st.integers(1, most_streams))
    given_values = [f"s{n}_{{p}}" for n in range(streams)]
    # The first node makes the layer depend on the one before, and on a weight.
    nodes, known = ["n0_{i} = MatMul(s0_{p}, W)"], ["n0_{i}"]
    for number in range(1, draw(st.integers(2, 7))):
        template = draw(st.sampled_from(OPERATORS))
        values = known + given_values
        a, b = (draw(st.sampled_from(values)) for _ in range(2))
        nodes.append(f"n{number}_{{i}} = " + template.format(a=a, b=b).replace("c{{i}}", "c{i}"))
        known.append(f"n{number}_{{i}}")
    for stream in range(streams):
        # All that the layer computed flows on, so that none of it is dead.
        parts = known[stream::streams] or known
        total = parts[0]
        for number, part in enumerate(parts[1:]):
            nodes.append(f"t{stream}_{number}_{{i}} = Add({total}, {part})")
            total = f"t{stream}_{number}_{{i}}"
        nodes.append(f"s{stream}_{{i}} = Tanh({total})")
    return Drawn(
        layer="  ".join(nodes),
        layers=draw(st.integers(2, 5)),
        streams=streams,
        order=draw(st.integers(0, 1 << 16)),
    )


FEED = {"x": FEEDS[1]["x0"]}


def roll() -> RollRepeatedBlocksPass:
    return RollRepeatedBlocksPass(max_stacked_bytes_per_iteration=256)


@given(chains())
@settings(max_examples=60, deadline=None)
def test_rolling_a_random_chain_preserves_every_bit(drawn: Drawn) -> None:
    assert_pass_preserves(roll, drawn.model(), FEED, modified=None, may_grow=True)


@given(chains(most_streams=1))
@settings(max_examples=60, deadline=None)
def test_layers_that_give_one_value_to_the_next_all_roll(drawn: Drawn) -> None:
    _, (found, *others), _ = attempt(drawn.model(), limit=256)
    assert others == []
    assert found.blocks == drawn.layers


@given(chains())
@settings(max_examples=60, deadline=None)
def test_the_file_order_does_not_change_what_is_found(drawn: Drawn) -> None:
    one = drawn.model()
    other = drawn.model()
    shuffle(other, drawn.order + 1)
    found = [
        [(r.blocks, r.nodes_per_block, len(r.carried), r.stacked_bytes) for r in runs]
        for _, runs, _ in (attempt(model, limit=256) for model in (one, other))
    ]
    assert found[0] == found[1]


@given(chains())
@settings(max_examples=60, deadline=None)
def test_unrolling_a_rolled_chain_preserves_every_bit_and_node(drawn: Drawn) -> None:
    model = drawn.model()
    rolled, runs, _ = attempt(model, limit=256)
    unrolled = assert_pass_preserves(
        UnrollLoopsPass, rolled, FEED, modified=bool(runs), may_grow=True
    )
    assert node_count(unrolled) == node_count(model)
    assert_same_bits(run(unrolled, FEED), run(model, FEED))
    assert np.isfinite(run(model, FEED)[0]).all()
