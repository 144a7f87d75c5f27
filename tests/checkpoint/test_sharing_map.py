from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from exporter.checkpoint import SharedGroup, read_sharing_map
from exporter.checkpoint.sharing_map import same_bits
from tests.checkpoint.helpers import randomize, tiny_huggingface

FLOAT = 4  # bytes


class Stack(nn.Module):
    """Layers by number out of ``blocks``; the same number is the same module."""

    def __init__(self, *order: int) -> None:
        super().__init__()
        blocks = {number: nn.Linear(8, 8) for number in dict.fromkeys(order)}
        self.layers = nn.ModuleList(blocks[number] for number in order)
        randomize(self)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


LINEAR = (8 * 8 + 8) * FLOAT


def group(module: nn.Module, reason: str) -> list[SharedGroup]:
    return [g for g in read_sharing_map(module).groups if g.reason == reason]


@pytest.mark.parametrize("depth", [2, 6, 12])
def test_a_reused_module_counts_once_whatever_the_depth(depth: int) -> None:
    module = Stack(*[0] * depth)
    found = read_sharing_map(module, {"x": torch.ones(1, 8)})
    assert found.unique_bytes == found.held_bytes == LINEAR
    assert found.total_bytes_if_unshared == depth * LINEAR
    names = tuple(f"layers.{i}" for i in range(depth))
    assert found.groups == (SharedGroup("module_reuse", names, LINEAR),)
    assert found.calls == {"layers.0": depth}


def test_two_alternating_modules_are_two_groups() -> None:
    assert group(Stack(0, 1, 0, 1), "module_reuse") == [
        SharedGroup("module_reuse", ("layers.0", "layers.2"), LINEAR),
        SharedGroup("module_reuse", ("layers.1", "layers.3"), LINEAR),
    ]


def test_what_stands_inside_a_reused_module_is_not_listed_again() -> None:
    block = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    module = nn.ModuleList([block, block])
    assert [g.names for g in group(module, "module_reuse")] == [("0", "1")]


def test_distinct_modules_are_not_a_group() -> None:
    found = read_sharing_map(Stack(0, 1), {"x": torch.ones(1, 8)})
    assert found.groups == ()
    assert found.unique_bytes == found.total_bytes_if_unshared == 2 * LINEAR
    assert found.calls == {}


def test_a_tied_parameter_counts_once_under_both_names() -> None:
    module = nn.Module()
    module.embedding = nn.Embedding(50, 8)
    module.head = nn.Linear(8, 50, bias=False)
    module.head.weight = module.embedding.weight
    found = read_sharing_map(module)
    assert found.unique_bytes == 50 * 8 * FLOAT
    assert found.groups == (
        SharedGroup("same_parameter", ("embedding.weight", "head.weight"), 50 * 8 * FLOAT),
    )


def parameters(**tensors: Tensor) -> nn.Module:
    module = nn.Module()
    for name, tensor in tensors.items():
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=False))
    return module


def test_distinct_parameters_over_one_storage_count_once() -> None:
    base = torch.randn(6, 4)
    module = parameters(a=base, b=base, c=base.t())
    assert len({id(p) for p in module.parameters()}) == 3
    found = read_sharing_map(module)
    assert found.unique_bytes == found.held_bytes == 24 * FLOAT
    assert found.groups == (SharedGroup("same_storage", ("a", "b", "c"), 24 * FLOAT),)


def test_overlapping_views_count_the_union_of_their_bytes() -> None:
    base = torch.randn(10)
    found = read_sharing_map(parameters(head=base[:6], tail=base[4:]))
    assert found.unique_bytes == 10 * FLOAT
    assert [g.names for g in found.groups] == [("head", "tail")]
    assert read_sharing_map(parameters(a=base[:6], b=base[2:4])).unique_bytes == 6 * FLOAT


def test_neighbours_in_one_storage_share_nothing() -> None:
    base = torch.randn(4, 6)
    columns = parameters(left=base[:, :3], right=base[:, 3:])
    assert read_sharing_map(columns).groups == ()
    assert read_sharing_map(columns).unique_bytes == 24 * FLOAT
    part = read_sharing_map(parameters(left=base[:, :2], more=base[:, 1:3]))
    assert part.unique_bytes == 4 * 3 * FLOAT
    assert [g.names for g in part.groups] == [("left", "more")]


def test_an_expanded_view_counts_the_memory_it_has() -> None:
    assert read_sharing_map(parameters(a=torch.randn(3, 1).expand(3, 100))).held_bytes == 12


def test_equal_values_in_separate_memory_count_once_as_unique_but_are_held_twice() -> None:
    values = torch.randn(5)
    found = read_sharing_map(parameters(a=values, b=values.clone(), c=torch.randn(5)))
    assert (found.unique_bytes, found.held_bytes) == (10 * FLOAT, 15 * FLOAT)
    assert found.groups == (SharedGroup("equal_values", ("a", "b"), 5 * FLOAT),)


@pytest.mark.parametrize(
    "other",
    [
        torch.tensor([-0.0, 1.0]),
        torch.tensor([[0.0, 1.0]]),
        torch.tensor([0.0, 1.0], dtype=torch.float64),
        torch.tensor([0.0, 1.0 + 2**-23]),
    ],
    ids=["minus zero", "shape", "dtype", "last bit"],
)
def test_values_that_differ_in_anything_stay_apart(other: Tensor) -> None:
    values = torch.tensor([0.0, 1.0])
    found = read_sharing_map(parameters(a=values, b=other))
    assert found.groups == ()
    assert found.unique_bytes == found.held_bytes
    assert not same_bits(values, other)


def test_the_same_nan_is_equal_and_another_one_is_not() -> None:
    quiet = torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32)
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert same_bits(quiet, quiet.clone())
    assert not same_bits(quiet, other)


def test_float_buffers_count_and_integer_ones_do_not() -> None:
    module = nn.Module()
    module.register_buffer("positions", torch.arange(100))
    module.register_buffer("table", torch.randn(7), persistent=False)
    assert read_sharing_map(module).unique_bytes == 7 * FLOAT


def test_bfloat16_and_scalars_are_read_too() -> None:
    module = parameters(
        a=torch.tensor(1.5), b=torch.tensor(1.5), c=torch.ones(3, dtype=torch.bfloat16)
    )
    found = read_sharing_map(module)
    assert found.unique_bytes == 4 + 6
    assert [g.names for g in found.groups] == [("a", "b")]


def test_parameters_read_past_a_modules_forward_count_with_their_parent() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            randomize(self)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = self.attention(x, x, x)[0]
            return x

    module = Twice()
    found = read_sharing_map(module, {"x": torch.ones(1, 2, 8)})
    assert found.total_bytes_if_unshared == 3 * found.unique_bytes
    assert found.calls == {"attention": 3}


def test_the_map_becomes_plain_json() -> None:
    found = read_sharing_map(Stack(0, 0), {"x": torch.ones(1, 8)})
    assert json.loads(json.dumps(found.to_dict())) == {
        "unique_bytes": LINEAR,
        "held_bytes": LINEAR,
        "total_bytes_if_unshared": 2 * LINEAR,
        "groups": [{"reason": "module_reuse", "names": ["layers.0", "layers.1"], "bytes": LINEAR}],
        "calls": {"layers.0": 2},
    }


def test_an_albert_of_base_size_holds_its_published_number_of_parameters() -> None:
    with torch.random.fork_rng(devices=[]):
        model = tiny_huggingface(
            "Albert",
            vocab_size=30_000,
            embedding_size=128,
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            max_position_embeddings=512,
        )
    found = read_sharing_map(model)
    assert found.unique_bytes == 4 * 11_683_584
    assert found.groups == ()
