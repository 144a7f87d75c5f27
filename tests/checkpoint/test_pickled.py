from __future__ import annotations

import os
import pickle
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from exporter.checkpoint import load_checkpoint
from exporter.errors import CheckpointError
from tests.checkpoint.helpers import (
    example,
    outputs,
    pickle_of_own_class,
    refusal,
    tiny_huggingface,
    tiny_reference,
)

OWN = """
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 8)
        self.layer = nn.Linear(8, 8)
        self.dropout = nn.Dropout(0.5)

    def forward(self, input_ids, attention_mask=None):
        x = self.words(input_ids)
        for _ in range(3):
            x = self.dropout(self.layer(x))
        return x if attention_mask is None else x * attention_mask[..., None]
"""


class CreatesAFile:
    """Its pickle creates the file named by ``target`` wherever it is read."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


def trusting(folder: Path) -> dict[str, Any]:
    return {"trust_pickle": True, "import_paths": [folder / "code"]}


@pytest.mark.parametrize("place", ["alone", "in a state dict", "plain pickle", "old format"])
def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path: Path, place: str) -> None:
    evil, path = CreatesAFile(tmp_path / "proof"), tmp_path / "model.pt"
    if place == "alone":
        torch.save(evil, path)
    elif place == "in a state dict":
        torch.save({"config": {}, "state_dict": {"w": evil}}, path)
    elif place == "plain pickle":
        path.write_bytes(pickle.dumps(evil))
    else:
        torch.save(evil, path, _use_new_zipfile_serialization=False)
    message = refusal(path)
    assert "mkdir" in message
    assert "--trust-pickle" in message
    assert "run" in message and "code from the file" in message
    assert not (tmp_path / "proof").exists()
    refusal(path, trust_pickle=True)
    assert (tmp_path / "proof").exists()  # so the pickle does what it is feared to do


def test_a_malicious_weights_file_of_a_folder_is_refused(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert")
    model.save_pretrained(tmp_path / "folder")
    (tmp_path / "folder" / "model.safetensors").unlink()
    torch.save({"w": CreatesAFile(tmp_path / "proof")}, tmp_path / "folder" / "pytorch_model.bin")
    message = refusal(tmp_path / "folder", trust_pickle=True)
    assert "pytorch_model.bin holds Python objects besides tensors" in message
    assert not (tmp_path / "proof").exists()


def test_a_pickled_module_is_refused_by_the_name_of_its_class(tmp_path: Path) -> None:
    path = pickle_of_own_class(tmp_path, OWN, "Own()", name="own_refused")
    message = refusal(path)
    assert "is a pickled object of class own_refused.Own" in message
    assert "--trust-pickle" in message and "can do anything you can" in message
    assert "own_refused" not in sys.modules


def test_a_trusted_module_is_described_from_its_forward(tmp_path: Path) -> None:
    path = pickle_of_own_class(tmp_path, OWN, "Own()", name="own_trusted")
    before = list(sys.path)
    loaded = load_checkpoint(path, **trusting(tmp_path))
    assert sys.path == before
    assert [(s.name, s.role, s.upper) for s in loaded.inputs.specs] == [
        ("input_ids", "ids", 40),
        ("attention_mask", "mask", None),
    ]
    assert loaded.source.kind == "pickled_module"
    assert loaded.scheme == "all"
    assert loaded.sharing.calls == {"layer": 3}
    assert loaded.output_names == ()
    assert all(member.training for member in loaded.module.modules())


def test_the_saved_mode_is_kept(tmp_path: Path) -> None:
    path = pickle_of_own_class(tmp_path, OWN, "Own().eval()", name="own_mode")
    loaded = load_checkpoint(path, **trusting(tmp_path))
    assert not any(member.training for member in loaded.module.modules())


def test_a_class_that_cannot_be_imported_asks_for_its_folder(tmp_path: Path) -> None:
    path = pickle_of_own_class(tmp_path, OWN, "Own()", name="own_missing")
    message = refusal(path, trust_pickle=True)
    assert "'own_missing'" in message and "--import-path" in message
    (tmp_path / "code" / "own_missing.py").write_text("")
    message = refusal(path, **trusting(tmp_path))
    assert "does not have" in message and "--import-path" in message


def test_a_class_of_main_has_words_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    main = sys.modules["__main__"]
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(OWN, namespace)
    main.Own = namespace["Own"]  # type: ignore[attr-defined]
    try:
        torch.save(namespace["Own"](), path)
    finally:
        del main.Own  # type: ignore[attr-defined]
    assert "class __main__.Own" in refusal(path)
    message = refusal(path, trust_pickle=True)
    assert "one of __main__" in message and "Move the class into a module" in message


def test_code_that_fails_while_loading_is_reported(tmp_path: Path) -> None:
    failing = OWN + "\n    def __setstate__(self, state):\n        raise KeyError('gone')\n"
    path = pickle_of_own_class(tmp_path, failing, "Own()", name="own_failing")
    assert "cannot be unpickled: KeyError: 'gone'" in refusal(path, **trusting(tmp_path))


@pytest.mark.parametrize(
    "build", ["{'model': Own(), 'epoch': 3}", "nn.DataParallel(Own())", "torch.compile(Own())"]
)
def test_a_module_is_found_inside_its_wrapping(tmp_path: Path, build: str) -> None:
    name = f"own_wrapped_{len(build)}"
    path = pickle_of_own_class(tmp_path, OWN, build, name=name)
    refusal(path)
    loaded = load_checkpoint(path, **trusting(tmp_path))
    assert type(loaded.module).__name__ == "Own"


def test_half_precision_is_upcast_and_reuse_survives(tmp_path: Path) -> None:
    build = "nn.Sequential(*[nn.Embedding(9, 4)] + [nn.Linear(4, 4)] * 2).bfloat16()"
    path = pickle_of_own_class(tmp_path, OWN, build, name="own_half")
    loaded = load_checkpoint(path, trust_pickle=True)
    assert {p.dtype for p in loaded.module.parameters()} == {torch.float32}
    assert "3 bfloat16 tensors converted to float32" in loaded.notices
    assert [g.reason for g in loaded.sharing.groups] == ["module_reuse"]


def test_a_state_dict_with_plain_python_objects_loads_when_trusted(tmp_path: Path) -> None:
    model = tiny_reference()
    values = {"config": model.config.to_dict(), "state_dict": model.state_dict()}
    torch.save({**values, "options": Namespace(lr=0.1)}, tmp_path / "model.pt")
    message = refusal(tmp_path / "model.pt")
    assert "besides tensors (argparse.Namespace)" in message and "--trust-pickle" in message
    loaded = load_checkpoint(tmp_path / "model.pt", trust_pickle=True)
    ids = example()["input_ids"]
    assert torch.equal(outputs(loaded.module, input_ids=ids)[0], outputs(model, input_ids=ids)[0])


def test_what_is_no_module_is_named(tmp_path: Path) -> None:
    path = pickle_of_own_class(tmp_path, "class Other: pass", "Other()", name="own_other")
    assert "holds a Other, not an nn.Module" in refusal(path, **trusting(tmp_path))


def test_a_pickled_hugging_face_model_is_rebuilt_with_its_names(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert", "ForQuestionAnswering").train()
    torch.save(model, tmp_path / "model.pt")
    loaded = load_checkpoint(tmp_path / "model.pt", trust_pickle=True)
    assert loaded.output_names == ("start_logits", "end_logits")
    assert loaded.source.kind == "pickled_module"
    assert loaded.module.training
    loaded.module.eval()
    expected = model.eval()(**example())
    assert torch.equal(outputs(loaded.module, **example())[1], expected.end_logits)


def test_a_torch_encoder_layer_in_eval_mode_is_described(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    encoder.layers[1] = encoder.layers[0]
    torch.save(encoder, tmp_path / "model.pt")
    loaded = load_checkpoint(
        tmp_path / "model.pt", trust_pickle=True, inputs=["src:float32[batch,sequence,8]"]
    )
    assert loaded.scheme == "all"
    assert loaded.sharing.calls == {"layers.0": 2}
    assert ("layers.0", "layers.1") in [g.names for g in loaded.sharing.groups]
    assert torch.backends.mha.get_fastpath_enabled()


def test_ids_beyond_the_embedding_are_the_fault_of_the_description(tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Embedding(10, 4)), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"the model fails on input:int64\[2, 2\]<30000"):
        load_checkpoint(
            tmp_path / "model.pt",
            inputs=["input:int64[batch,sequence]<30000"],
            trust_pickle=True,
        )
