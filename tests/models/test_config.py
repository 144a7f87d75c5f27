from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.models import EncoderConfig, SharingScheme
from tests.samples import tiny_config


def test_defaults_are_the_shape_of_albert_base() -> None:
    config = EncoderConfig()
    assert (config.vocab_size, config.embedding_size, config.hidden_size) == (30_000, 128, 768)
    assert (config.num_hidden_layers, config.num_attention_heads) == (12, 12)
    assert (config.intermediate_size, config.max_position_embeddings) == (3072, 512)
    assert (str(config.sharing), config.head, config.dropout) == ("all", "none", 0.0)


def test_a_configuration_reads_back_from_its_json() -> None:
    labels = tuple(f"label {i}" for i in range(12))  # "10" sorts before "2" as text
    config = tiny_config(
        sharing=SharingScheme("grouped", 2),
        head="sequence_classification",
        labels=labels,
        dropout=0.1,
    )
    values = json.loads(json.dumps(config.to_dict()))
    assert values["sharing"] == "grouped(2)"
    assert values["id2label"]["10"] == "label 10"
    assert values["label2id"]["label 10"] == 10
    assert EncoderConfig.from_dict(values) == config


def test_keys_of_other_tools_are_passed_over() -> None:
    values = tiny_config().to_dict() | {"transformers_version": "5.0", "torch_dtype": "float32"}
    assert EncoderConfig.from_dict(values) == tiny_config()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be at least 1, not 0"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple of num_attention_heads 5"),
        ({"embedding_size": 33}, "embedding_size must not exceed hidden_size"),
        ({"head": "translation"}, "unknown head 'translation'; one of: none"),
        ({"head": "sequence_classification"}, "needs at least two labels"),
        ({"sharing": SharingScheme("grouped", 3)}, "3 groups need at least as many layers, not 2"),
    ],
)
def test_sizes_that_do_not_fit_each_other_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        tiny_config(**changes)


def test_another_model_type_and_a_fractional_size_are_refused() -> None:
    values = tiny_config().to_dict()
    with pytest.raises(ValueError, match="model_type is 'albert', not 'shared_encoder'"):
        EncoderConfig.from_dict(values | {"model_type": "albert"})
    with pytest.raises(ValueError, match=r"hidden_size must be a whole number, not 32\.5"):
        EncoderConfig.from_dict(values | {"hidden_size": 32.5})


def test_a_depth_beyond_all_reason_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="num_hidden_layers must be at most 10000"):
        EncoderConfig(num_hidden_layers=1_000_000_000)
