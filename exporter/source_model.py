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

__all__ = [
    "FlatModule",
    "export_conditions",
    "first_line",
    "run_flat",
    "run_source",
    "source_runner",
]

_LOGGERS = (
    "torch.onnx",
    "torch.export",
    "torch._export",
    "torch._dynamo",
    "torch.fx",
    "torch.fx.experimental.symbolic_shapes",
    "onnxscript",
    "onnx_ir",
)


def run_source(loaded: LoadedModel, feeds: Feeds) -> dict[str, np.ndarray]:
    """Run the PyTorch model in eval mode; return its named outputs.

    Raises:
        CaptureError: the model fails on ``feeds``, or returns no named tensors.
    """
    with export_conditions(loaded.module):
        flat = FlatModule(loaded)
        outputs = run_flat(flat, loaded, feeds)
    return {name: value.detach().numpy() for name, value in zip(flat.names, outputs, strict=True)}


def run_flat(flat: FlatModule, loaded: LoadedModel, feeds: Feeds) -> tuple[Tensor, ...]:
    """Run the wrapper of ``loaded``; what its ``forward`` raises is told with the sizes.

    Raises:
        CaptureError: the model fails on ``feeds``.
    """
    values = [torch.from_numpy(feeds[spec.name]) for spec in loaded.inputs.specs]
    try:
        outputs: tuple[Tensor, ...] = flat(*values)
    except CaptureError:
        raise
    except Exception as error:
        given = ", ".join(
            f"{spec.name} {list(value.shape)}"
            for spec, value in zip(loaded.inputs.specs, values, strict=True)
        )
        raise CaptureError(
            f"the model fails on {given}: {first_line(error)}; {_advice(loaded)}"
        ) from error
    return outputs


def _advice(loaded: LoadedModel) -> str:
    if loaded.program is not None:
        return "if it takes other sizes, export the program again and say so in its dynamic_shapes"
    spec = next((s for s in loaded.inputs.specs if any(isinstance(d, str) for d in s.shape)), None)
    if spec is None:
        return "check --input"
    limited = [size for size in spec.shape if isinstance(size, str)][-1]
    sizes = (f"{size}<=N" if size == limited else str(size) for size in spec.shape)
    upper = "" if spec.upper is None else f"<{spec.upper}"
    example = f"{spec.name}:{spec.dtype}[{','.join(sizes)}]{upper}"
    return f"if it takes less, or one size alone, say so: --input '{example}'"


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


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
    """Takes inputs in their order, gives a flat tuple of tensors and their ``names``.

    An output that is called like an input or a weight gets another name, since a graph has
    one name per value; ``renamed`` holds these: what the model calls it → its name.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__()
        self.module = loaded.module
        self.input_names = tuple(spec.name for spec in loaded.inputs.specs)
        self.wanted = loaded.output_names
        self.names: tuple[str, ...] = ()
        self.renamed: dict[str, str] = {}
        self.taken = {*self.input_names, *_weight_names(loaded)}
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
        self.renamed = {name: self._free(name, found) for name in found if name in self.taken}
        self.names = self.wanted or tuple(self.renamed.get(name, name) for name in found)
        return tuple(found.values())

    def _free(self, name: str, found: Mapping[str, Tensor]) -> str:
        while name in self.taken or name in found:
            name += "_out"
        return name


def _weight_names(loaded: LoadedModel) -> set[str]:
    if loaded.program is not None:
        return {*loaded.program.state_dict, *loaded.program.constants}
    module = loaded.module
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers())
    return {name for name, _ in named}


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
