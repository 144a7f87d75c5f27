"""Numbers at the ends of their ranges: sums of bytes that saturate, weights float16 cannot hold."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from exporter.errors import VerificationError
from exporter.inputs import Feeds, ModelInputs
from exporter.pipeline import verifying
from exporter.runtimes.cpu import CpuSession
from tests.passes.quantize_helpers import noise
from tests.pipeline.sources import export, record, save

# Sums of bytes


class MatMulInteger(OpRun):
    """As x86 CPUs without VNNI compute it: signed weights in pairs, added up in 16 bits."""

    op_domain = ""

    def _run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        a_zero_point: np.ndarray | None = None,
        b_zero_point: np.ndarray | None = None,
    ) -> tuple[np.ndarray]:
        wide, numbers = a.astype(np.int64), b.astype(np.int64)
        pairs = (
            wide[..., 0::2, None] * numbers[0::2] + wide[..., 1::2, None] * numbers[1::2]
        )  # [M, K / 2, N]
        if b.dtype == np.int8:
            pairs = np.clip(pairs, -(2**15), 2**15 - 1)
        zero_a = np.int64(0) if a_zero_point is None else a_zero_point.astype(np.int64)
        zero_b = np.int64(0) if b_zero_point is None else b_zero_point.astype(np.int64)
        total = pairs.sum(axis=-2) - zero_a * numbers.sum(axis=0)
        total -= zero_b * (wide - zero_a).sum(axis=-1, keepdims=True)
        return (total.astype(np.int32),)


class OldCpu(CpuSession):
    """A session on such a CPU."""

    def __init__(self, path: Path, *, inputs: ModelInputs | None = None) -> None:
        super().__init__(path, inputs=inputs)
        self._evaluator = ReferenceEvaluator(onnx.load(path), new_ops=[MatMulInteger])

    def run(self, feeds: Feeds) -> Mapping[str, np.ndarray]:
        """Run by the reference implementation of ONNX, but for integer products."""
        return dict(zip(self.output_names, self._evaluator.run(None, feeds), strict=True))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Weights near plus and minus the maximum, activations near 1, sums over 1024 of them."""
    rng = np.random.default_rng(3)
    signs = rng.choice(np.array([-1, 1]), (1024, 24))
    weight = (signs * rng.uniform(0.9, 1, signs.shape)).astype(np.float32)
    text = """main (float[batch,1024] x) => (float[batch,24] y) {
        s = Mul(x, hundredth) near_one = Exp(s) y = MatMul(near_one, w) }"""
    return save(tmp_path, text, {"w": weight, "hundredth": np.array(0.01, np.float32)})


SAFE = ("int8", "int8-unsigned", "int8-reduced", "int4-int8")


def test_default_sums_are_exact_on_cpus_that_add_pairs_in_16_bits(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = {name: record(export(large, *SAFE, atol=1e-3), name) for name in SAFE}
    monkeypatch.setattr(verifying, "CpuSession", OldCpu)
    old = {name: record(export(large, *SAFE, atol=1e-3), name) for name in SAFE}
    for name in SAFE:
        errors = [one[name]["verification"]["relative_error"] for one in (new, old)]
        assert errors[1] == pytest.approx(errors[0], rel=0.02), name
    assert old["int8"]["verification"]["relative_error"] < 0.05


def test_verification_catches_the_full_range_where_its_sums_saturate(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "CpuSession", OldCpu)
    with pytest.raises(VerificationError, match=r"int8-full is too far .* relative error of 0\."):
        export(large, "int8", "int8-full", atol=1e-3)
    made = export(large, "int8-full", atol=1e-3, keep_failed=True)
    assert record(made, "int8-full")["verification"]["relative_error"] > 0.3


def this_cpu_saturates() -> bool:
    """Whether onnxruntime's signed integer products are wrong on this machine."""
    text = """<ir_version: 10, opset_import: ["" : 20]> main (uint8[8,64] a, int8[64,16] b) =>
        (int32[8,16] y) { y = MatMulInteger(a, b) }"""
    session = onnxruntime.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    feeds = {"a": np.full((8, 64), 255, np.uint8), "b": np.full((64, 16), 127, np.int8)}
    (total,) = session.run(None, feeds)
    return not np.array_equal(total, np.full((8, 16), 64 * 255 * 127))


def test_on_this_cpu_the_default_passes_and_the_full_range_does_where_it_may(large: Path) -> None:
    assert record(export(large, "int8", atol=1e-3), "int8")["verification"]["relative_error"] < 0.05
    if this_cpu_saturates():
        with pytest.raises(VerificationError, match="int8-full is too far"):
            export(large, "int8-full", atol=1e-3)
    else:
        full = record(export(large, "int8-full", atol=1e-3), "int8-full")
        assert full["verification"]["relative_error"] < 0.05


# float16

LOWEST = np.finfo(np.float32).min
MASKED = """main (float[batch,64] x, int64[batch] rows) => (float[batch,64] y, float[batch,64] m) {
    h = MatMul(x, large)
    t = MatMul(h, tiny)
    u = MatMul(t, mixed)
    m = Gather(masks, rows)
    scores = Add(u, m)
    plain = Add(scores, mask)
    y = Softmax(plain)
}"""


@pytest.fixture
def extreme(tmp_path: Path) -> Path:
    mixed = noise(64, 64, seed=2, scale=0.1)
    mixed[:, ::2] = 1e-9
    masks = np.where(np.tril(np.ones((64, 64), bool)), 0, LOWEST / 4).astype(np.float32)
    masks[5] = LOWEST
    weights = {
        "large": noise(64, 64, scale=1e6),
        "tiny": noise(64, 64, seed=1, scale=1e-9),
        "mixed": mixed,
        "masks": masks,
        "mask": np.where(np.arange(64) % 3 == 2, LOWEST / 4, 0).astype(np.float32),
    }
    return save(tmp_path, MASKED, weights)


def test_float16_gives_finite_results_and_names_the_tensors_it_rescaled(extreme: Path) -> None:
    made = export(extreme, "fp32", "fp16", atol=1e-3)
    one = record(made, "fp16")
    assert one["verification"]["verdict"] == "passed"
    assert one["verification"]["relative_error"] < 0.001
    assert one["notices"] == [
        "fp16: large: divided by 2**7 to fit float16",
        "fp16: tiny: divided by 2**-42 to fit float16",
        "fp16: mixed: 2,048 of 4,096 numbers are too small and became zero",
        "fp16: masks: divided by 2**113 to fit float16",
    ]
    session = CpuSession(made.models()["fp16"])
    feeds: dict[str, Any] = {"x": noise(3, 64, seed=9), "rows": np.array([0, 5, 63])}
    for value in session.run(feeds).values():
        assert np.isfinite(value).all()


def test_the_lowest_float_stays_finite_in_every_precision(extreme: Path) -> None:
    names = ("fp16", "int8", "int8-unsigned", "int8-full", "int4-float")
    made = export(extreme, *names, atol=1e-3, tolerances=dict.fromkeys(names, 1.0))
    for name in names:
        feeds = {"x": noise(64, 64, seed=9), "rows": np.arange(64)}
        values = CpuSession(made.models()[name]).run(feeds)
        assert np.isfinite(values["m"]).all(), name
        assert values["m"].min() < 0.9 * LOWEST, name
        assert np.isfinite(values["y"]).all(), name
