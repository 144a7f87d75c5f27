from __future__ import annotations

from pathlib import Path

import pytest

from exporter.checkpoint import load_checkpoint
from exporter.models import save_checkpoint
from tests.checkpoint.helpers import save_folder, tiny_huggingface, tiny_reference


@pytest.mark.parametrize(
    ("files", "notice"),
    [
        (["tokenizer.json", "spiece.model"], None),
        (["tokenizer.json"], None),
        (["spiece.model", "tokenizer_config.json"], "as spiece.model only; a browser needs"),
        (["vocab.txt"], "as vocab.txt only; a browser needs"),
        ([], "no tokenizer found; a browser needs tokenizer.json"),
    ],
)
def test_tokenizer_files_become_assets_and_what_is_missing_is_said(
    tmp_path: Path, files: list[str], notice: str | None
) -> None:
    folder = save_folder(tiny_huggingface("Albert"), tmp_path / "folder")
    save_checkpoint(tiny_reference(), folder / "model.pt")
    for name in files:
        (folder / name).write_text(name)
    for path in (folder, folder / "model.pt"):
        loaded = load_checkpoint(path)
        assert loaded.assets == {name: folder / name for name in files}
        said = [n for n in loaded.notices if "tokenizer" in n]
        assert len(said) == (notice is not None)
        assert notice is None or notice in said[0]
        assert loaded.sharing.unique_bytes > 0
