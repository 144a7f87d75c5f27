from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from exporter.errors import ExportError
from exporter.inputs import InputSpec, ModelInputs
from exporter.onnx_files import write_model
from exporter.runtimes.cpu import CpuSession

INPUTS = ModelInputs((InputSpec("ids", "int64", ("n",), "ids", 4),), {"n": 3})


@pytest.fixture
def lookup(tmp_path: Path) -> Path:
    """A graph that looks four numbers up and gives them and their negatives."""
    model = ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 20]>
        main (int64[n] ids) => (float[n] y, float[n] z)
        <float[4] table = {1, 2, 3, 4}> { y = Gather(table, ids)  z = Neg(y) }""")
    write_model(model, tmp_path / "lookup.onnx")
    return tmp_path / "lookup.onnx"


def test_outputs_come_by_name_in_the_graphs_order(lookup: Path) -> None:
    session = CpuSession(lookup, threads=1)
    outputs = session.run({"ids": np.array([3, 0])})
    assert list(outputs) == ["y", "z"] == list(session.output_names)
    assert outputs["y"].tolist() == [4.0, 1.0]
    assert outputs["z"].tolist() == [-4.0, -1.0]
    assert session.load_ms > 0


def test_optimizations_can_be_switched_off(lookup: Path) -> None:
    outputs = CpuSession(lookup, optimize=False).run({"ids": np.array([2])})
    assert outputs["z"].tolist() == [-3.0]


def test_feeds_are_checked_where_the_inputs_are_known(lookup: Path) -> None:
    checked = CpuSession(lookup, inputs=INPUTS)
    with pytest.raises(ExportError, match="input 'ids' holds id -1, outside the valid range"):
        checked.run({"ids": np.array([-1])})
    with pytest.raises(ExportError, match="has n 4, beyond the model's maximum 3"):
        checked.run({"ids": np.zeros(4, np.int64)})


@pytest.mark.parametrize(
    "feeds", [{"ids": np.array([9])}, {}, {"ids": np.array([1.0])}, {"other": np.array([1])}]
)
def test_a_failing_run_is_one_line_that_names_the_file(
    lookup: Path, feeds: dict[str, np.ndarray]
) -> None:
    with pytest.raises(ExportError, match=r"lookup\.onnx failed to run: ") as raised:
        CpuSession(lookup).run(feeds)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"not a model", None])
def test_a_file_that_is_no_model_is_one_line_that_names_it(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "bad.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ExportError, match=r"onnxruntime cannot load .*bad\.onnx: .") as raised:
        CpuSession(path)
    assert "\n" not in str(raised.value)
