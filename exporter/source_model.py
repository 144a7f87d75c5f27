"""Run the source model in PyTorch, under exactly the conditions it is captured in.

Verification compares against this, so both sides of the comparison mean the same model.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from exporter.checkpoint import LoadedModel
from exporter.checkpoint.probing import probing
from exporter.errors import CaptureError
from exporter.inputs import Feeds

__all__ = ["FlatModule", "export_conditions", "run_source", "source_runner"]

_LOGGERS = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")


def run_source(loaded: LoadedModel, feeds: Feeds) -> dict[str, np.ndarray]:
    """Run the PyTorch model in eval mode; return its named outputs."""
    with export_conditions(loaded.module):
        flat = FlatModule(loaded)
        outputs = flat(*(torch.from_numpy(feeds[spec.name]) for spec in loaded.inputs.specs))
    return {name: value.detach().numpy() for name, value in zip(flat.names, outputs, strict=True)}


def source_runner(loaded: LoadedModel) -> Callable[[Feeds], Mapping[str, np.ndarray]]:
    """Return :func:`run_source` bound to ``loaded``."""
    return lambda feeds: run_source(loaded, feeds)


@contextmanager
def export_conditions(module: nn.Module) -> Iterator[None]:
    """Evaluate ``module`` without its fused attention path, and keep torch's exporter quiet.

    The fused path of ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` is one
    opaque operator without an ONNX form, and gives zeros at padded positions. Modes,
    switches and log levels are restored on exit.
    """
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with probing(module), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


class FlatModule(nn.Module):
    """Takes inputs in their order, gives a flat tuple of tensors and their ``names``."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__()
        self.module = loaded.module
        self.input_names = tuple(spec.name for spec in loaded.inputs.specs)
        self.wanted = loaded.output_names
        self.names: tuple[str, ...] = ()
        self.training = False

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Run the module; ``values`` are in the order of its inputs."""
        feeds = dict(zip(self.input_names, values, strict=True))
        pairs = list(_named_tensors(self.module(**feeds), ""))
        found = dict(pairs)
        if len(found) < len(pairs):
            names = ", ".join(name for name, _ in pairs)
            raise CaptureError(f"the model returns two tensors under one name: {names}")
        if not found:
            raise CaptureError("the model's forward returns no tensor; nothing can be exported")
        if self.wanted and len(self.wanted) != len(found):
            raise CaptureError(
                f"the model returns {len(found)} tensors where {len(self.wanted)} are expected: "
                f"{', '.join(self.wanted)}"
            )
        self.names = self.wanted or tuple(found)
        return tuple(found.values())


def _named_tensors(value: object, name: str) -> Iterator[tuple[str, Tensor]]:
    """Walk what a forward returned: a tensor, a sequence, or a mapping (Hugging Face's outputs).

    ``name`` is empty at the top. ``{"a": (x, y), "b": {"c": z}}`` gives ``a_0``, ``a_1``, ``b_c``.
    """
    if isinstance(value, Tensor):
        yield name or "output", value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named_tensors(item, f"{name}_{key}" if name else str(key))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from _named_tensors(dict(zip(value._fields, value, strict=True)), name)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            numbered = f"{name or 'output'}_{index}"
            yield from _named_tensors(item, name if len(value) == 1 else numbered)
