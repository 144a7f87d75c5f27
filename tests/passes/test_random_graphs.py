"""Random small graphs full of shared, equal, transposed and aliased weights."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.helpers import Feeds, assert_pass_preserves, build
from tests.passes.sharing import SHARING_PASSES, restore_sharing

N = 6  # all matrices are N × N, large enough for twins to be worth a node
BASES = np.random.default_rng(0).standard_normal((3, N, N)).astype(np.float32)

UNARY = ["Identity(%s)", "Transpose<perm = [1, 0]>(%s)", "Neg(%s)", "Reshape(%s, shape)"]
BINARY = ["MatMul(%s, %s)", "Add(%s, %s)", "Gemm<transB = 1>(%s, %s)", "Gemm<transA = 1>(%s, %s)"]
BRANCHED = """If(c) <
    then_branch = t{n} () => (float[6,6] p{n}) <float[2] S = {{1, {k}}}> {{
        q{n} = {left}  s{n} = ReduceSum(S)  p{n} = Add(q{n}, s{n}) }},
    else_branch = e{n} () => (float[6,6] r{n}) <float[2] S = {{1, 2}}> {{
        u{n} = {right}  s{n} = ReduceMax(S)  r{n} = Add(u{n}, s{n}) }} >"""


@dataclass
class Drawn:
    text: str
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def model(self) -> ir.Model:
        return build(self.text, self.weights)


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    weights: dict[str, np.ndarray] = {"shape": np.array([N, N]), "rows": np.arange(N)[::-1].copy()}
    for index in range(draw(st.integers(1, 5))):
        base = BASES[draw(st.integers(0, 2))]
        weights[f"W{index}"] = draw(
            st.sampled_from([base, base.copy(), np.ascontiguousarray(base.T), base * -0.0])
        )
    tables = [name for name in weights if name.startswith("W")]
    values, lines = ["x", *tables], []
    for n in range(draw(st.integers(2, 10))):
        pick = st.sampled_from(values)
        kind = draw(st.sampled_from(["unary", "binary", "gather", "constant", "branch"]))
        if kind == "unary":
            line = draw(st.sampled_from(UNARY)) % draw(pick)
        elif kind == "binary":
            line = draw(st.sampled_from(BINARY)) % (draw(pick), draw(pick))
        elif kind == "gather":
            line = f"Gather({draw(pick)}, rows)"
        elif kind == "constant":
            numbers = ", ".join(str(float(i)) for i in range(N * N))
            line = f"Constant <value = float[{N},{N}] {{{numbers}}}> ()"
        else:
            left, right = (draw(st.sampled_from(UNARY[:2])) % draw(pick) for _ in range(2))
            line = BRANCHED.format(n=n, left=left, right=right, k=draw(st.integers(1, 2)))
        lines.append(f"v{n} = {line}")
        values.append(f"v{n}")
    produced = [value for value in values if value.startswith("v")]
    outputs = draw(
        st.lists(st.sampled_from(produced + tables), min_size=1, max_size=3, unique=True)
    )
    overridable = draw(st.lists(st.sampled_from(tables), max_size=1))
    matrix = f"float[{N},{N}]"
    inputs = ", ".join(["bool c", *(f"{matrix} {name}" for name in ["x", *overridable])])
    results = ", ".join(f"{matrix} {name}" for name in outputs if name not in overridable)
    if not results:
        results = f"{matrix} {produced[-1]}"
    return Drawn(f"g ({inputs}) => ({results}) {{ {' '.join(lines)} }}", weights)


def feeds() -> list[Feeds]:
    x = np.random.default_rng(1).standard_normal((N, N)).astype(np.float32)
    return [{"x": x, "c": np.array(flag)} for flag in (True, False)]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(graphs())
def test_each_pass_keeps_outputs_bit_for_bit_and_stores_no_more(drawn: Drawn) -> None:
    for make_pass in SHARING_PASSES:
        assert_pass_preserves(make_pass, drawn.model(), *feeds(), modified=None)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs())
def test_all_passes_together_do_too_and_come_to_rest(drawn: Drawn) -> None:
    assert_pass_preserves(restore_sharing, drawn.model(), *feeds(), modified=None)
