"""Export the models that the repair benchmark starts from, with torch's own exporters.

    python benchmarks/repair/exports.py FOLDER

A process of its own, so that the memory of torch is not in the figures of what follows.
Every parameter is random, biases and normalizations too: equal ones would be stored once
whatever a tool does.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertForMaskedLM, AlbertModel

OPSET = 18
LENGTH = 16


def main() -> None:
    """Write the files that are not there yet."""
    folder = Path(sys.argv[1])
    for name, export in EXPORTS.items():
        path = folder / name
        if not path.exists():
            print(f"exporting {name} …", file=sys.stderr)
            unfinished = path.with_suffix(".part")
            torch.manual_seed(0)
            export(unfinished)
            unfinished.rename(path)


def export_base(path: Path) -> None:
    """ALBERT-base by the TorchScript exporter."""
    outputs = ["last_hidden_state", "pooler_output"]
    _export_torchscript(_randomized(AlbertModel(_config())), outputs, path)


def export_tied(path: Path) -> None:
    """ALBERT-base for masked language modelling, embedding and head tied."""
    _export_torchscript(_randomized(AlbertForMaskedLM(_config())), ["logits"], path)


def export_distinct_parameters(path: Path) -> None:
    """A chain of blocks whose ``Parameter`` objects are distinct and share one storage."""
    names = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    torch.onnx.export(
        DistinctParameters().eval(),
        (torch.randint(0, DistinctParameters.VOCABULARY, (2, LENGTH)),),
        path,
        dynamo=True,
        opset_version=OPSET,
        input_names=["input_ids"],
        output_names=["logits"],
        dynamic_shapes=(names,),
        external_data=False,
        verbose=False,
    )


EXPORTS: dict[str, Callable[[Path], None]] = {
    "torchscript.onnx": export_base,
    "torchscript_tied.onnx": export_tied,
    "dynamo_distinct_parameters.onnx": export_distinct_parameters,
}


class DistinctParameters(nn.Module):
    """Six passes through two blocks that are one in storage; the head over the embedding's."""

    VOCABULARY, WIDTH, INNER, PASSES = 2000, 256, 1024, 6

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.VOCABULARY, self.WIDTH)
        self.head = nn.Linear(self.WIDTH, self.VOCABULARY)
        first = _randomized(Block(self.WIDTH, self.INNER))
        second = copy.deepcopy(first)
        for (_, source), (name, _) in zip(
            first.named_parameters(), list(second.named_parameters()), strict=True
        ):
            owner, _, leaf = name.rpartition(".")
            setattr(second.get_submodule(owner), leaf, nn.Parameter(source.detach()))
        self.blocks = nn.ModuleList([first, second])
        self.head.weight = nn.Parameter(self.embedding.weight.detach())

    def forward(self, ids: Tensor) -> Any:
        """Map ids ``[batch, sequence]`` to logits ``[batch, sequence, vocabulary]``."""
        hidden = self.embedding(ids)
        for number in range(self.PASSES):
            hidden = self.blocks[number % 2](hidden)
        return self.head(hidden)


class Block(nn.Module):
    """Four linear layers and a normalization."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up_1, self.down_1 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.up_2, self.down_2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor) -> Any:
        """Keep the shape ``[batch, sequence, width]``."""
        hidden = hidden + self.down_1(torch.relu(self.up_1(hidden)))
        return self.norm(hidden + self.down_2(torch.relu(self.up_2(hidden))))


class Tensors(nn.Module):
    """A Hugging Face model that takes and gives plain tensors."""

    def __init__(self, model: nn.Module, outputs: list[str]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, ...]:
        """Run on ``[batch, sequence]`` each; return the named outputs."""
        result = self.model(input_ids=ids, attention_mask=mask, token_type_ids=types)
        return tuple(result[name] for name in self.outputs)


def _config() -> AlbertConfig:
    # The attention that other tools' fusions know.
    return AlbertConfig(
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        attn_implementation="eager",
    )


def _randomized(module: nn.Module) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    return module


def _export_torchscript(model: nn.Module, outputs: list[str], path: Path) -> None:
    ids = torch.randint(0, 30000, (2, LENGTH))
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    mask[1, LENGTH // 2 :] = 0
    names = ["input_ids", "attention_mask", "token_type_ids"]
    torch.onnx.export(
        Tensors(model.eval(), outputs),
        (ids, mask, types),
        str(path),
        dynamo=False,
        opset_version=OPSET,
        input_names=names,
        output_names=outputs,
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in names},
    )


if __name__ == "__main__":
    main()
