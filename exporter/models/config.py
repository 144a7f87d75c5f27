"""The reference encoder's configuration, under Hugging Face's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from exporter.models.sharing import SharingScheme

__all__ = ["MODEL_TYPE", "EncoderConfig", "Head"]

MODEL_TYPE = "shared_encoder"

Head = Literal["none", "sequence_classification", "masked_lm"]


@dataclass(frozen=True)
class EncoderConfig:
    """Shape of a :class:`~exporter.models.encoder.SharedEncoder`; defaults are ALBERT-base's.

    ``embedding_size`` below ``hidden_size`` factorizes the embedding
    (``[vocab, E] @ [E, H]``); equal to it, the embedding is a full ``[vocab, H]`` table.

    Raises:
        ValueError: a size that is not positive, a width the heads do not divide,
            an unknown head, or more groups than layers.
    """

    vocab_size: int = 30_000
    embedding_size: int = 128
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    sharing: SharingScheme = field(default_factory=SharingScheme)
    head: Head = "none"
    labels: tuple[str, ...] = ()
    pad_token_id: int = 0
    dropout: float = 0.0
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.num_hidden_layers > _DEEPEST:
            raise ValueError(
                f"num_hidden_layers must be at most {_DEEPEST}, not {self.num_hidden_layers}"
            )
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not a multiple of "
                f"num_attention_heads {self.num_attention_heads}"
            )
        if self.embedding_size > self.hidden_size:
            raise ValueError("embedding_size must not exceed hidden_size")
        if self.head not in get_args(Head):
            raise ValueError(f"unknown head {self.head!r}; one of: {', '.join(get_args(Head))}")
        if self.head == "sequence_classification" and len(self.labels) < 2:
            raise ValueError("a sequence_classification head needs at least two labels")
        # Refuses more groups than layers.
        self.sharing.attention_block(0, self.num_hidden_layers)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``config.json``: plain JSON values, Hugging Face's keys."""
        values = asdict(self)
        labels = values.pop("labels")
        values["sharing"] = str(self.sharing)
        values["model_type"] = MODEL_TYPE
        values["architectures"] = ["SharedEncoder"]
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> EncoderConfig:
        """Read what :meth:`to_dict` wrote; keys it does not know are ignored.

        Raises:
            ValueError: another ``model_type``, or a value that does not fit.
        """
        if values.get("model_type") != MODEL_TYPE:
            raise ValueError(f"model_type is {values.get('model_type')!r}, not {MODEL_TYPE!r}")
        known = {item.name for item in fields(cls)} - {"sharing", "labels"}
        chosen = {name: values[name] for name in known if name in values}
        for name in _SIZES:
            if not isinstance(chosen.get(name, 1), int):
                raise ValueError(f"{name} must be a whole number, not {chosen[name]!r}")
        id2label = values.get("id2label") or {}
        return cls(
            sharing=SharingScheme.parse(str(values.get("sharing", "all"))),
            labels=tuple(id2label[key] for key in sorted(id2label, key=int)),
            **chosen,
        )


_DEEPEST = 10_000
"""Layers that are still a model and not a slip of the pen."""

_SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
)
