from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from exporter.checkpoint.probing import probing, record_calls
from exporter.checkpoint.scheme import describe_calls


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + torch.rand(4) * 0


def test_every_modules_own_mode_is_restored() -> None:
    module = Noisy().train()
    module.inner[1].eval()
    with probing(module):
        assert not any(member.training for member in module.modules())
    assert module.training and module.inner.training and module.inner[0].training
    assert not module.inner[1].training


def test_modes_and_switches_are_restored_after_a_failure() -> None:
    module = Noisy().train()
    assert torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(ZeroDivisionError), probing(module):
        assert not torch.backends.mha.get_fastpath_enabled()
        assert not torch.is_grad_enabled()
        raise ZeroDivisionError
    assert module.inner.training
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.is_grad_enabled()


def test_a_recorded_run_leaves_no_trace() -> None:
    module = Noisy().train()
    before = torch.get_rng_state()
    record = record_calls(module, {"x": torch.ones(4)})
    assert record.counts == {"": 1, "inner": 1, "inner.0": 1}
    assert torch.equal(torch.get_rng_state(), before)
    assert all(not member._forward_pre_hooks for member in module.modules())
    with pytest.raises(TypeError):
        record_calls(module, {"wrong": torch.ones(4)})
    assert all(not member._forward_pre_hooks for member in module.modules())


def test_the_inside_of_a_torch_encoder_layer_is_seen() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    record = record_calls(layer, {"src": torch.ones(1, 3, 8)})
    assert record.counts["linear1"] == record.counts["self_attn"] == 1


class Ordered(nn.Module):
    """Calls its modules in the order that letters give; ``E`` is an embedding."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order
        self.parts = nn.ModuleDict(
            {name: nn.Linear(4, 4) if name != "E" else nn.Embedding(4, 4) for name in set(order)}
        )

    def forward(self, x: Tensor) -> Tensor:
        for name in self.order:
            part = self.parts[name]
            x = x + part(torch.zeros(1, dtype=torch.int64)) if name == "E" else part(x)
        return x


@pytest.mark.parametrize(
    ("order", "scheme"),
    [
        ("aaaa", "all"),
        ("iaaaah", "all"),
        ("abababab", "all"),
        ("aabb", "grouped(2)"),
        ("iababcdcdefefh", "grouped(3)"),
        ("abc", "none"),
        ("EabEc", "none"),
        ("abab" + "c", "all"),
        ("abba", "unknown"),
        ("axay", "unknown"),
        ("abac", "unknown"),
        ("aaxbb", "unknown"),
        ("aab" + "aab", "unknown"),
    ],
)
def test_the_scheme_is_named_where_the_calls_are_clear(order: str, scheme: str) -> None:
    record = record_calls(Ordered(order), {"x": torch.ones(1, 4)})
    assert describe_calls(record) == scheme


def test_nothing_called_is_unknown() -> None:
    record = record_calls(Ordered("E"), {"x": torch.ones(1, 4)})
    assert describe_calls(record) == "unknown"
