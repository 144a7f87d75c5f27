"""Rows of nothing but padding: equal to the source, or left out and said so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.artifact import Artifact
from exporter.errors import ExportError, VerificationError
from exporter.pipeline import ExportOptions, export_model

TRUSTED = ExportOptions(trust_pickle=True, inputs=("input_ids", "attention_mask"))


class Masked(nn.Module):
    """An encoder layer of torch's own, whose attention over nothing is 0 in PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return the hidden state ``[B, S, 16]``."""
        hidden = self.embedding(input_ids)
        return self.layer(hidden, src_key_padding_mask=attention_mask == 0)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("masked")
    torch.manual_seed(0)
    torch.save(Masked(), folder / "masked.pt")
    return export_model(folder / "masked.pt", folder / "out", TRUSTED)


def test_attention_over_nothing_that_differs_is_left_out_and_said_so(masked: Artifact) -> None:
    assert masked.manifest["verdict"] == "passed"
    cases = {case["case"]: case for case in masked.manifest["models"][0]["verification"]["cases"]}
    assert cases["all-padding row"]["excluded_rows"] == [2]
    assert cases["all-padding row"]["outputs"][0]["shape"][0] == 2
    assert all(not c["excluded_rows"] for n, c in cases.items() if n != "all-padding row")
    assert any("nothing but padding" in notice for notice in masked.manifest["notices"])


def test_where_such_rows_agree_nothing_is_left_out(artifact: Artifact) -> None:
    cases = artifact.manifest["models"][0]["verification"]["cases"]
    assert "all-padding row" in [case["case"] for case in cases]
    assert all(case["excluded_rows"] == [] for case in cases)
    assert not any("padding" in notice for notice in artifact.manifest["notices"])


def test_other_rows_of_such_a_batch_are_still_held_to_the_tolerance(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    torch.save(Masked(), tmp_path / "masked.pt")
    options = ExportOptions(trust_pickle=True, inputs=TRUSTED.inputs, atol=1e-12)
    with pytest.raises(VerificationError, match="differs by"):
        export_model(tmp_path / "masked.pt", tmp_path / "out", options)


def test_an_elastic_depth_that_cannot_be_verified_is_refused(tmp_path: Path) -> None:
    elastic = ExportOptions(trust_pickle=True, inputs=TRUSTED.inputs, elastic_depth=True)
    torch.manual_seed(0)
    torch.save(Repeated(), tmp_path / "repeated.pt")
    with pytest.raises(ExportError, match="run at other depths"):
        export_model(tmp_path / "repeated.pt", tmp_path / "out", elastic)
    assert not (tmp_path / "out").exists()


class Repeated(nn.Module):
    """One layer applied three times, by a loop nobody can shorten."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.layer = nn.Linear(16, 16)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return ``[B, S, 16]``."""
        hidden = self.embedding(input_ids) * attention_mask.unsqueeze(-1)
        for _ in range(3):
            hidden = hidden + torch.relu(self.layer(hidden))
        return hidden
