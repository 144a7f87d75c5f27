"""The demo model's folder: where it is, how it is written, how it is read back."""

from __future__ import annotations

import copy
import pickle
import tempfile
import textwrap
from pathlib import Path

import torch
from tokenizers import Tokenizer

from exporter.errors import ArtifactError, CheckpointError
from exporter.models import EncoderConfig, SharedEncoder, save_checkpoint
from exporter.training.tokenizer import save_tokenizer

__all__ = ["CHECKPOINT", "DEMO_FOLDER", "load_demo", "save_demo"]

DEMO_FOLDER = Path(__file__).resolve().parents[1] / "demo_model"
CHECKPOINT = "model.pt"
TOKENIZER = "tokenizer.json"


def save_demo(
    model: SharedEncoder, tokenizer: Tokenizer, folder: Path, *, half: bool = False
) -> None:
    """Write ``model.pt``, ``tokenizer.json`` and ``tokenizer_config.json``, each atomically.

    Args:
        model: the classifier.
        tokenizer: its own.
        folder: where they go.
        half: store the weights in float16, at half the bytes and with three digits.

    Raises:
        ArtifactError: one cannot be written.
    """
    if half:
        model = copy.deepcopy(model).half()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".saving-") as staging:
            # Under its final name: torch.save writes the file's name into the file.
            staged = Path(staging) / CHECKPOINT
            save_checkpoint(model, staged)
            staged.replace(folder / CHECKPOINT)
    except (OSError, RuntimeError) as error:  # torch's own writer raises the latter
        reason = textwrap.shorten(str(error), 200)
        raise ArtifactError(f"cannot write {folder / CHECKPOINT}: {reason}") from error
    save_tokenizer(tokenizer, folder)


def load_demo(folder: Path = DEMO_FOLDER) -> tuple[SharedEncoder, Tokenizer]:
    """Read the classifier, in eval mode, and its tokenizer. Runs no code from the file.

    Raises:
        CheckpointError: a file is missing, or is not what :func:`save_demo` writes.
    """
    for name in (CHECKPOINT, TOKENIZER):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} holds no {name}; train a model into it first")
    try:
        content = torch.load(folder / CHECKPOINT, weights_only=True)
        model = SharedEncoder(EncoderConfig.from_dict(content["config"]))
        model.load_state_dict(content["state_dict"])
    except (
        EOFError,
        pickle.UnpicklingError,
        RuntimeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        # PyTorch's own words on these advise to read the file unsafely, or are none.
        broken = isinstance(error, (EOFError, LookupError, pickle.UnpicklingError))
        # Elsewhere it lists every key on a line.
        reason = "it is damaged" if broken else textwrap.shorten(str(error), 300)
        raise CheckpointError(
            f"{folder / CHECKPOINT} is not a demo checkpoint: {reason}"
        ) from error
    try:
        return model.eval(), Tokenizer.from_file(str(folder / TOKENIZER))
    except Exception as error:  # the class is plain Exception
        raise CheckpointError(f"{folder / TOKENIZER} is no tokenizer: {error}") from error
