"""Make the files of LiteRT.

    python litert_files.py SOURCE TARGET.tflite PRECISION

Reads a Hugging Face folder, or for int8 and int4 the float32 file; the file takes 1 row of 128
tokens. Runs in an environment of its own, where this project is not installed. Prints, as the
last line, how many weight operations were reached of how many: those that read a constant of
1,000 elements or more.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

ROWS, TOKENS = 1, 128


def main() -> None:
    """Convert or quantize, save, count."""
    source, target, precision = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    if precision == "fp32":
        convert(source, target)
    else:
        quantize(source, target, precision)
    reached, total, operators = coverage(target)
    print(json.dumps({"reached": reached, "total": total, "operators": operators}))


class Plain(torch.nn.Module):
    """ALBERT that takes and gives plain tensors."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> tuple[Any, Any]:
        """Run on ``[1, 128]`` each."""
        found = self.model(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return found.last_hidden_state, found.pooler_output


def convert(checkpoint: Path, target: Path) -> None:
    """Write the float32 file."""
    import litert_torch
    from transformers import AlbertModel

    model = AlbertModel.from_pretrained(checkpoint, attn_implementation="eager").eval()
    shape = (ROWS, TOKENS)
    ids, mask = torch.randint(0, 30000, shape), torch.ones(shape, dtype=torch.int64)
    # Three tensors: one that is given twice becomes one input of the graph.
    litert_torch.convert(Plain(model), (ids, mask, mask.clone() - 1)).export(str(target))


def quantize(source: Path, target: Path, precision: str) -> None:
    """Write weights in 8 or 4 bits; products quantize their activations when they run."""
    from ai_edge_quantizer import quantizer, recipe

    rules = recipe.dynamic_wi8_afp32() if precision == "int8" else recipe.dynamic_wi4_afp32()
    work = quantizer.Quantizer(str(source), rules)
    work.quantize().export_model(str(target), overwrite=True)


def coverage(path: Path) -> tuple[int, int, dict[str, int]]:
    """Count operations that read a large constant, and those where it has 8 bits or fewer."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    small = {schema.TensorType.INT8, schema.TensorType.INT4, schema.TensorType.UINT8}
    reached = total = 0
    operators: Counter[str] = Counter()
    names = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
    for graph in model.subgraphs:
        for operation in graph.operators:
            code = model.operatorCodes[operation.opcodeIndex].builtinCode
            for index in operation.inputs:
                tensor = graph.tensors[index] if index >= 0 else None
                if tensor is None or _elements(tensor) < 1000:
                    continue
                if _stored(model, tensor):
                    total += 1
                    reached += tensor.type in small
                    operators[names.get(code, str(code))] += 1
                    break
    return reached, total, dict(operators)


def _elements(tensor: Any) -> int:
    count = 1
    for size in tensor.shape if tensor.shape is not None else ():
        count *= int(size)
    return count


def _stored(model: Any, tensor: Any) -> bool:
    buffer = model.buffers[tensor.buffer]
    return buffer.data is not None or bool(getattr(buffer, "size", 0))


if __name__ == "__main__":
    main()
