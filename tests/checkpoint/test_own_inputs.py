from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from exporter.checkpoint.own_inputs import derive_inputs
from exporter.errors import CheckpointError
from exporter.inputs import InputSpec


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.types = nn.Embedding(3, 8)
        self.places = nn.Embedding(20, 8)
        self.dropout = nn.Dropout(0.5)

    def embed(self, ids: Tensor, types: Tensor | None = None) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.dropout(x if types is None else x + self.types(types))


class Bert(Encoder):
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> Tensor:
        x = self.embed(input_ids, token_type_ids)
        return x if attention_mask is None else x * attention_mask[..., None]


class Tokens(Encoder):
    def forward(self, tokens: Tensor, scale: float = 1.0) -> Tensor:
        return self.embed(tokens) * scale


IDS = InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", 50)
MASK = InputSpec("attention_mask", "int64", ("batch", "sequence"), "mask")
TYPES = InputSpec("token_type_ids", "int64", ("batch", "sequence"), "ids", 3)


def refused(module: nn.Module, *requested: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        derive_inputs(module, requested)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_ids_and_mask_are_found_with_their_range_and_limit() -> None:
    module = Bert().train()
    before = torch.get_rng_state()
    inputs, notices = derive_inputs(module, [])
    assert inputs.specs == (IDS, MASK)
    assert inputs.limits == {"sequence": 20}
    assert notices == [
        "ids of input_ids are below 50: the size of the embedding they reach",
        "sequence is limited to 20 by the position embedding",
    ]
    assert all(member.training for member in module.modules())
    assert torch.equal(torch.get_rng_state(), before)


def test_another_first_name_is_taken_for_ids_when_it_reaches_an_embedding() -> None:
    inputs, _ = derive_inputs(Tokens(), [])
    assert inputs.specs == (InputSpec("tokens", "int64", ("batch", "sequence"), "ids", 50),)


def test_names_alone_get_their_own_ranges() -> None:
    inputs, _ = derive_inputs(Bert(), ["input_ids", "token_type_ids"])
    assert inputs.specs == (IDS, TYPES)


def test_what_is_described_is_taken_as_it_is() -> None:
    inputs, notices = derive_inputs(Bert(), ["input_ids:int64[1,s<=10]<30"])
    assert inputs.specs == (InputSpec("input_ids", "int64", (1, "s"), "ids", 30),)
    assert inputs.limits == {"s": 10}
    assert notices == []


def test_a_single_id_is_not_confused_with_a_single_type() -> None:
    inputs, _ = derive_inputs(Bert(), ["input_ids:int64[1,1]", "token_type_ids:int64[1,1]"])
    assert [spec.upper for spec in inputs.specs] == [50, 3]


def test_a_limit_below_the_trial_length_is_kept_to() -> None:
    inputs, _ = derive_inputs(Bert(), ["input_ids:int64[batch,sequence<=2]"])
    assert inputs.limits == {"sequence": 2}
    assert inputs.specs[0].upper == 50


def test_a_lookup_by_function_is_seen_too() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.randn(12, 4))

        def forward(self, ids: Tensor) -> Tensor:
            return nn.functional.embedding(ids.reshape(-1), self.table)

    inputs, _ = derive_inputs(Functional(), [])
    assert inputs.specs[0].upper == 12


def test_the_smallest_embedding_that_ids_reach_sets_their_range() -> None:
    class Two(Encoder):
        def forward(self, ids: Tensor) -> Tensor:
            return self.words(ids) + self.types(ids)

    assert derive_inputs(Two(), [])[0].specs[0].upper == 3


def test_no_embedding_asks_for_a_description_spelled_for_the_signature() -> None:
    class Sum(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return features + 1

    message = refused(Sum())
    assert "features reaches no embedding" in message
    assert "--input 'features:float32[batch,sequence,64]'" in message
    given = derive_inputs(Sum(), ["features:float32[batch,7]"])[0]
    assert given.specs == (InputSpec("features", "float32", ("batch", 7)),)


def test_a_failing_run_shows_what_was_tried_and_what_to_write() -> None:
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x)

    message = refused(Wide())
    assert "on x int64[2, 4] failed (" in message
    assert "--input 'x:float32[batch,sequence,64]'" in message
    assert "check --input" in refused(Wide(), "x:float32[batch,63]")


def test_required_parameters_without_a_description_are_named() -> None:
    class Needy(Encoder):
        def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
            return self.embed(input_ids) * lengths[:, None, None]

    message = refused(Needy())
    assert message.startswith("forward needs lengths:")
    assert "--input 'input_ids:int64[batch,sequence]<30000'" in message
    assert "--input 'lengths:float32[batch,sequence,64]'" in message
    inputs, _ = derive_inputs(Needy(), ["input_ids", "lengths:float32[batch]"])
    assert [spec.name for spec in inputs.specs] == ["input_ids", "lengths"]


def test_unknown_and_undescribed_names_are_refused() -> None:
    assert "--input words: forward takes input_ids, attention_mask, token_type_ids" in refused(
        Bert(), "words:int64[2]"
    )
    assert "--input tokens needs a type and a shape" in refused(Tokens(), "tokens")
    assert "two limits: 5 and 6" in refused(
        Bert(), "input_ids:int64[b,s<=5]", "attention_mask:int64[b,s<=6]"
    )


def test_a_forward_without_names_is_refused() -> None:
    class Anything(nn.Module):
        def forward(self, *tensors: Tensor) -> Tensor:
            return tensors[0]

    assert "takes nothing by name" in refused(Anything())
