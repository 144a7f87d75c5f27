"""Exports that several tests look at; made once, since capturing takes seconds."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from exporter.artifact import Artifact
from exporter.capture import Captured, capture
from exporter.checkpoint import load_checkpoint
from exporter.models import SharedEncoder, save_checkpoint
from exporter.pipeline import ExportOptions, export_model
from tests.samples import tiny_encoder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models run fastest on one thread, and the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def heard_interruptions() -> None:
    """Tests send Ctrl-C, which a shell that started them in the background has switched off."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def encoder() -> SharedEncoder:
    """A reference encoder of 3 MB, with dropout, which must not reach the graph."""
    return tiny_encoder(
        vocab_size=5000,
        embedding_size=80,
        hidden_size=128,
        intermediate_size=1024,
        dropout=0.1,
    )


@pytest.fixture(scope="session")
def checkpoint(encoder: SharedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The encoder's ``.pt``."""
    path = tmp_path_factory.mktemp("source") / "model.pt"
    save_checkpoint(encoder, path)
    return path


@pytest.fixture(scope="session")
def artifact(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """The encoder's artifact, with its unshared baseline. Read only."""
    destination = tmp_path_factory.mktemp("artifact") / "model-onnx"
    return export_model(checkpoint, destination, ExportOptions(with_baseline=True))


@pytest.fixture(scope="session")
def captured(checkpoint: Path) -> Captured:
    """The encoder's captured graph, before any pass. Clone it to change it."""
    return capture(load_checkpoint(checkpoint))


@pytest.fixture
def quick_capture(captured: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exports of the encoder use the graph captured before."""

    def clone(loaded: object, *, opset: int) -> Captured:
        return replace(captured, model=captured.model.clone())

    monkeypatch.setattr("exporter.pipeline.checkpoint.capture", clone)
