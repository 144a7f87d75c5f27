from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

from exporter.accounting import count_graph
from exporter.checkpoint import load_checkpoint
from exporter.errors import ExportError
from exporter.inputs import verification_cases
from exporter.source_model import run_source
from tests.capturing import graph_of, session_of, worst_error
from tests.samples import worst_difference

ATOL = 1e-5

TINY = {
    "vocab_size": 60,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 20,
}
ALBERT_HEADS = {
    "AlbertModel": ["last_hidden_state", "pooler_output"],
    "AlbertForMaskedLM": ["logits"],
    "AlbertForSequenceClassification": ["logits"],
    "AlbertForTokenClassification": ["logits"],
    "AlbertForQuestionAnswering": ["start_logits", "end_logits"],
}
BERT_HEADS = {
    "BertModel": ["last_hidden_state", "pooler_output"],
    "BertForSequenceClassification": ["logits"],
}
Saved = Callable[[str], Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Save a tiny, randomly initialized architecture in a folder of its own, once."""
    import transformers

    folders = tmp_path_factory.mktemp("huggingface")

    def save(architecture: str, dtype: torch.dtype = torch.float32) -> Path:
        folder = folders / f"{architecture}-{dtype}"
        if not folder.exists():
            if architecture.startswith("Albert"):
                config = transformers.AlbertConfig(**TINY, embedding_size=8)
            else:
                config = transformers.BertConfig(**TINY)
            # Two layers show sharing; for the other heads one does, in half the time.
            config.num_hidden_layers = 2 if architecture == "AlbertForMaskedLM" else 1
            torch.manual_seed(0)
            model = getattr(transformers, architecture)(config)
            for parameter in model.parameters():
                nn.init.normal_(parameter, mean=0.02, std=0.3)
            model.to(dtype).save_pretrained(folder)
        return folder

    return save


@pytest.mark.parametrize("token_types", [True, False])
@pytest.mark.parametrize(("architecture", "outputs"), (ALBERT_HEADS | BERT_HEADS).items())
def test_hugging_face_heads_equal_pytorch_on_every_standard_case(
    saved: Saved, tmp_path: Path, architecture: str, outputs: list[str], token_types: bool
) -> None:
    names = ["input_ids", "attention_mask", "token_type_ids"][: 3 if token_types else 2]
    loaded = load_checkpoint(saved(architecture), inputs=names)
    model = graph_of(loaded)
    assert [v.name for v in model.graph.inputs] == names
    assert [v.name for v in model.graph.outputs] == outputs
    assert count_graph(model).stored_bytes <= loaded.sharing.held_bytes + 4096
    session = session_of(model, tmp_path)
    cases = {case.name: case.feeds for case in verification_cases(loaded.inputs)}
    assert {"1x1", "3x8", "1x17", "maximum length", "padded", "all-padding row"} <= cases.keys()
    for name, feeds in cases.items():
        expected = run_source(loaded, feeds)
        assert worst_difference(expected, dict(session.run(feeds))) <= ATOL, name
    with pytest.raises(ExportError, match="failed to run"):
        session.run(loaded.inputs.draw({"batch": 1, "sequence": 21}))


def test_bfloat16_weights_are_exported_as_float32(saved: Saved, tmp_path: Path) -> None:
    loaded = load_checkpoint(saved("AlbertForMaskedLM", torch.bfloat16))
    assert any("converted to float32" in notice for notice in loaded.notices)
    model = graph_of(loaded)
    types = {v.const_value.dtype for v in model.graph.initializers.values()}  # type: ignore[union-attr]
    assert ir.DataType.BFLOAT16 not in types
    session = session_of(model, tmp_path)
    feeds = loaded.inputs.draw({"batch": 2, "sequence": 7}, lengths=[7, 3])
    output = session.run(feeds)["logits"]
    assert output.dtype == np.float32
    assert math.isfinite(float(output.sum()))
    assert worst_error(loaded, session) <= ATOL
