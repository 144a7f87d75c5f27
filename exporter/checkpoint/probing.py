"""Run a module once to see what it calls, and leave no trace. Needs torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from exporter.errors import CheckpointError
from exporter.inputs import ModelInputs

__all__ = ["CallRecord", "probing", "record_calls", "record_probe"]


@dataclass(frozen=True)
class CallRecord:
    """Module calls of one forward pass.

    Args:
        counts: module name → number of calls, for modules that hold parameters.
        order: names of the modules that own parameters themselves, in call order.
    """

    counts: Mapping[str, int]
    order: tuple[str, ...]

    def uses(self, name: str) -> int:
        """Calls of ``name``, or of what calls it when its own ``forward`` is passed by.

        A parent may read a child's parameters without calling it, as
        ``nn.MultiheadAttention`` does with ``out_proj``.
        """
        while not self.counts.get(name) and name:
            name = name.rpartition(".")[0]
        return self.counts.get(name, 1)

    @property
    def exceptional(self) -> dict[str, int]:
        """Counts that differ from those of the module around, which say all the others."""
        return {
            name: count
            for name, count in self.counts.items()
            if name and count and count != self.uses(name.rpartition(".")[0])
        }


@contextmanager
def probing(module: nn.Module) -> Iterator[None]:
    """Evaluate ``module`` inside: no gradients, no dropout, no fused fast path.

    Every submodule's mode, the random state and the fast path's switch are restored.
    """
    modes = {member: member.training for member in module.modules()}
    fast_path = torch.backends.mha.get_fastpath_enabled()
    try:
        # The fused path of nn.TransformerEncoderLayer goes around its submodules.
        torch.backends.mha.set_fastpath_enabled(False)
        for member in modes:
            member.training = False
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        for member, mode in modes.items():
            member.training = mode


def record_calls(module: nn.Module, feeds: Mapping[str, Tensor]) -> CallRecord:
    """Run ``module(**feeds)`` once and record which of its modules are called.

    Raises:
        Exception: whatever the module itself raises.
    """
    counts: dict[str, int] = {}
    order: list[str] = []
    handles = []

    def watch(name: str, owns: bool) -> None:
        def hook(_module: nn.Module, _inputs: Any) -> None:
            counts[name] += 1
            if owns:
                order.append(name)

        handles.append(member.register_forward_pre_hook(hook))

    with probing(module):
        try:
            for name, member in module.named_modules():
                if next(member.parameters(), None) is not None:
                    counts[name] = 0
                    owns = next(member.parameters(recurse=False), None) is not None
                    watch(name, owns and not isinstance(member, nn.Embedding))
            module(**feeds)
        finally:
            for handle in handles:
                handle.remove()
    return CallRecord(counts, tuple(order))


def record_probe(module: nn.Module, inputs: ModelInputs) -> CallRecord:
    """Run ``module`` once on small arrays drawn from ``inputs``; see :func:`record_calls`.

    Raises:
        CheckpointError: the module fails on them.
    """
    sizes = {symbol: min(2, inputs.limit(symbol)) for symbol in inputs.symbols}
    feeds = {name: torch.from_numpy(array) for name, array in inputs.draw(sizes).items()}
    try:
        return record_calls(module, feeds)
    except Exception as error:
        given = ", ".join(
            f"{spec.name}:{spec.dtype}{list(feeds[spec.name].shape)}"
            + (f"<{spec.upper}" if spec.upper is not None else "")
            for spec in inputs.specs
            if spec.name in feeds
        )
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"the model fails on {given} ({type(error).__name__}: {reason}); do sizes and id "
            "ranges in --input fit it?"
        ) from error
