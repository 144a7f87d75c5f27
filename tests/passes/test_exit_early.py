"""A loop that ends once every row has its answer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from exporter.early_exit import RuleName
from exporter.errors import PassError
from exporter.passes.exit_early import ExitEarlyPass
from exporter.passes.make_depth_elastic import MakeDepthElasticPass
from tests.passes.helpers import assert_same_bits, run
from tests.passes.roll_graphs import LAYER, WEIGHTS, attempt, chain, matrix, vector

LAYERS = 4
HEAD = "logits = MatMul(x4, H)"
HEAD_WEIGHTS = WEIGHTS | {"H": 3 * matrix(7)[:, :3]}
ROWS = {"x0": np.random.default_rng(5).standard_normal((6, 4)).astype(np.float32)}


def classifier(layers: int = LAYERS, **changes: str) -> ir.Model:
    """Four layers and a head of three labels, rolled."""
    head = HEAD.replace("x4", f"x{layers}")
    text = {"after": head, "outputs": "float[B,3] logits"} | changes
    return attempt(chain([LAYER] * layers, HEAD_WEIGHTS, **text))[0]  # type: ignore[arg-type]


def scaled_classifier(layers: int = LAYERS) -> ir.Model:
    """The same with a constant of its own in each layer, stacked."""
    scaled = "h{i} = MatMul(x{p}, W)  s{i} = Mul(h{i}, c{i})  x{i} = Add(s{i}, x{p})"
    weights = HEAD_WEIGHTS | {f"c{i}": vector(i) for i in range(1, layers + 1)}
    head = HEAD.replace("x4", f"x{layers}")
    return attempt(chain([scaled] * layers, weights, after=head, outputs="float[B,3] logits"))[0]


def encoder() -> ir.Model:
    """Four layers over tokens, whose padding is 0 in an input, rolled."""
    return attempt(
        chain(
            [LAYER] * LAYERS, inputs="float[B,S,4] x0, int64[B,S] mask", outputs="float[B,S,4] x4"
        )
    )[0]


def leaving(model: ir.Model, rule: RuleName, mask: str | None = None) -> ir.Model:
    clone = ir.from_proto(ir.to_proto(model))
    result = ExitEarlyPass(rule, mask)(clone)
    assert result.modified
    onnx.checker.check_model(ir.to_proto(clone), full_check=True)
    return clone


def threshold(value: float) -> dict[str, np.ndarray]:
    return {"exit_threshold": np.array(value, np.float32)}


def number(**values: int) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in values.items()}


def logits_by_pass() -> list[np.ndarray]:
    return [
        run(
            chain(
                [LAYER] * n,
                HEAD_WEIGHTS,
                after=HEAD.replace("x4", f"x{n}"),
                outputs="float[B,3] logits",
            ),
            ROWS,
        )[0]
        for n in range(1, LAYERS + 1)
    ]


def confidences() -> np.ndarray:
    """Largest probability after each pass: ``[passes, rows]``."""
    logits = np.stack(logits_by_pass()).astype(np.float64)
    chances = np.exp(logits - logits.max(-1, keepdims=True))
    return (chances / chances.sum(-1, keepdims=True)).max(-1)


def between(values: np.ndarray) -> list[float]:
    """Thresholds far enough from every value, so that rounding decides nothing."""
    ordered = np.sort(values.ravel())
    wide = np.diff(ordered) > 1e-4
    return ((ordered[:-1] + ordered[1:]) / 2)[wide].tolist()


def first_true(fires: np.ndarray) -> np.ndarray:
    fires = fires.copy()
    fires[-1] = True
    return fires.argmax(axis=0) + 1


def test_by_default_outputs_keep_every_bit_and_all_layers_are_used() -> None:
    for rule in ("confidence", "patience"):
        logits, used = run(leaving(classifier(), rule), ROWS)
        assert_same_bits([logits], run(classifier(), ROWS))
        assert used.dtype == np.int64 and used.tolist() == [LAYERS] * 6


def test_settings_are_optional_inputs_and_the_last_output_counts_layers() -> None:
    model = leaving(classifier(), "confidence")
    assert [v.name for v in model.graph.inputs] == [
        "x0", "exit_threshold", "min_layers", "max_layers",
    ]  # fmt: skip
    defaults = {
        str(v.name): v.const_value.numpy().item()
        for v in model.graph.inputs[1:]
        if v.const_value is not None
    }
    assert defaults == {"exit_threshold": 1.0, "min_layers": 1, "max_layers": LAYERS}
    assert [v.name for v in model.graph.outputs] == ["logits", "layers_used"]
    patient = leaving(classifier(), "patience")
    assert [v.name for v in patient.graph.inputs][1] == "patience"


def test_each_row_leaves_at_the_first_confident_pass_with_that_answer() -> None:
    model, by_pass, sure = leaving(classifier(), "confidence"), logits_by_pass(), confidences()
    seen: set[int] = set()
    for limit in between(sure)[::2]:
        logits, used = run(model, ROWS | threshold(limit))
        assert used.tolist() == first_true(sure > limit).tolist()
        assert_same_bits([logits], [np.stack([by_pass[n - 1][row] for row, n in enumerate(used)])])
        seen.update(used.tolist())
    assert min(seen) == 1 and max(seen) == LAYERS and len(seen) > 2


def test_a_row_gets_in_a_batch_what_it_gets_alone() -> None:
    model = leaving(classifier(), "confidence")
    given = threshold(float(np.median(confidences())))
    logits, used = run(model, ROWS | given)
    for row in range(6):
        alone, used_alone = run(model, {"x0": ROWS["x0"][row : row + 1]} | given)
        assert used_alone[0] == used[row]
        np.testing.assert_allclose(alone[0], logits[row], atol=1e-6)


def test_threshold_0_leaves_at_once_and_1_never() -> None:
    model = leaving(classifier(), "confidence")
    assert run(model, ROWS | threshold(0))[1].tolist() == [1] * 6
    assert run(model, ROWS | threshold(1))[1].tolist() == [LAYERS] * 6
    sure = {"x0": 1e4 * ROWS["x0"]}  # probabilities that round to exactly 1
    assert run(model, sure | threshold(1))[1].tolist() == [LAYERS] * 6


def test_a_threshold_must_be_passed_not_met() -> None:
    model, even = leaving(classifier(), "confidence"), {"x0": np.zeros((1, 4), np.float32)}
    third = np.float32(1) / np.float32(3)
    assert run(model, even | threshold(third))[1].tolist() == [LAYERS]
    assert run(model, even | threshold(np.nextafter(third, np.float32(0))))[1].tolist() == [1]


@pytest.mark.parametrize(
    ("given", "quiet"),
    [
        ({}, 3),
        (threshold(0.9), 0),
        (threshold(0.9) | number(min_layers=3), 2),
        (threshold(0.9) | number(min_layers=3, max_layers=2), 1),
    ],
)
def test_the_head_runs_only_where_it_can_matter(given: dict[str, np.ndarray], quiet: int) -> None:
    model = leaving(classifier(), "confidence")
    passes = next(v for node in model.graph for v in node.outputs if v.name == "quiet_passes")
    passes.type = ir.TensorType(ir.DataType.INT64)
    model.graph.outputs.append(passes)
    assert run(model, ROWS | given)[-1] == quiet


@pytest.mark.parametrize("rule", ["confidence", "patience"])
def test_bounds_of_any_size_take_no_memory(rule: RuleName) -> None:
    model = leaving(classifier(), rule)
    earliest = threshold(0) if rule == "confidence" else number(patience=0)
    bounds = number(min_layers=-(2**63), max_layers=2**63 - 1)
    assert run(model, ROWS | earliest | bounds)[1].tolist() == [1] * 6
    assert run(model, ROWS | number(min_layers=2**63 - 1))[1].tolist() == [LAYERS] * 6


def test_the_loop_ends_with_the_last_open_row() -> None:
    """There are constants for four passes: a fifth would fail."""
    model = leaving(scaled_classifier(), "confidence")
    used = run(model, ROWS | threshold(0) | number(min_layers=LAYERS, max_layers=100))[1]
    assert used.tolist() == [LAYERS] * 6
    with pytest.raises(Exception, match="out of data bounds"):
        run(model, ROWS | threshold(1) | number(max_layers=100))


def test_patience_counts_equal_labels_in_a_row() -> None:
    model = leaving(classifier(), "patience")
    labels = np.stack(logits_by_pass()).argmax(-1)
    streak = np.zeros_like(labels)
    for n in range(1, LAYERS):
        streak[n] = np.where(labels[n] == labels[n - 1], streak[n - 1] + 1, 0)
    assert len(set(streak[-1].tolist())) > 1  # some rows change their label
    for patience in range(LAYERS + 2):
        used = run(model, ROWS | number(patience=patience))[1]
        assert used.tolist() == first_true(streak >= patience).tolist()
    assert run(model, ROWS | number(patience=LAYERS))[1].tolist() == [LAYERS] * 6


@pytest.mark.parametrize(("least", "most", "expected"), [
    (1, 4, 1), (3, 4, 3), (4, 4, 4), (9, 4, 4), (3, 2, 2), (0, 4, 1), (-5, 0, 1), (1, 7, 1),
])  # fmt: skip
def test_bounds_hold_and_the_upper_one_decides(least: int, most: int, expected: int) -> None:
    model, by_pass = leaving(classifier(), "confidence"), logits_by_pass()
    bounds = number(min_layers=least, max_layers=most)
    logits, used = run(model, ROWS | threshold(0) | bounds)
    assert used.tolist() == [expected] * 6
    assert_same_bits([logits], [by_pass[expected - 1]])


def test_more_layers_than_it_has_make_the_model_deeper() -> None:
    logits, used = run(leaving(classifier(), "confidence"), ROWS | number(max_layers=6))
    assert used.tolist() == [6] * 6
    assert_same_bits([logits], run(classifier(6), ROWS))


def test_patience_counts_from_the_first_pass_it_looks_at() -> None:
    used = run(leaving(classifier(), "patience"), ROWS | number(patience=0, min_layers=3))[1]
    assert used.tolist() == [3] * 6
    labels = np.stack(logits_by_pass()).argmax(-1)
    used = run(leaving(classifier(), "patience"), ROWS | number(patience=1, min_layers=2))[1]
    assert used.tolist() == np.where(labels[1] == labels[2], 3, 4).tolist()


@pytest.mark.parametrize("mask", ["mask", None])
def test_change_compares_sums_over_tokens_with_those_of_the_pass_before(mask: str | None) -> None:
    model = leaving(encoder(), "change", mask)
    rng = np.random.default_rng(3)
    tokens = rng.standard_normal((5, 3, 4)).astype(np.float32)
    kept = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0]])
    feeds = {"x0": tokens, "mask": kept}
    weight = kept[..., None] if mask else 1
    by_pass = [
        run(chain([LAYER] * n, inputs="float[B,S,4] x0", outputs=f"float[B,S,4] x{n}"),
            {"x0": tokens})[0]
        for n in range(1, LAYERS + 1)
    ]  # fmt: skip
    sums = [(state * weight).sum(1) for state in by_pass]
    changes = [np.full(5, np.inf)] + [
        np.linalg.norm(b - a, axis=-1) / np.linalg.norm(a, axis=-1) for a, b in pairwise(sums)
    ]
    ratios = np.stack(changes)
    seen: set[int] = set()
    for limit in between(ratios[1:])[::2]:
        state, used = run(model, feeds | threshold(limit))
        assert used.tolist() == first_true(ratios < limit).tolist()
        assert_same_bits([state], [np.stack([by_pass[n - 1][row] for row, n in enumerate(used)])])
        seen.update(used.tolist())
    assert min(seen) == 2 and max(seen) == LAYERS
    assert_same_bits(run(model, feeds)[:1], [by_pass[-1]])
    assert run(model, feeds | threshold(0))[1].tolist() == [LAYERS] * 5


def test_outputs_that_do_not_depend_on_layers_and_several_that_do_are_kept() -> None:
    text = "after = Relu(x0) mean = ReduceMean <keepdims = 0> (logits, one)"
    model = attempt(
        chain([LAYER] * LAYERS, HEAD_WEIGHTS | {"one": np.array([1])}, after=HEAD + text,
              outputs="float[B,4] after, float[B] mean, float[B,3] logits")
    )[0]  # fmt: skip
    early = leaving(model, "confidence")
    assert [v.name for v in early.graph.outputs] == ["after", "mean", "logits", "layers_used"]
    assert_same_bits(run(early, ROWS)[:3], run(model, ROWS))
    after, mean, logits, _ = run(early, ROWS | threshold(float(np.median(confidences()))))
    assert_same_bits([after], [np.maximum(ROWS["x0"], 0)])
    np.testing.assert_allclose(mean, logits.mean(1), rtol=1e-6)


def test_layers_with_constants_of_their_own_can_be_left_early() -> None:
    early = leaving(scaled_classifier(), "confidence")
    assert_same_bits(run(early, ROWS)[:1], run(scaled_classifier(), ROWS))
    assert_same_bits(run(early, ROWS | number(max_layers=2))[:1], run(scaled_classifier(2), ROWS))


def test_weights_of_the_head_are_stored_once_and_outside() -> None:
    model = leaving(classifier(), "confidence")
    large = [name for name, v in model.graph.initializers.items() if v.const_value.size > 8]  # type: ignore[union-attr]
    assert sorted(large) == ["H", "W"]


def test_a_model_that_leaves_early_is_left_alone() -> None:
    assert ExitEarlyPass("confidence")(leaving(classifier(), "confidence")).modified is False


def elastic() -> ir.Model:
    model = classifier()
    MakeDepthElasticPass()(model)
    return model


def old() -> ir.Model:
    model = classifier()
    model.graph.opset_imports[""] = 17
    return model


@pytest.mark.parametrize(
    ("model", "rule", "message"),
    [
        (chain([LAYER] * 3), "confidence", "has 0"),
        (attempt(chain([LAYER] * 3 + [LAYER.replace("W", "V")] * 3,
                       WEIGHTS | {"V": matrix(1)}))[0], "change", "has 2"),
        (elastic(), "confidence", "max_layers is the same"),
        (classifier(outputs="float[B,3] logits, float[B,4] x1"), "confidence", "single layers"),
        (classifier(), "change", "gives logits"),
        (attempt(chain([LAYER] * 3, WEIGHTS | {"h": vector(1)}, inputs="float[B,S,4] x0",
                       after="starts = MatMul(x3, h)", outputs="float[B,S] starts"))[0],
         "change", r"gives starts \[B,S\]"),
        (encoder(), "confidence", r"gives x4 \[B,S,4\]; 'change' is for"),
        (encoder(), "patience", "gives x4"),
        (classifier(after="logits = Unsqueeze(x4, one)", initializers="int64[1] one = {1}",
                    outputs="float[B,1,4] logits"), "confidence", "two labels or more"),
        (classifier(after=HEAD + " total = ReduceSum(logits)",
                    outputs="float[B,3] logits, float[1,1] total"), "patience", "a row per"),
        (classifier(inputs="float[B,4] x0, float patience"), "patience", "'patience'.*is taken"),
        (old(), "confidence", "opset 18, this model is written in 17"),
    ],
    ids=["no loop", "two loops", "elastic", "scanned", "head", "numbers per token",
         "no head", "no labels", "vocabulary",
         "no rows", "name", "opset"],
)  # fmt: skip
def test_what_cannot_be_left_early_is_an_error(
    model: ir.Model, rule: RuleName, message: str
) -> None:
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    with pytest.raises(PassError, match=message):
        ExitEarlyPass(rule).call(model)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before
