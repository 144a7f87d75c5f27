"""ALBERT-base as people have it: checkpoints, and the raw files of both of torch's exporters.

    python benchmarks/precisions/sources.py FOLDER

A process of its own, so that torch is not in the way of what follows. Every parameter is
random, biases and normalizations too: equal ones would be stored once whatever a tool does.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertForMaskedLM, AlbertModel, PreTrainedModel

OPSET = 18
LENGTH = 16
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
MODELS: dict[str, tuple[type[PreTrainedModel], list[str]]] = {
    "base": (AlbertModel, ["last_hidden_state", "pooler_output"]),
    "masked-lm": (AlbertForMaskedLM, ["logits"]),
}


class Tensors(nn.Module):
    """A Hugging Face model that takes and gives plain tensors."""

    def __init__(self, model: nn.Module, outputs: list[str]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> tuple[Tensor, ...]:
        """Run on ``[batch, sequence]`` each; return the named outputs."""
        result = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return tuple(result[name] for name in self.outputs)


def main() -> None:
    """Write what is not there yet."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, (kind, outputs) in MODELS.items():
        checkpoint = folder / name
        if not checkpoint.exists():
            torch.manual_seed(0)
            _randomized(kind(_config())).save_pretrained(checkpoint)
        model = kind.from_pretrained(checkpoint, attn_implementation="eager").eval()
        for exporter in ("torchscript", "dynamo"):
            path = folder / f"{name}-{exporter}.onnx"
            if not path.exists():
                print(f"exporting {path.name} …", file=sys.stderr)
                unfinished = path.with_suffix(".part")
                _export(Tensors(model, outputs), outputs, unfinished, dynamo=exporter == "dynamo")
                unfinished.rename(path)


def _config() -> AlbertConfig:
    return AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072)


def _randomized(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    return module


def _export(model: nn.Module, outputs: list[str], path: Path, *, dynamo: bool) -> None:
    ids = torch.randint(0, 30000, (2, LENGTH))
    mask, types = torch.ones_like(ids), torch.zeros_like(ids)
    mask[1, LENGTH // 2 :] = 0
    names = list(INPUTS)
    if dynamo:
        sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=512)}
        details: dict[str, Any] = {
            "dynamic_shapes": tuple(sizes for _ in names),
            "external_data": False,
            "verbose": False,
        }
    else:
        details = {"dynamic_axes": {name: {0: "batch", 1: "sequence"} for name in names}}
    torch.onnx.export(
        model,
        (ids, mask, types),
        str(path),
        dynamo=dynamo,
        opset_version=OPSET,
        input_names=names,
        output_names=outputs,
        **details,
    )


if __name__ == "__main__":
    main()
