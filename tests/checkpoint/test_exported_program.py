from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from exporter.checkpoint import load_checkpoint
from exporter.checkpoint.program_archive import check_archive
from exporter.errors import CheckpointError
from exporter.inputs import InputSpec
from tests.checkpoint.helpers import outputs, randomize, refusal
from tests.checkpoint.test_pickled import CreatesAFile


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.layer = nn.Linear(8, 8)
        randomize(self)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.layer(self.layer(self.words(input_ids)))
        return x if attention_mask is None else x * attention_mask[..., None]


def feeds(rows: int = 2, length: int = 4) -> dict[str, Tensor]:
    ids = torch.arange(rows * length).reshape(rows, length)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with one positional and one keyword input, both dynamic."""
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    sizes = {0: torch.export.Dim("batch", min=1), 1: torch.export.Dim("width", min=1, max=64)}
    given = feeds()
    program = torch.export.export(
        Tiny().eval(),
        (given["input_ids"],),
        {"attention_mask": given["attention_mask"]},
        dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
    )
    torch.export.save(program, path)
    return path


def test_inputs_come_from_the_programs_own_signature(dynamic: Path) -> None:
    loaded = load_checkpoint(dynamic)
    shape = ("batch", "sequence")
    assert loaded.inputs.specs == (
        InputSpec("input_ids", "int64", shape, "ids", 50),
        InputSpec("attention_mask", "int64", shape, "mask"),
    )
    assert loaded.inputs.limits == {"sequence": 64}
    assert loaded.source.kind == "exported_program"
    assert loaded.program is not None
    assert not any("fixed" in notice for notice in loaded.notices)


def test_the_module_takes_its_inputs_by_name_at_any_size(dynamic: Path) -> None:
    loaded = load_checkpoint(dynamic)
    for given in (feeds(1, 1), feeds(3, 9)):
        assert torch.equal(outputs(loaded.module, **given)[0], Tiny()(**given))


def test_a_layer_called_twice_is_held_once(dynamic: Path) -> None:
    sharing = load_checkpoint(dynamic).sharing
    assert sharing.unique_bytes == 4 * (50 * 8 + 8 * 8 + 8)


def test_fixed_sizes_stay_fixed_and_are_said(tmp_path: Path) -> None:
    program = torch.export.export(Tiny().eval(), (feeds()["input_ids"],))
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = load_checkpoint(tmp_path / "model.pt2")
    assert loaded.inputs.specs == (InputSpec("input_ids", "int64", (2, 4), "ids", 50),)
    assert any("sizes are fixed in the program: input_ids[2,4]" in n for n in loaded.notices)
    got = outputs(loaded.module, input_ids=feeds()["input_ids"])
    assert torch.equal(got[0], Tiny()(feeds()["input_ids"]))


def test_sizes_computed_from_others_are_refused(tmp_path: Path) -> None:
    class Double(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.cat([x, x]) + y

    half = torch.export.Dim("half")
    sizes = {"x": {0: half}, "y": {0: 2 * half}}
    given = (torch.ones(3), torch.ones(6))
    program = torch.export.export(Double(), given, dynamic_shapes=sizes)
    torch.export.save(program, tmp_path / "model.pt2")
    assert "has a size computed from another one (2*" in refusal(tmp_path / "model.pt2")


def test_half_precision_is_fixed_in_a_program(tmp_path: Path) -> None:
    program = torch.export.export(Tiny().bfloat16().eval(), (feeds()["input_ids"],))
    torch.export.save(program, tmp_path / "model.pt2")
    assert "computes in bfloat16" in refusal(tmp_path / "model.pt2")


def test_other_inputs_than_the_programs_are_refused(dynamic: Path) -> None:
    assert "fixes its own inputs (input_ids, attention_mask)" in refusal(
        dynamic, inputs=["input_ids"]
    )
    assert load_checkpoint(dynamic, inputs=["attention_mask", "input_ids"]).program is not None


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return target


def test_sample_inputs_that_would_run_code_are_refused(dynamic: Path, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(((CreatesAFile(tmp_path / "proof"),), {}), buffer)

    def change(name: str, data: bytes) -> bytes:
        return buffer.getvalue() if "sample_inputs" in name else data

    path = rewrite(dynamic, tmp_path / "evil.pt2", change)
    message = refusal(path)
    assert "holds Python objects" in message and "--trust-pickle" in message
    assert not (tmp_path / "proof").exists()
    with suppress(CheckpointError):  # what becomes of the trusted file is its own affair
        load_checkpoint(path, trust_pickle=True)
    assert (tmp_path / "proof").exists()  # so the check is what kept it away


def edit_json(part: str, edit: Callable[[Any], None]) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        if part not in name:
            return data
        values = json.loads(data)
        edit(values)
        return json.dumps(values).encode()

    return change


def first_expression(value: Any) -> Any:
    """Return the first dictionary with an ``expr_str``, depth first."""
    if isinstance(value, dict):
        if value.get("expr_str"):
            return value
        value = list(value.values())
    found = (first_expression(v) for v in value) if isinstance(value, list) else iter(())
    return next((f for f in found if f is not None), None)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "sympify('1')",
        "Add('open(1)', 1)",
        "s0.subs",
        "(lambda: 1)()",
        "[s for s in (1,)]",
        "s0 +",
    ],
)
def test_size_expressions_that_are_not_arithmetic_are_refused(
    dynamic: Path, tmp_path: Path, expression: str
) -> None:
    def edit(values: Any) -> None:
        first_expression(values)["expr_str"] = expression

    path = rewrite(dynamic, tmp_path / "evil.pt2", edit_json("models/model.json", edit))
    assert "holds the expression" in refusal(path)


def test_arithmetic_of_sizes_passes(dynamic: Path, tmp_path: Path) -> None:
    def edit(values: Any) -> None:
        first_expression(values)["expr_str"] = "Add(Mul(Integer(2), Symbol('s0', integer=True)), 1)"

    check_archive(rewrite(dynamic, tmp_path / "fine.pt2", edit_json("model.json", edit)))


def test_pickled_weights_and_compiled_code_are_refused(dynamic: Path, tmp_path: Path) -> None:
    def edit(values: Any) -> None:
        next(iter(values["config"].values()))["use_pickle"] = True

    path = rewrite(dynamic, tmp_path / "pickled.pt2", edit_json("weights_config", edit))
    assert "holds Python objects (weight_" in refusal(path)
    path = rewrite(dynamic, tmp_path / "compiled.pt2", lambda _, data: data)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/data/aotinductor/model/x.so", b"")
    assert "holds compiled code" in refusal(path)


def test_a_name_held_twice_is_refused(dynamic: Path, tmp_path: Path) -> None:
    path = rewrite(dynamic, tmp_path / "twice.pt2", lambda _, data: data)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning):
        archive.writestr(archive.namelist()[0], b"")
    with pytest.raises(CheckpointError, match="twice"):
        check_archive(path)


def test_an_unreadable_program_says_which_torch_tried(dynamic: Path, tmp_path: Path) -> None:
    def edit(values: Any) -> None:
        del values["graph_module"]["graph"]["nodes"]

    path = rewrite(dynamic, tmp_path / "other.pt2", edit_json("models/model.json", edit))
    assert f"cannot be read by torch {torch.__version__}" in refusal(path)
