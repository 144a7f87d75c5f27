"""The artifact: a folder of models, tokenizer and manifest, written whole or not at all.

The layout is the one transformers.js loads::

    config.json, tokenizer.json, …    assets, as the source had them
    onnx/model.onnx, …                the exported model, one file per precision
    baseline/model.onnx, …            the unshared baseline, if asked for
    reference.json                    some inputs and the source's outputs
    albert-export.json                the manifest

Files are written to a staging folder beside the destination; :meth:`StagedArtifact.commit`
hashes them, writes the manifest and renames the folder into place.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from exporter.atomic_writing import write_atomically
from exporter.errors import ArtifactError
from exporter.inputs import ModelInputs

__all__ = [
    "MANIFEST_NAME",
    "MANIFEST_SCHEMA",
    "Artifact",
    "StagedArtifact",
    "artifact_names",
    "check_destination",
    "combined_digest",
    "sha256_file",
]

MANIFEST_NAME = "albert-export.json"
MANIFEST_SCHEMA = 2


@dataclass(frozen=True)
class Artifact:
    """A committed artifact: its folder and its manifest's content."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def inputs(self) -> ModelInputs:
        """What the models of the artifact take."""
        return ModelInputs.from_dict(self.manifest["inputs"])

    def models(self) -> dict[str, Path]:
        """Return the model files by variant: ``fp32``, ``baseline``, …"""
        return {
            record["variant"]: self.folder / record["path"] for record in self.manifest["models"]
        }

    def files_of(self, model: str) -> list[str]:
        """Return the model file ``model`` and its external data, as the manifest lists them."""
        data = [name for name in self.manifest["files"] if name.startswith(f"{model}_data")]
        return [model, *sorted(data)]

    def digest_of(self, model: str) -> str:
        """Return the hash that stands for the model file ``model`` with its external data."""
        files = self.manifest["files"]
        return combined_digest([files[name]["sha256"] for name in self.files_of(model)])

    def with_manifest(self, manifest: Mapping[str, Any]) -> Artifact:
        """Replace the manifest, whole or not at all; the files stay as they are.

        Raises:
            ArtifactError: it cannot be written.
        """
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        write_atomically(self.folder / MANIFEST_NAME, text.encode(errors="backslashreplace"))
        return Artifact(self.folder, json.loads(text))

    @classmethod
    def load(cls, folder: Path, *, check_hashes: bool = False) -> Artifact:
        """Read an artifact and check that its files are the ones its manifest names.

        Args:
            folder: the artifact's folder.
            check_hashes: also read every file and compare its hash.

        Raises:
            ArtifactError: no manifest, an unreadable one, another schema version, or a
                file that is missing, outside the folder, of another size or hash.
        """
        path = folder / MANIFEST_NAME
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise ArtifactError(
                f"{folder} is no artifact: it holds no {MANIFEST_NAME}; "
                "make one with: albert-export MODEL -o FOLDER"
            ) from None
        except (OSError, ValueError) as error:
            raise ArtifactError(f"{path} cannot be read: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("schema") != MANIFEST_SCHEMA:
            found = manifest.get("schema") if isinstance(manifest, dict) else None
            raise ArtifactError(
                f"{path} has schema {found!r}; this version reads {MANIFEST_SCHEMA}; "
                "export the model again"
            )
        try:
            for name, expected in manifest["files"].items():
                _check_file(folder, name, expected, check_hashes=check_hashes)
            for record in manifest["models"]:
                if record["path"] not in manifest["files"]:
                    raise ArtifactError(
                        f"{path} names the model {record['path']!r} but no such file"
                    )
                record["variant"]
            ModelInputs.from_dict(manifest["inputs"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ArtifactError(f"{path} is incomplete: {error!r}; export again") from error
        return cls(folder, manifest)


@dataclass
class StagedArtifact:
    """A folder being filled; leaving the ``with`` block uncommitted removes it.

    Args:
        destination: where :meth:`commit` puts it.
        replace: an artifact already there is replaced.
    """

    destination: Path
    replace: bool = False
    folder: Path = field(init=False)
    _made: list[Path] = field(init=False, default_factory=list)

    def __enter__(self) -> StagedArtifact:
        # Through links and dots, so that renaming replaces what they lead to.
        target = self.destination.resolve()
        parent = target.parent
        try:
            self._made = [p for p in (parent, *parent.parents) if not p.exists()]
            parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{target.name}.partial-"
            self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            self.folder.chmod(0o777 & ~_umask())  # mkdtemp's 0700 would hide the result
        except OSError as error:
            self._remove_made()
            raise ArtifactError(f"cannot write to {parent}: {error.strerror}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._remove_made()

    def _remove_made(self) -> None:
        """Remove the parents made for an artifact that was not committed after all."""
        with suppress(OSError):  # not empty: it was committed, or somebody else uses them
            for folder in self._made:
                folder.rmdir()

    def add_file(self, name: str, source: Path) -> None:
        """Copy ``source`` into the artifact as ``name``."""
        target = self.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)

    def add_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write ``content`` into the artifact as ``name``."""
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        # A file name that is no valid text holds lone surrogates; "\\udcff" is JSON for one.
        (self.folder / name).write_text(text, encoding="utf-8", errors="backslashreplace")

    def remove(self, name: str) -> None:
        """Take the model file ``name`` and its external data out again."""
        path = self.folder / name
        path.unlink()
        path.with_name(f"{path.name}_data").unlink(missing_ok=True)

    def commit(self, manifest: Mapping[str, Any]) -> Artifact:
        """Add the files' sizes and hashes to ``manifest``, write it, rename into place.

        Raises:
            ArtifactError: the destination is taken, or the rename fails; what was there
                before is then still there.
        """
        files = {
            path.relative_to(self.folder).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": sha256_file(path),
            }
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }
        complete = {"schema": MANIFEST_SCHEMA, **manifest, "files": files}
        self.add_json(MANIFEST_NAME, complete)
        check_destination(self.destination, replace=self.replace)
        try:
            self._move_into_place()
        except OSError as error:
            raise ArtifactError(f"cannot write {self.destination}: {error.strerror}") from error
        return Artifact(self.destination, json.loads(json.dumps(complete)))  # as a reader sees it

    def _move_into_place(self) -> None:
        target = self.destination.resolve()
        if not target.exists():
            self.folder.rename(target)
            return
        # Two renames, so that the old artifact is whole until the new one stands.
        old = self.folder.with_name(self.folder.name.replace(".partial-", ".replaced-"))
        target.rename(old)
        try:
            self.folder.rename(target)
        except BaseException:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def check_destination(destination: Path, *, replace: bool, source: Path | None = None) -> None:
    """Refuse a destination that would lose something.

    Only a folder that can be made, is empty, or (with ``replace``) is an artifact
    may become one; and never one that holds the source.

    Raises:
        ArtifactError: says which of these it is.
    """
    if source is not None:
        try:
            resolved, origin = destination.resolve(), source.resolve()
        except (OSError, RuntimeError) as error:  # a link that leads to itself
            raise ArtifactError(f"{source} or {destination} cannot be followed: {error}") from error
        if resolved == origin or resolved in origin.parents:
            raise ArtifactError(
                f"{destination} holds the source model; choose another folder with -o"
            )
    if not destination.exists():
        ancestor = next(p for p in destination.resolve().parents if p.exists())
        if not (ancestor.is_dir() and os.access(ancestor, os.W_OK | os.X_OK)):
            raise ArtifactError(
                f"{destination} cannot be made: {ancestor} is no folder one can write to; "
                "choose another folder with -o"
            )
        return
    if not destination.is_dir():
        raise ArtifactError(f"{destination} is a file; choose another folder with -o")
    if not any(destination.iterdir()):
        return
    if not (destination / MANIFEST_NAME).is_file():
        raise ArtifactError(
            f"{destination} exists and is no artifact; choose another folder with -o"
        )
    if not replace:
        raise ArtifactError(
            f"{destination} already holds an artifact; --force replaces it, -o writes elsewhere"
        )


def combined_digest(hashes: Sequence[str]) -> str:
    """Return the hash that stands for a model: its file's, or that of all its files' hashes.

    Args:
        hashes: of the model file, and of its external data in the order of their names.
    """
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def artifact_names(folders: Sequence[Path]) -> list[str]:
    """Name each artifact after its folder, with as many parents as tell equal names apart.

    A folder given twice (two arms of the same files) is told apart by ``#2``.
    """
    resolved = [folder.resolve() for folder in folders]
    names = []
    for path in resolved:
        rivals = {other for other in resolved if other != path}
        depth = 1
        while depth < len(path.parts) and any(
            other.parts[-depth:] == path.parts[-depth:] for other in rivals
        ):
            depth += 1
        names.append("/".join(path.parts[-depth:]))
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[index] = f"{name}#{seen[name]}"
    return names


def sha256_file(path: Path) -> str:
    """Hash a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_file(
    folder: Path, name: str, expected: Mapping[str, Any], *, check_hashes: bool
) -> None:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        raise ArtifactError(f"{folder / MANIFEST_NAME} names {name!r}, outside the artifact")
    path = folder / relative
    if not path.is_file():
        raise ArtifactError(f"{folder} lacks {name}, which its manifest names; export again")
    size = path.stat().st_size
    if size != expected["bytes"]:
        raise ArtifactError(
            f"{path} has {size:,} bytes where the manifest says {expected['bytes']:,}; export again"
        )
    if check_hashes and sha256_file(path) != expected["sha256"]:
        raise ArtifactError(f"{path} is not the file its manifest describes; export again")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
