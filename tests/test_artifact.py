from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.artifact import (
    MANIFEST_NAME,
    MANIFEST_SCHEMA,
    Artifact,
    StagedArtifact,
    check_destination,
    sha256_file,
)
from exporter.errors import ArtifactError
from tests.samples import ids_inputs, names_in

MANIFEST: dict[str, Any] = {
    "inputs": ids_inputs(100, 64).to_dict(),
    "models": [{"variant": "fp32", "path": "onnx/model.onnx"}],
    "verdict": "passed",
}


def make(destination: Path, content: bytes = b"weights", *, replace: bool = False) -> Artifact:
    with StagedArtifact(destination, replace=replace) as staged:
        (staged.folder / "onnx").mkdir()
        (staged.folder / "onnx/model.onnx").write_bytes(content)
        staged.add_json("config.json", {"labels": ["größer"]})
        return staged.commit(MANIFEST)


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_a_committed_artifact_holds_its_files_and_their_hashes(tmp_path: Path) -> None:
    made = make(tmp_path / "out")
    loaded = Artifact.load(tmp_path / "out", check_hashes=True)
    assert loaded.manifest == made.manifest
    assert loaded.manifest["schema"] == MANIFEST_SCHEMA == 2
    files = loaded.manifest["files"]
    assert sorted(files) == ["config.json", "onnx/model.onnx"]
    assert files["onnx/model.onnx"] == {
        "bytes": 7,
        "sha256": sha256_file(tmp_path / "out/onnx/model.onnx"),
    }
    assert loaded.models() == {"fp32": tmp_path / "out/onnx/model.onnx"}
    assert loaded.inputs == ids_inputs(100, 64)
    assert names_in(tmp_path) == ["out"]
    assert "größer" in (tmp_path / "out/config.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_interrupted_staging_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    with (
        pytest.raises(error),
        StagedArtifact(tmp_path / "new" / "deep" / "out") as staged,
    ):
        (staged.folder / "half").write_bytes(b"x")
        raise error
    assert names_in(tmp_path) == []


def test_a_folder_made_for_the_artifact_stays_if_somebody_else_uses_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError), StagedArtifact(tmp_path / "new" / "out"):
        (tmp_path / "new" / "mine.txt").write_text("mine")
        raise ValueError
    assert names_in(tmp_path / "new") == ["mine.txt"]


def test_missing_parents_are_made(tmp_path: Path) -> None:
    make(tmp_path / "a" / "b" / "out")
    assert Artifact.load(tmp_path / "a" / "b" / "out").manifest["verdict"] == "passed"


def test_replacing_takes_away_the_files_of_the_old_artifact(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(out, b"old")
    (out / "left.txt").write_text("old")
    make(out, b"new", replace=True)
    assert (out / "onnx/model.onnx").read_bytes() == b"new"
    assert not (out / "left.txt").exists()
    assert names_in(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_the_old_artifact_survives_a_commit_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    out = tmp_path / "out"
    make(out, b"old")
    rename = Path.rename

    def fail_for_the_new(self: Path, target: Path) -> Path:
        if ".partial-" in self.name:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises((ArtifactError, KeyboardInterrupt)) as raised:
        make(out, b"new", replace=True)
    if isinstance(error, OSError):
        assert str(raised.value) == f"cannot write {out}: No space left on device"
    monkeypatch.undo()
    assert (out / "onnx/model.onnx").read_bytes() == b"old"
    Artifact.load(out, check_hashes=True)
    assert names_in(tmp_path) == ["out"]


def test_a_destination_taken_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        pytest.raises(ArtifactError, match="exists and is no artifact"),
        StagedArtifact(out, replace=True) as staged,
    ):
        out.mkdir()
        (out / "mine.txt").write_text("mine")
        staged.commit(MANIFEST)
    assert names_in(out) == ["mine.txt"]
    assert names_in(tmp_path) == ["out"]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o002, 0o775)])
def test_the_folder_is_as_open_as_the_umask_allows(tmp_path: Path, mask: int, mode: int) -> None:
    with umask(mask):
        make(tmp_path / "out")
        assert os.umask(mask) == mask
    assert (tmp_path / "out").stat().st_mode & 0o777 == mode
    assert (tmp_path / "out/onnx/model.onnx").stat().st_mode & 0o777 == mode & 0o666


def test_files_are_copied_with_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text("tokens")
    (tmp_path / "link.json").symlink_to(tmp_path / "blob")
    with StagedArtifact(tmp_path / "out") as staged:
        staged.add_file("sub/tokenizer.json", tmp_path / "link.json")
        staged.commit(MANIFEST | {"models": []})
    copy = tmp_path / "out/sub/tokenizer.json"
    assert not copy.is_symlink()
    assert copy.read_text() == "tokens"


def test_a_model_file_is_taken_out_again_with_its_external_data(tmp_path: Path) -> None:
    with StagedArtifact(tmp_path / "out") as staged:
        (staged.folder / "onnx").mkdir()
        for name in ("model.onnx", "model.onnx_data", "model_q4.onnx", "model_q4.onnx_data"):
            (staged.folder / "onnx" / name).write_bytes(b"x")
        staged.remove("onnx/model.onnx")
        made = staged.commit(MANIFEST | {"models": []})
    assert list(made.manifest["files"]) == ["onnx/model_q4.onnx", "onnx/model_q4.onnx_data"]
    assert names_in(tmp_path / "out" / "onnx") == ["model_q4.onnx", "model_q4.onnx_data"]


def test_a_name_that_is_no_text_gives_a_valid_manifest(tmp_path: Path) -> None:
    name = os.fsdecode(b"model\xff.pt")
    with StagedArtifact(tmp_path / "out") as staged:
        staged.commit(MANIFEST | {"models": [], "source": {"name": name}})
    manifest = json.loads((tmp_path / "out" / MANIFEST_NAME).read_bytes().decode("utf-8"))
    assert manifest["source"]["name"] == name


def test_an_empty_folder_and_a_link_to_one_may_become_an_artifact(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    make(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "empty/onnx/model.onnx").read_bytes() == b"weights"
    make(tmp_path / "link", b"new", replace=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "empty/onnx/model.onnx").read_bytes() == b"new"
    assert names_in(tmp_path) == ["empty", "link"]


def test_the_working_folder_may_become_an_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    make(Path())
    assert (tmp_path / "here/onnx/model.onnx").read_bytes() == b"weights"
    assert names_in(tmp_path) == ["here"]


def test_what_is_no_artifact_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/mine.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(ArtifactError, match="is a file; choose another folder with -o"):
            check_destination(tmp_path / "file", replace=replace)
        with pytest.raises(ArtifactError, match="exists and is no artifact"):
            check_destination(tmp_path / "folder", replace=replace)


def test_an_artifact_is_replaced_only_if_asked(tmp_path: Path) -> None:
    make(tmp_path / "out")
    with pytest.raises(ArtifactError, match="--force replaces it"):
        check_destination(tmp_path / "out", replace=False)
    check_destination(tmp_path / "out", replace=True)


@pytest.mark.parametrize("source", ["out", "out/onnx", "out/onnx/model.onnx", "alias/config.json"])
def test_a_destination_that_holds_the_source_is_refused(tmp_path: Path, source: str) -> None:
    make(tmp_path / "out")
    (tmp_path / "alias").symlink_to("out")
    with pytest.raises(ArtifactError, match="holds the source model"):
        check_destination(tmp_path / "out", replace=True, source=tmp_path / source)
    check_destination(tmp_path / "out/new", replace=True, source=tmp_path / source)


def test_a_place_where_nothing_can_be_made_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match=r"cannot be made: .*file is no folder"):
        check_destination(tmp_path / "file" / "deep" / "out", replace=False)
    with pytest.raises(ArtifactError, match=r"cannot write to .*file"):
        StagedArtifact(tmp_path / "file" / "out").__enter__()
    check_destination(tmp_path / "not" / "yet" / "there", replace=False)


def test_a_folder_or_file_without_a_manifest_is_no_artifact(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("x")
    for path in (tmp_path, tmp_path / "model.onnx", tmp_path / "missing"):
        with pytest.raises(ArtifactError, match=r"is no artifact: it holds no albert-export.json"):
            Artifact.load(path)


def test_a_tampered_file_is_found_by_its_size_or_its_hash(tmp_path: Path) -> None:
    out = tmp_path / "out"
    make(out)
    model = out / "onnx/model.onnx"
    model.write_bytes(b"WEIGHTS")
    Artifact.load(out)
    with pytest.raises(ArtifactError, match=r"model\.onnx is not the file its manifest describes"):
        Artifact.load(out, check_hashes=True)
    model.write_bytes(b"weights and more")
    with pytest.raises(ArtifactError, match="has 16 bytes where the manifest says 7"):
        Artifact.load(out)
    model.unlink()
    with pytest.raises(ArtifactError, match=r"lacks onnx/model\.onnx"):
        Artifact.load(out)


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "onnx/../../secret"])
def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path: Path, name: str) -> None:
    make(tmp_path / "out")
    (tmp_path / "secret").write_bytes(b"secret")
    edit_manifest(tmp_path / "out", files={name: {"bytes": 6, "sha256": ""}}, models=[])
    with pytest.raises(ArtifactError, match="outside the artifact"):
        Artifact.load(tmp_path / "out")


def test_a_model_must_be_one_of_the_files(tmp_path: Path) -> None:
    make(tmp_path / "out")
    (tmp_path / "secret.onnx").write_bytes(b"secret")
    edit_manifest(tmp_path / "out", models=[{"variant": "fp32", "path": "../secret.onnx"}])
    with pytest.raises(ArtifactError, match=r"names the model '\.\./secret\.onnx'"):
        Artifact.load(tmp_path / "out")


@pytest.mark.parametrize("schema", [None, 0, 1, 3, "2"])
def test_another_schema_is_refused(tmp_path: Path, schema: object) -> None:
    make(tmp_path / "out")
    edit_manifest(tmp_path / "out", schema=schema)
    with pytest.raises(ArtifactError, match="this version reads 2; export the model again"):
        Artifact.load(tmp_path / "out")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 2}',
        '{"schema": 2, "files": []}',
        '{"schema": 2, "files": {"config.json": {"bytes": "many"}}}',
        '{"schema": 2, "files": {"config.json": 3}}',
        '{"schema": 2, "files": {}, "models": [1]}',
        '{"schema": 2, "files": {}, "models": [], "inputs": {"specs": [{"a": 1}], "limits": {}}}',
    ],
)
def test_a_damaged_manifest_is_one_clear_error(tmp_path: Path, text: str) -> None:
    make(tmp_path / "out")
    (tmp_path / "out" / MANIFEST_NAME).write_text(text)
    with pytest.raises(ArtifactError, match=r"albert-export\.json"):
        Artifact.load(tmp_path / "out", check_hashes=True)


def test_the_same_content_gives_the_same_manifest(tmp_path: Path) -> None:
    make(tmp_path / "one")
    make(tmp_path / "two")
    one, two = (tmp_path / name / MANIFEST_NAME for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_another_manifest_replaces_the_old_one_whole(tmp_path: Path) -> None:
    artifact = make(tmp_path / "a")
    written = artifact.with_manifest({**artifact.manifest, "more": "größer"})
    assert Artifact.load(tmp_path / "a", check_hashes=True) == written
    assert written.manifest["more"] == "größer"
    assert names_in(tmp_path / "a") == [MANIFEST_NAME, "config.json", "onnx"]


def test_a_manifest_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = make(tmp_path / "a")

    def fail(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ArtifactError, match="No space left"):
        artifact.with_manifest({"schema": 0})
    monkeypatch.undo()
    assert Artifact.load(tmp_path / "a").manifest == artifact.manifest
    assert names_in(tmp_path / "a") == [MANIFEST_NAME, "config.json", "onnx"]


def test_a_file_system_that_only_reads_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = make(tmp_path / "a")

    def fail(*args: object, **options: object) -> None:
        raise OSError(30, "Read-only file system")

    for act in ("open", "unlink"):  # which refuses even what is not there
        monkeypatch.setattr(Path, act, fail)
    with pytest.raises(ArtifactError, match=r"cannot write .*: Read-only file system"):
        artifact.with_manifest({"schema": 0})
