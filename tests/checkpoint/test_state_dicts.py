from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from exporter.checkpoint import load_checkpoint
from exporter.checkpoint.state_dicts import (
    find_state_dict,
    fold_ties,
    list_some,
    strip_wrappers,
)
from exporter.errors import CheckpointError
from tests.checkpoint.helpers import (
    example,
    outputs,
    refusal,
    save_folder,
    tiny_huggingface,
    tiny_reference,
)

State = dict[str, Tensor]


def prefixed(prefix: str) -> Callable[[State], Any]:
    return lambda state: {prefix + name: tensor for name, tensor in state.items()}


VARIANTS: dict[str, Callable[[State], Any]] = {
    "plain": lambda state: state,
    "module.": prefixed("module."),
    "_orig_mod.": prefixed("_orig_mod."),
    "module._orig_mod.": prefixed("module._orig_mod."),
    "_orig_mod.module.": prefixed("_orig_mod.module."),
    "model. of a training framework": prefixed("model."),
    "under state_dict": lambda state: {"state_dict": state, "epoch": 3},
    "under model": lambda state: {"model": state, "optimizer": {"lr": 0.1}},
    "under model_state_dict": lambda state: {"model_state_dict": state},
    "prefixed and nested twice": lambda s: {"state_dict": {"model": prefixed("module.")(s)}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_a_reference_state_dict_computes_the_same(
    tmp_path: Path, variant: str
) -> None:
    model = tiny_reference()
    saved = VARIANTS[variant](model.state_dict())
    key = {"config": model.config.to_dict()}
    nested = saved if any(isinstance(v, dict) for v in saved.values()) else {"state_dict": saved}
    torch.save({**key, **nested}, tmp_path / "model.pt")
    loaded = load_checkpoint(tmp_path / "model.pt")
    ids = example()["input_ids"]
    assert torch.equal(loaded.module(ids), model(ids))


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_of_a_hugging_face_state_dict_computes_the_same(
    tmp_path: Path, variant: str
) -> None:
    model = tiny_huggingface("Albert", "ForSequenceClassification")
    save_folder(model, tmp_path / "folder", VARIANTS[variant](model.state_dict()))
    loaded = load_checkpoint(tmp_path / "folder")
    assert torch.equal(outputs(loaded.module, **example())[0], model(**example()).logits)


def test_a_compiled_submodule_leaves_its_mark_inside_the_names() -> None:
    state = {"encoder._orig_mod.weight": torch.ones(1), "head.weight": torch.zeros(1)}
    stripped = strip_wrappers(state, ["encoder.weight", "head.weight"])
    assert list(stripped) == ["encoder.weight", "head.weight"]


def test_a_component_the_model_itself_uses_is_no_wrapper() -> None:
    state = {"module.weight": torch.ones(1)}
    assert list(strip_wrappers(state, ["module.weight", "module.bias"])) == ["module.weight"]


def test_two_names_that_become_one_are_refused() -> None:
    state = {"_orig_mod.a.w": torch.ones(1), "a.w": torch.zeros(1)}
    with pytest.raises(CheckpointError, match=r"a\.w twice"):
        strip_wrappers(state, ["a.w"])


def test_missing_and_unexpected_names_are_listed_up_to_a_few(tmp_path: Path) -> None:
    model = tiny_reference()
    state = {
        name.replace("ffn_blocks", "mlp"): tensor for name, tensor in model.state_dict().items()
    }
    torch.save({"config": model.config.to_dict(), "state_dict": state}, tmp_path / "model.pt")
    message = refusal(tmp_path / "model.pt")
    assert "6 missing (ffn_blocks.0.norm.weight, " in message
    assert "6 unexpected (mlp.0.norm.weight, " in message
    assert message.count("and 1 more") == 2


def test_a_missing_weight_is_an_error_and_never_random(tmp_path: Path) -> None:
    model = tiny_huggingface("Bert", "ForTokenClassification")
    state = model.state_dict()
    del state["classifier.weight"]
    save_folder(model, tmp_path / "folder", state)
    message = refusal(tmp_path / "folder")
    assert message == (
        "the checkpoint does not fit BertForTokenClassification: 1 missing (classifier.weight)"
    )


def test_a_dictionary_without_tensors_lists_what_it_holds(tmp_path: Path) -> None:
    torch.save({"config": {"model_type": "shared_encoder"}, "weights": [1]}, tmp_path / "m.pt")
    message = refusal(tmp_path / "m.pt")
    assert "holds no state dict" in message and "weights" in message


def test_ties_are_compared_bit_for_bit() -> None:
    zero, minus = torch.zeros(2), torch.zeros(2).neg()
    assert fold_ties({"a": zero, "b": zero.clone()}, {"b": "a"})["b"] is zero
    with pytest.raises(CheckpointError, match="a and b are one tensor"):
        fold_ties({"a": zero, "b": minus}, {"b": "a"})


def test_a_tie_saved_under_one_name_fills_the_other() -> None:
    value = torch.ones(2)
    assert fold_ties({"a": value}, {"b": "a"}) == {"a": value, "b": value}
    assert fold_ties({"b": value}, {"b": "a"}) == {"b": value, "a": value}
    assert fold_ties({}, {"b": "a"}) == {}


def test_long_lists_end_in_a_count() -> None:
    assert list_some("abc") == "a, b, c"
    assert list_some("abcdefg") == "a, b, c, d, e and 2 more"


def test_weights_under_two_keys_are_not_chosen_between() -> None:
    weights = {"a": torch.zeros(1)}
    with pytest.raises(CheckpointError, match="under 'state_dict' and 'model'; keep the one"):
        find_state_dict({"state_dict": weights, "model": weights}, "model.pt")
