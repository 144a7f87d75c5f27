"""The measuring core's own parts, run in Node."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from exporter.packages import find_node
from exporter.runtimes.web_folder import web_folder


def _evaluate(expression: str) -> Any:
    """Evaluate JavaScript with ``tensors`` and ``memory`` imported."""
    node = find_node()
    assert node is not None, "Node 20 or later is needed, see CONTRIBUTING.md"
    folder = (web_folder() / "measure").as_uri()
    script = f"""
import * as tensors from '{folder}/tensors.js';
import * as memory from '{folder}/memory.js';
class Tensor {{ constructor(type, data, dims) {{ Object.assign(this, {{ type, data, dims }}); }} }}
const floats = (...values) => new Tensor('float32', Float32Array.from(values), [values.length]);
const check = (expected, actual) => {{
  const outputs = new tensors.OutputCheck();
  expected.forEach((one, index) => outputs.add(one, actual[index]));
  return outputs.verdict(0.1);
}};
console.log(JSON.stringify(await (async () => {expression})()));
"""
    command = [str(node), "--input-type=module", "--eval", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_error_of_an_output_is_over_all_cases_and_the_worst_output_counts() -> None:
    found = _evaluate("""check(
        [{a: floats(3), b: floats(1)}, {a: floats(0, 4), b: floats(1)}],
        [{a: floats(3), b: floats(1)}, {a: floats(0, 4.25), b: floats(1)}])""")
    # a: 0.25 of the length of (3, 0, 4), which is 5; b: nothing.
    expected = {"relative_error": 0.05, "max_abs_error": 0.25, "tolerance": 0.1}
    assert found == {"status": "passed", **expected}


def test_the_error_of_whole_numbers_is_the_share_that_differs() -> None:
    found = _evaluate("""(() => {
      const ids = (...values) => new Tensor('int64', BigInt64Array.from(values, BigInt), [2]);
      const bits = (...values) => new Tensor('bool', Uint8Array.from(values), [2]);
      return [
        check([{a: ids(1, 2)}, {a: ids(3, 4)}], [{a: ids(1, 9000)}, {a: ids(3, 4)}]),
        check([{a: bits(1, 0)}], [{a: bits(1, 0)}]),
        check([{a: ids(1, 2), b: floats(1)}], [{a: ids(1, 2), b: floats(1.05)}]),
        check([{a: ids(1, 2)}], [{a: floats(1, 2)}]),
      ].map((one) => [one.status, one.relative_error, one.max_abs_error]);
    })()""")
    assert found == [
        ["failed", 0.25, 0],
        ["passed", 0, 0],
        ["passed", pytest.approx(0.05), pytest.approx(0.05)],
        ["passed", 0, 0],
    ]


def test_what_is_no_number_on_one_side_or_missing_or_of_another_shape_fails() -> None:
    failed = {"status": "failed", "relative_error": None, "max_abs_error": None, "tolerance": 0.1}
    for actual in (
        "{a: floats(NaN, 1)}",
        "{}",
        "{a: floats(1)}",
        "{a: floats(1, 1), b: floats(1)}",
    ):
        assert _evaluate(f"check([{{a: floats(1, 1)}}], [{actual}])") == failed
    same = _evaluate("check([{a: floats(NaN, Infinity, 1)}], [{a: floats(NaN, Infinity, 1)}])")
    assert (same["status"], same["relative_error"]) == ("passed", 0)
    assert _evaluate("check([], [])")["status"] == "failed"


def test_drawn_inputs_have_their_shape_type_and_range_and_are_the_same_again() -> None:
    found = _evaluate("""(() => {
      const specs = [
        {name: 'ids', dtype: 'int64', shape: ['batch', 50], role: 'ids', upper: 7},
        {name: 'mask', dtype: 'int32', shape: ['batch', 50], role: 'mask'},
        {name: 'x', dtype: 'float32', shape: ['batch'], role: 'values'},
        {name: 'extra', dtype: 'int64', shape: [1], role: 'values', optional: true},
      ];
      const draw = () => Object.values(tensors.drawFeeds(specs, {batch: 2}, Tensor)).map(
        ({type, data, dims}) => [type, data.constructor.name, dims, [...data].map(Number)]);
      return [draw(), draw()];
    })()""")
    (ids, mask, x), again = found
    assert again == [ids, mask, x]
    assert ids[:3] == ["int64", "BigInt64Array", [2, 50]]
    assert set(ids[3]) == set(range(7))
    assert mask == ["int32", "Int32Array", [2, 50], [1] * 100]
    assert x[:3] == ["float32", "Float32Array", [2]]
    assert all(-1 <= value < 1 for value in x[3])


def test_a_tensor_survives_its_message() -> None:
    found = _evaluate("""(() => {
      const data = BigInt64Array.from([1n, -2n, 2n ** 62n]);
      const packed = tensors.encodeTensor(new Tensor('int64', data, [3, 1]));
      const back = tensors.decodeTensor(packed, Tensor);
      return [packed.dtype, packed.shape, back.type, back.dims, [...back.data].map(String)];
    })()""")
    assert found == ["int64", [3, 1], "int64", [3, 1], ["1", "-2", str(2**62)]]


def test_the_heap_is_watched_and_may_claim_no_more_than_told() -> None:
    found = _evaluate("""(() => {
      const before = memory.heapBytes();
      memory.watchMemory(8 * 65536);
      const heap = new WebAssembly.Memory({initial: 2, maximum: 65536, shared: true});
      const first = memory.heapBytes();
      heap.grow(6);
      let refused = false;
      try { heap.grow(1); } catch { refused = true; }
      return [before, first, memory.heapBytes(), refused, heap instanceof WebAssembly.Memory];
    })()""")
    assert found == [None, 2 * 65536, 8 * 65536, True, True]
