from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from exporter.checkpoint import load_checkpoint
from exporter.inputs import InputSpec
from tests.checkpoint.helpers import (
    example,
    outputs,
    refusal,
    save_folder,
    save_tensors,
    tiny_huggingface,
)

HEADS = {
    "Model": ("last_hidden_state", "pooler_output"),
    "ForMaskedLM": ("logits",),
    "ForSequenceClassification": ("logits",),
    "ForTokenClassification": ("logits",),
    "ForQuestionAnswering": ("start_logits", "end_logits"),
}


@pytest.mark.parametrize("family", ["Albert", "Bert"])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_computes_what_transformers_own_loader_computes(
    tmp_path: Path, family: str, head: str
) -> None:
    model = tiny_huggingface(family, head)
    model.save_pretrained(tmp_path / "folder")
    own = type(model).from_pretrained(
        tmp_path / "folder", attn_implementation="eager", local_files_only=True
    )
    expected = own.eval()(**example())
    loaded = load_checkpoint(tmp_path / "folder")
    assert loaded.output_names == HEADS[head]
    got = outputs(loaded.module, **example())
    assert len(got) == len(HEADS[head])
    for name, tensor in zip(HEADS[head], got, strict=True):
        assert torch.equal(tensor, expected[name]), name
    assert loaded.source.kind == "huggingface"
    assert loaded.config == json.loads((tmp_path / "folder" / "config.json").read_text())


def test_inputs_have_the_models_ranges_and_limit(tmp_path: Path) -> None:
    save_folder(tiny_huggingface("Bert"), tmp_path / "folder")
    inputs = load_checkpoint(tmp_path / "folder").inputs
    shape = ("batch", "sequence")
    assert inputs.specs == (
        InputSpec("input_ids", "int64", shape, "ids", 100),
        InputSpec("attention_mask", "int64", shape, "mask"),
        InputSpec("token_type_ids", "int64", shape, "ids", 2),
    )
    assert inputs.limits == {"sequence": 64}


@pytest.mark.parametrize("head", HEADS)
def test_token_types_can_be_left_out(tmp_path: Path, head: str) -> None:
    model = tiny_huggingface("Albert", head)
    save_folder(model, tmp_path / "folder")
    loaded = load_checkpoint(tmp_path / "folder", inputs=["input_ids", "attention_mask"])
    assert [spec.name for spec in loaded.inputs.specs] == ["input_ids", "attention_mask"]
    feeds = {k: v for k, v in example().items() if k != "token_type_ids"}
    assert torch.equal(outputs(loaded.module, **feeds)[0], model(**feeds)[0])


def test_sizes_can_be_fixed_within_the_models_limit(tmp_path: Path) -> None:
    save_folder(tiny_huggingface("Albert"), tmp_path / "folder")
    loaded = load_checkpoint(tmp_path / "folder", inputs=["input_ids:int64[1,width]"])
    assert loaded.inputs.specs == (InputSpec("input_ids", "int64", (1, "width"), "ids", 100),)
    assert loaded.inputs.limits == {"width": 64}
    assert "sequence 65 is beyond the model's maximum 64" in refusal(
        tmp_path / "folder", inputs=["input_ids:int64[1,65]"]
    )
    assert "ids below 101 exceed the model's 100" in refusal(
        tmp_path / "folder", inputs=["input_ids:int64[1,8]<101"]
    )
    assert "must be int64[batch,sequence]" in refusal(
        tmp_path / "folder", inputs=["input_ids:int32[batch,sequence]"]
    )


@pytest.mark.parametrize(
    ("family", "changes", "scheme"),
    [
        ("Albert", {}, "all"),
        ("Albert", {"num_hidden_layers": 4, "num_hidden_groups": 2}, "grouped(2)"),
        ("Albert", {"num_hidden_groups": 2}, "none"),
        ("Albert", {"inner_group_num": 2}, "unknown"),
        ("Bert", {}, "none"),
    ],
)
def test_the_scheme_follows_from_the_configuration(
    tmp_path: Path, family: str, changes: dict[str, int], scheme: str
) -> None:
    save_folder(tiny_huggingface(family, **changes), tmp_path / "folder")
    assert load_checkpoint(tmp_path / "folder").scheme == scheme


def test_sharded_weights_are_joined(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert")
    model.save_pretrained(tmp_path / "folder", max_shard_size="10KB")
    assert (tmp_path / "folder" / "model.safetensors.index.json").exists()
    assert not (tmp_path / "folder" / "model.safetensors").exists()
    loaded = load_checkpoint(tmp_path / "folder")
    assert torch.equal(outputs(loaded.module, **example())[0], model(**example())[0])


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    tiny_huggingface("Albert").save_pretrained(tmp_path / "folder", max_shard_size="10KB")
    shard = sorted((tmp_path / "folder").glob("model-*.safetensors"))[1]
    shard.unlink()
    assert f"folder/{shard.name} is missing" in refusal(tmp_path / "folder")


def test_a_shard_outside_the_folder_is_refused(tmp_path: Path) -> None:
    folder = save_folder(tiny_huggingface("Albert"), tmp_path / "folder")
    (folder / "pytorch_model.bin").rename(tmp_path / "weights.bin")
    index = {"weight_map": {"pooler.weight": "../weights.bin"}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert "'../weights.bin', which is outside its folder" in refusal(folder)


def test_links_of_a_cache_are_followed(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert")
    plain = save_folder(model, tmp_path / "plain")
    snapshot = tmp_path / "models--x" / "snapshots" / "0a1b"
    blobs = tmp_path / "models--x" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, file in enumerate(sorted(plain.iterdir())):
        file.rename(blobs / f"blob{number}")
        (snapshot / file.name).symlink_to(Path("../../blobs") / f"blob{number}")
    loaded = load_checkpoint(snapshot)
    assert torch.equal(outputs(loaded.module, **example())[0], model(**example())[0])
    assert "Give models--x/snapshots/0a1b" in refusal(tmp_path / "models--x")
    (blobs / "blob1").unlink()
    assert "is a link to ../../blobs/blob1, which does not exist" in refusal(snapshot)


def test_ties_saved_as_clones_load_as_one_parameter(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert", "ForMaskedLM")
    folder = save_folder(model, tmp_path / "folder")
    (folder / "pytorch_model.bin").unlink()
    save_tensors(model.state_dict(), folder / "model.safetensors")
    loaded = load_checkpoint(folder)
    inner: Any = loaded.module.model
    assert inner.predictions.decoder.weight is inner.albert.embeddings.word_embeddings.weight
    assert inner.predictions.decoder.bias is inner.predictions.bias
    tied = [g.names for g in loaded.sharing.groups if g.reason == "same_parameter"]
    assert (
        "model.albert.embeddings.word_embeddings.weight",
        "model.predictions.decoder.weight",
    ) in tied


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("albert.embeddings.word_embeddings.weight", "predictions.decoder.weight"),
        ("predictions.bias", "predictions.decoder.bias"),
    ],
)
def test_unequal_values_under_tied_names_are_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    model = tiny_huggingface("Albert", "ForMaskedLM")
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state[second][0] += 1e-6
    message = refusal(save_folder(model, tmp_path / "folder", state))
    assert first in message and second in message and "different values" in message


def test_untied_embeddings_load_both(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert", "ForMaskedLM", tie_word_embeddings=False)
    assert not torch.equal(
        model.predictions.decoder.weight, model.albert.embeddings.word_embeddings.weight
    )
    loaded = load_checkpoint(save_folder(model, tmp_path / "folder"))
    assert torch.equal(outputs(loaded.module, **example())[0], model(**example()).logits)


def test_an_untied_decoder_finds_its_bias_under_the_older_name(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert", "ForMaskedLM", tie_word_embeddings=False)
    state = model.state_dict()
    state["predictions.bias"] = state.pop("predictions.decoder.bias")
    loaded = load_checkpoint(save_folder(model, tmp_path / "folder", state))
    assert torch.equal(outputs(loaded.module, **example())[0], model(**example()).logits)


def test_the_encoder_is_taken_out_of_a_model_with_a_head(tmp_path: Path) -> None:
    model = tiny_huggingface("Bert", "ForMaskedLM")
    config = {**model.config.to_dict(), "architectures": ["BertModel"]}
    folder = save_folder(model, tmp_path / "folder")
    (folder / "config.json").write_text(json.dumps(config, default=str))
    loaded = load_checkpoint(folder)
    expected = model.bert(**example()).last_hidden_state
    (got,) = outputs(loaded.module, **example())
    assert torch.equal(got, expected)
    assert loaded.output_names == ("last_hidden_state",)
    assert any("no pooler" in notice for notice in loaded.notices)
    assert any("weights of other heads left out (cls." in notice for notice in loaded.notices)


def test_weights_of_other_heads_and_old_buffers_do_no_harm(tmp_path: Path) -> None:
    model = tiny_huggingface("Bert", "ForMaskedLM")
    state = dict(model.state_dict())
    state["bert.pooler.dense.weight"] = torch.zeros(32, 32)
    state["cls.seq_relationship.weight"] = torch.zeros(2, 32)
    state["bert.embeddings.position_ids"] = torch.arange(64)[None]
    loaded = load_checkpoint(save_folder(model, tmp_path / "folder", state))
    assert (
        "2 weights of other heads left out "
        "(bert.pooler.dense.weight, cls.seq_relationship.weight)" in loaded.notices
    )


def test_weights_that_nothing_explains_are_refused(tmp_path: Path) -> None:
    model = tiny_huggingface("Bert", "ForMaskedLM")
    state = dict(model.state_dict())
    state["bert.encoder.layer.2.output.dense.bias"] = torch.zeros(32)
    message = refusal(save_folder(model, tmp_path / "folder", state))
    assert "1 unexpected (bert.encoder.layer.2.output.dense.bias)" in message


def test_early_names_of_layer_norms_are_understood(tmp_path: Path) -> None:
    model = tiny_huggingface("Bert")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    state = {}
    for name, tensor in model.state_dict().items():
        for new, early in old.items():
            name = name.replace(new, early)
        state[name] = tensor
    assert any("gamma" in name for name in state)
    loaded = load_checkpoint(save_folder(model, tmp_path / "folder", state))
    assert torch.equal(outputs(loaded.module, **example())[0], model(**example())[0])


def test_half_precision_is_upcast_and_the_configuration_says_so(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert").to(torch.bfloat16)
    model.save_pretrained(tmp_path / "folder")
    assert json.loads((tmp_path / "folder" / "config.json").read_text())["dtype"] == "bfloat16"
    loaded = load_checkpoint(tmp_path / "folder")
    assert {p.dtype for p in loaded.module.parameters()} == {torch.float32}
    assert loaded.config is not None and loaded.config["dtype"] == "float32"
    assert "25 bfloat16 tensors converted to float32" in loaded.notices
    assert torch.isfinite(outputs(loaded.module, **example())[0]).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "roberta"}, "model_type 'roberta'; supported: albert and bert as Model,"),
        ({"architectures": ["AlbertForMultipleChoice"]}, "'AlbertForMultipleChoice'; supported"),
        ({"architectures": ["BertModel"]}, "architecture 'BertModel'; supported"),
        ({"architectures": None}, '"architectures": ["AlbertModel"]'),
        ({"is_decoder": True}, "only encoders"),
        ({"position_embedding_type": "relative_key"}, "'relative_key' is not supported"),
        (
            {"hidden_size": "wide"},
            "is no valid AlbertConfig: Validation error for field 'hidden_size'",
        ),
    ],
)
def test_what_is_not_supported_is_named(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    folder = save_folder(tiny_huggingface("Albert"), tmp_path / "folder")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    assert words in refusal(folder)


@pytest.mark.parametrize("name", ["tf_model.h5", "flax_model.msgpack"])
def test_weights_of_other_frameworks_are_named(tmp_path: Path, name: str) -> None:
    folder = save_folder(tiny_huggingface("Albert"), tmp_path / "folder")
    (folder / "pytorch_model.bin").rename(folder / name)
    message = refusal(folder)
    assert name in message and "save_pretrained" in message
    (folder / name).unlink()
    assert "holds no weights; looked for model.safetensors" in refusal(folder)


def test_a_git_lfs_pointer_and_a_truncated_file_are_told_apart(tmp_path: Path) -> None:
    folder = save_folder(tiny_huggingface("Albert"), tmp_path / "folder")
    weights = folder / "pytorch_model.bin"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "damaged or truncated" in refusal(folder)
    weights.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    assert "git lfs pull" in refusal(folder)
    weights.write_bytes(b"")
    assert "is empty" in refusal(folder)
    (folder / "model.safetensors").write_bytes(b"\x40\0\0\0\0\0\0\0{}")
    assert "model.safetensors is damaged or truncated" in refusal(folder)


def test_without_transformers_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_folder(tiny_huggingface("Albert"), tmp_path / "folder")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "pip install -e '.[hf]'" in refusal(folder)


def test_a_file_with_configuration_and_weights_needs_no_folder(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert")
    config = json.loads(model.config.to_json_string(use_diff=False))
    torch.save({"config": config, "model": model.state_dict()}, tmp_path / "model.pt")
    loaded = load_checkpoint(tmp_path / "model.pt")
    assert torch.equal(outputs(loaded.module, **example())[0], model(**example())[0])


def test_loading_leaves_the_random_state_alone_and_evaluates(tmp_path: Path) -> None:
    folder = save_folder(tiny_huggingface("Bert"), tmp_path / "folder")
    before = torch.get_rng_state()
    loaded = load_checkpoint(folder)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(member.training for member in loaded.module.modules())


def test_padding_alone_attends_evenly_as_it_will_in_the_exported_graph(tmp_path: Path) -> None:
    model = tiny_huggingface("Albert")
    loaded = load_checkpoint(save_folder(model, tmp_path / "folder"))
    inner: Any = loaded.module.model
    assert inner.config._attn_implementation == "eager"
    row = outputs(loaded.module, **example())[0][2]
    attention = inner.encoder.albert_layer_groups[0].albert_layers[0].attention
    with torch.no_grad():
        attention.query.weight.mul_(-3)
        assert torch.equal(outputs(loaded.module, **example())[0][2], row)
        attention.value.weight.mul_(-3)
    assert not torch.allclose(outputs(loaded.module, **example())[0][2], row, atol=1e-2)
