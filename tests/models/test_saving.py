from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from exporter.checkpoint import load_checkpoint
from exporter.models import EncoderConfig, save_checkpoint, save_folder
from tests.samples import tiny_encoder


def test_a_checkpoint_loads_without_running_code(tmp_path: Path) -> None:
    model = tiny_encoder(head="masked_lm")
    save_checkpoint(model, tmp_path / "model.pt")
    content = torch.load(tmp_path / "model.pt", weights_only=True)
    assert EncoderConfig.from_dict(content["config"]) == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(content["state_dict"][name], tensor)


def test_a_folder_holds_configuration_weights_and_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "x.json"):
        (tokenizer / name).write_text(f'"{name}"')
    model = tiny_encoder()
    save_folder(model, tmp_path / "new" / "folder", tokenizer=tokenizer)
    folder = tmp_path / "new" / "folder"
    assert sorted(file.name for file in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert EncoderConfig.from_dict(json.loads((folder / "config.json").read_text())) == model.config
    weights = load_file(folder / "model.safetensors")
    assert weights.keys() == model.state_dict().keys()


def test_both_forms_load_as_the_same_model(tmp_path: Path) -> None:
    model = tiny_encoder()
    save_checkpoint(model, tmp_path / "model.pt")
    save_folder(model, tmp_path / "folder")
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        expected = model(ids)
        for path in (tmp_path / "model.pt", tmp_path / "folder"):
            assert torch.equal(load_checkpoint(path).module(ids), expected)
