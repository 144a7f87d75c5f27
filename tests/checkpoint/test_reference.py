from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from exporter.checkpoint import load_checkpoint
from exporter.checkpoint.digests import hash_files
from exporter.checkpoint.reference import published_config
from exporter.inputs import InputSpec
from exporter.models import (
    EncoderConfig,
    SharingScheme,
    count_parameters,
    save_checkpoint,
    save_folder,
)
from exporter.models.config import Head
from tests.checkpoint.helpers import example, refusal, tiny_reference


def feeds() -> dict[str, torch.Tensor]:
    return {k: v for k, v in example().items() if k != "token_type_ids"}


def test_a_saved_checkpoint_and_a_saved_folder_compute_what_the_model_computes(
    tmp_path: Path,
) -> None:
    model = tiny_reference(sharing=SharingScheme("grouped", 2))
    save_checkpoint(model, tmp_path / "model.pt")
    save_folder(model, tmp_path / "folder")
    with torch.no_grad():
        expected = model(**feeds())
        for name in ("model.pt", "folder"):
            loaded = load_checkpoint(tmp_path / name)
            assert torch.equal(loaded.module(**feeds()), expected)
            assert loaded.output_names == ("last_hidden_state",)
            assert loaded.scheme == "grouped(2)"
            assert loaded.source.kind == "reference"
            assert loaded.source.name == name
            assert loaded.config == published_config(model.config)
            assert not loaded.module.training


def test_inputs_have_the_models_ranges_and_limit(tmp_path: Path) -> None:
    save_checkpoint(tiny_reference(), tmp_path / "model.pt")
    inputs = load_checkpoint(tmp_path / "model.pt").inputs
    assert inputs.specs == (
        InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", 100),
        InputSpec("attention_mask", "int64", ("batch", "sequence"), "mask"),
    )
    assert inputs.limits == {"sequence": 64}


def test_the_bytes_of_the_unshared_model_include_the_tied_decoder(tmp_path: Path) -> None:
    model = tiny_reference(head="masked_lm")
    save_checkpoint(model, tmp_path / "model.pt")
    sharing = load_checkpoint(tmp_path / "model.pt").sharing
    count = count_parameters(model)
    assert sharing.unique_bytes == 4 * count.unique
    assert sharing.total_bytes_if_unshared == 4 * count.total
    assert sharing.calls == {"attention_blocks.0": 2, "ffn_blocks.0": 2}


def test_loading_leaves_the_random_state_alone(tmp_path: Path) -> None:
    save_checkpoint(tiny_reference(), tmp_path / "model.pt")
    before = torch.get_rng_state()
    load_checkpoint(tmp_path / "model.pt")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_upcast_with_a_notice(tmp_path: Path, dtype: torch.dtype) -> None:
    model = tiny_reference()
    state = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
    torch.save({"config": model.config.to_dict(), "state_dict": state}, tmp_path / "model.pt")
    loaded = load_checkpoint(tmp_path / "model.pt")
    assert {p.dtype for p in loaded.module.parameters()} == {torch.float32}
    assert f"{len(state)} {str(dtype)[6:]} tensors converted to float32" in loaded.notices
    weight = loaded.module.state_dict()["token_embedding.weight"]
    assert torch.equal(weight, state["token_embedding.weight"].float())


def test_quantized_weights_are_refused(tmp_path: Path) -> None:
    model = tiny_reference()
    state = model.state_dict()
    state["token_embedding.weight"] = state["token_embedding.weight"].to(torch.int8)
    torch.save({"config": model.config.to_dict(), "state_dict": state}, tmp_path / "model.pt")
    message = refusal(tmp_path / "model.pt")
    assert "quantized already" in message and "token_embedding.weight is int8" in message


def test_a_wrong_configuration_says_what_is_wrong(tmp_path: Path) -> None:
    model = tiny_reference()
    config = {**model.config.to_dict(), "num_attention_heads": 5}
    torch.save({"config": config, "state_dict": model.state_dict()}, tmp_path / "model.pt")
    assert "hidden_size 32 is not a multiple of num_attention_heads 5" in refusal(
        tmp_path / "model.pt"
    )


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    model = tiny_reference()
    config = {**model.config.to_dict(), "vocab_size": 99}
    torch.save({"config": config, "state_dict": model.state_dict()}, tmp_path / "model.pt")
    assert "token_embedding.weight is [100, 16] instead of [99, 16]" in refusal(
        tmp_path / "model.pt"
    )


def test_a_bare_state_dict_is_told_where_the_configuration_goes(tmp_path: Path) -> None:
    torch.save(tiny_reference().state_dict(), tmp_path / "model.pt")
    message = refusal(tmp_path / "model.pt")
    assert "without a configuration" in message
    assert "pytorch_model.bin" in message and "config.json" in message


def test_the_hash_follows_weights_and_configuration_not_the_place(tmp_path: Path) -> None:
    model = tiny_reference()
    for name in ("a", "b", "c"):
        save_folder(model, tmp_path / name)
    config = tmp_path / "c" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "pad_token_id": 1}))
    a, b, c = (load_checkpoint(tmp_path / name).source.sha256 for name in ("a", "b", "c"))
    assert a == b
    assert a != c
    assert len(a) == 64


def test_the_hash_of_files_depends_on_names_but_not_on_order(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "2"), ("c", "1")):
        (tmp_path / name).write_text(text)
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    assert hash_files([a, b]) == hash_files([b, a])
    assert hash_files([a, b]) != hash_files([c, b])


def test_names_alone_choose_among_the_inputs(tmp_path: Path) -> None:
    save_checkpoint(tiny_reference(), tmp_path / "model.pt")
    loaded = load_checkpoint(tmp_path / "model.pt", inputs=["input_ids"])
    assert [spec.name for spec in loaded.inputs.specs] == ["input_ids"]
    assert "attention_mask, token_type_ids" not in refusal(
        tmp_path / "model.pt", inputs=["input_ids", "token_type_ids"]
    )
    assert "--input input_ids is missing" in refusal(
        tmp_path / "model.pt", inputs=["attention_mask"]
    )


@pytest.mark.parametrize(
    ("head", "architecture"),
    [
        ("none", "AlbertModel"),
        ("sequence_classification", "AlbertForSequenceClassification"),
        ("masked_lm", "AlbertForMaskedLM"),
    ],
)
def test_an_artifact_goes_by_the_name_that_transformers_js_knows(
    head: Head, architecture: str
) -> None:
    labels = ("negative", "positive") if head == "sequence_classification" else ()
    config = EncoderConfig(head=head, labels=labels, num_hidden_layers=5)
    published = published_config(config)
    assert published["model_type"] == "albert"
    assert published["architectures"] == [architecture]
    assert published["source_model_type"] == "shared_encoder"
    assert published["num_hidden_layers"] == 5
