from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import exporter.checkpoint
from exporter.checkpoint import detect, load_checkpoint
from exporter.checkpoint.pickles import read_pickle
from exporter.errors import CheckpointError
from exporter.models import save_checkpoint, save_folder
from tests.checkpoint.helpers import refusal, tiny_reference


def test_saved_models_are_told_apart(tmp_path: Path) -> None:
    model = tiny_reference()
    save_checkpoint(model, tmp_path / "checkpoint.bin")
    torch.save(model.state_dict(), tmp_path / "state.any")
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    save_folder(model, tmp_path / "folder")
    assert detect(tmp_path / "checkpoint.bin").kind == "state_dict"
    assert detect(tmp_path / "state.any").kind == "state_dict"
    assert detect(tmp_path / "folder").kind == "reference_folder"
    found = detect(tmp_path / "module.pt")
    assert (found.kind, found.detail) == ("pickled_module", "torch.nn.modules.linear.Linear")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_pickles_of_every_protocol_are_read_without_running_them(
    tmp_path: Path, protocol: int
) -> None:
    path = tmp_path / "value.pkl"
    path.write_bytes(pickle.dumps(Path("x"), protocol))
    assert read_pickle(path).top.startswith("pathlib.")
    assert read_pickle(path).top.endswith("Path")
    path.write_bytes(pickle.dumps({"a": [1, 2]}, protocol))
    assert read_pickle(path).top == "dict"
    path.write_bytes(pickle.dumps([json.JSONDecoder, json.JSONDecoder], protocol))
    assert read_pickle(path).foreign == ("json.decoder.JSONDecoder",)


def test_the_old_file_format_of_torch_is_read_too(tmp_path: Path) -> None:
    old = {"_use_new_zipfile_serialization": False}
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt", **old)
    torch.save({"w": torch.ones(2)}, tmp_path / "state.pt", **old)
    assert detect(tmp_path / "module.pt").detail == "torch.nn.modules.linear.Linear"
    assert detect(tmp_path / "state.pt").kind == "state_dict"
    model = tiny_reference()
    values = {"config": model.config.to_dict(), "state_dict": model.state_dict()}
    torch.save(values, tmp_path / "model.pt", **old)
    assert load_checkpoint(tmp_path / "model.pt").source.kind == "reference"


def test_tensors_are_not_foreign_classes(tmp_path: Path) -> None:
    torch.save(tiny_reference().state_dict(), tmp_path / "state.pt")
    assert read_pickle(tmp_path / "state.pt").foreign == ()


def test_onnx_files_are_told_for_others_to_read(tmp_path: Path) -> None:
    graph = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1] x) => (float[1] y) {y = Abs(x)}'
    )
    onnx.save(graph, tmp_path / "model.onnx")
    onnx.save(graph, tmp_path / "renamed.bin", format="protobuf")
    assert detect(tmp_path / "model.onnx").kind == "onnx"
    assert detect(tmp_path / "renamed.bin").kind == "onnx"
    assert "is an ONNX file" in refusal(tmp_path / "model.onnx")


def test_files_that_are_no_models_say_what_they_are(tmp_path: Path) -> None:
    def write(name: str, data: bytes) -> Path:
        (tmp_path / name).write_bytes(data)
        return tmp_path / name

    assert "does not exist" in refusal(tmp_path / "nothing.pt")
    assert "is empty" in refusal(write("empty.pt", b""))
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    assert "git lfs pull" in refusal(write("pointer.pt", pointer))
    assert "is a text file" in refusal(write("notes.pt", b"hello\nthere\n"))
    assert "TensorFlow .h5" in refusal(write("model.h5", b"\x89HDF\r\n\x1a\n"))
    assert "Flax .msgpack" in refusal(write("flax_model.msgpack", b"\x81\xa6params"))
    assert "is not a model file (wanted:" in refusal(write("noise.pt", bytes(range(200, 256))))
    (tmp_path / "broken.pt").symlink_to("gone.pt")
    assert "is a link to gone.pt, which does not exist" in refusal(tmp_path / "broken.pt")
    save_file({"w": torch.ones(2)}, tmp_path / "model.safetensors")
    assert "with its config.json" in refusal(tmp_path / "model.safetensors")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "")
    assert "not one of torch" in refusal(tmp_path / "other.zip")


def test_truncated_files_are_called_so(tmp_path: Path) -> None:
    save_checkpoint(tiny_reference(), tmp_path / "model.pt")
    whole = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "half.pt").write_bytes(whole[: len(whole) // 2])
    assert "is truncated or damaged" in refusal(tmp_path / "half.pt")
    (tmp_path / "half.pkl").write_bytes(pickle.dumps({"a": 1})[:-3])
    assert "is a damaged pickle" in refusal(tmp_path / "half.pkl")


def test_values_that_hold_no_model_are_named(tmp_path: Path) -> None:
    for value, name in (([1], "list"), ((1, 2), "tuple"), (torch.ones(2), "tensor")):
        torch.save(value, tmp_path / "value.pt")
        assert f"holds a {name}, not a model" in refusal(tmp_path / "value.pt")


def test_torchscript_is_refused_with_what_works(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "script.pt", "w") as archive:
        for name in ("data.pkl", "constants.pkl", "code/x.py", "version"):
            archive.writestr(f"script/{name}", "3")
    message = refusal(tmp_path / "script.pt")
    assert "TorchScript archive" in message and "torch.export.save" in message


def test_folders_without_a_configuration_say_what_they_hold(tmp_path: Path) -> None:
    assert "has no config.json (it is empty)" in refusal(tmp_path)
    for number in range(6):
        (tmp_path / f"file{number}").touch()
    assert "(it holds file0, file1, file2, file3, …)" in refusal(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    assert "TensorFlow SavedModel" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json that is not JSON" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    assert "not a JSON object" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert detect(tmp_path).kind == "huggingface"


def test_the_working_folder_itself_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_folder(tiny_reference(), tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    assert load_checkpoint(Path()).source.name == "mine"


def test_detecting_needs_no_torch(tmp_path: Path) -> None:
    save_checkpoint(tiny_reference(), tmp_path / "model.pt")
    code = (
        "import sys; from pathlib import Path; from exporter.checkpoint import detect;"
        "print(detect(Path(sys.argv[1])).kind, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["state_dict", "False"]


def test_every_public_name_can_be_had() -> None:
    for name in exporter.checkpoint.__all__:
        assert getattr(exporter.checkpoint, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = exporter.checkpoint.nothing_like_it
    assert issubclass(CheckpointError, Exception)
