"""Find the tokenizer files that stand beside a model."""

from __future__ import annotations

from pathlib import Path

__all__ = ["find_tokenizer_files"]

_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
_VOCABULARIES = ("spiece.model", "vocab.txt", "vocab.json")


def find_tokenizer_files(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """Return the tokenizer files in ``folder`` by name, and what a browser would miss."""
    found = {name: folder / name for name in _FILES if (folder / name).is_file()}
    if "tokenizer.json" in found:
        return found, []
    vocabulary = next((name for name in _VOCABULARIES if name in found), None)
    if vocabulary:
        return found, [
            f"the tokenizer is there as {vocabulary} only; a browser needs tokenizer.json: write "
            "it with transformers' AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        ]
    return found, ["no tokenizer found; a browser needs tokenizer.json beside the model"]
