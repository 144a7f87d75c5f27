"""What may be served: exactly the files that manifests, packages and the pages list.

Every request is answered by looking a name up in these tables; no path of a request ever
reaches the file system. A file is opened only if it still is the one that was listed.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from exporter.artifact import MANIFEST_NAME, Artifact, artifact_names, sha256_file
from exporter.errors import ArtifactError, BenchmarkError
from exporter.runtimes.content_types import PAGE_SUFFIXES, content_type

__all__ = [
    "ChangedFileError",
    "Package",
    "Pages",
    "ServedArtifact",
    "ServedFile",
    "Site",
    "check_hashes",
    "read_artifacts",
]

_NOT_PAGES = {"package.json", "package-lock.json", "tsconfig.json"}

_COMMENTS = re.compile(
    rb"^[ \t]*(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)[ \t]*\n", re.MULTILINE | re.DOTALL
)
"""Comments that have their lines for themselves. Nothing within a string looks like one here."""


class ChangedFileError(BenchmarkError):
    """A file is no longer the one that was listed when the server started."""


@dataclass(frozen=True)
class ServedFile:
    """One file, as it was when the server started.

    Args:
        path: where it lies, links resolved.
        name: its path within the artifact, package or pages, with forward slashes.
        bytes: its size.
        mtime_ns: when it was last written.
        sha256: of its content, in hex.
    """

    path: Path
    name: str
    bytes: int
    mtime_ns: int
    sha256: str

    @classmethod
    def read(cls, root: Path, name: str, sha256: str | None = None) -> ServedFile:
        """Describe ``root / name``; it is hashed unless ``sha256`` is known.

        Raises:
            ArtifactError: it is missing, or a link leads out of ``root``.
        """
        try:
            folder, path = root.resolve(strict=True), (root / name).resolve(strict=True)
            if folder not in path.parents or not path.is_file():
                raise ArtifactError(f"{root / name} leads out of {root}, or is no file")
            status = path.stat()
            digest = sha256 or sha256_file(path)
        except (OSError, RuntimeError) as error:
            raise ArtifactError(f"{root / name} cannot be read: {error}") from error
        return cls(path, name, status.st_size, status.st_mtime_ns, digest)

    @property
    def content_type(self) -> str:
        """Media type, from the project's own table."""
        return content_type(self.name)

    def open(self) -> BinaryIO:
        """Open the file, if it is still the one described here.

        Raises:
            ChangedFileError: it was removed, replaced or written to.
        """
        try:
            stream = self.path.open("rb")
        except OSError as error:
            raise ChangedFileError(f"{self.name} cannot be read any more") from error
        if self.differs(os.fstat(stream.fileno())):
            stream.close()
            raise ChangedFileError(f"{self.name} has changed since the server started")
        return stream

    def differs(self, status: os.stat_result) -> bool:
        """Whether a file with that status is another one."""
        return (status.st_size, status.st_mtime_ns) != (self.bytes, self.mtime_ns)


@dataclass(frozen=True)
class PageScript(ServedFile):
    """A script of the pages, without its comments: a third of it, which only people read.

    Args:
        content: what is sent; ``bytes`` and ``sha256`` are those of it.
        disk_bytes: size of the file.
    """

    content: bytes
    disk_bytes: int

    @classmethod
    def of(cls, file: ServedFile) -> PageScript:
        """Read ``file``.

        Raises:
            ArtifactError: it cannot be read.
        """
        try:
            content = _COMMENTS.sub(b"", file.path.read_bytes())
        except OSError as error:
            raise ArtifactError(f"{file.path} cannot be read: {error}") from error
        digest = hashlib.sha256(content).hexdigest()
        return cls(
            file.path,
            file.name,
            len(content),
            file.mtime_ns,
            digest,
            content,
            disk_bytes=file.bytes,
        )

    def open(self) -> BinaryIO:
        """See :meth:`ServedFile.open`."""
        super().open().close()
        return io.BytesIO(self.content)

    def differs(self, status: os.stat_result) -> bool:
        """See :meth:`ServedFile.differs`."""
        return (status.st_size, status.st_mtime_ns) != (self.disk_bytes, self.mtime_ns)


@dataclass(frozen=True)
class ServedArtifact:
    """An artifact under its name in URLs, with its files by path."""

    artifact: Artifact
    name: str
    slug: str
    files: Mapping[str, ServedFile]


@dataclass(frozen=True)
class Package:
    """Files of one npm package. ``digest`` names their content in URLs."""

    name: str
    digest: str
    files: Mapping[str, ServedFile]

    @classmethod
    def read(cls, name: str, folder: Path, names: Sequence[str], salt: str = "") -> Package:
        """Describe ``names`` in ``folder``.

        Args:
            salt: goes into the digest; what a response depends on besides the content.

        Raises:
            ArtifactError: one of them is missing.
        """
        files = {file: ServedFile.read(folder, file) for file in names}
        listing = "\n".join([salt, *(f"{file.sha256} {file.name}" for file in files.values())])
        return cls(name, hashlib.sha256(listing.encode()).hexdigest()[:32], files)


class Pages:
    """The static pages. A file that is edited while the server runs is served anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = {name: _read_page(folder, name) for name in _page_names(folder)}
        self._folders = {
            str(PurePosixPath(name).parent) for name in self._files if name.endswith("/index.html")
        }

    @property
    def files(self) -> list[ServedFile]:
        """All files, in order of their names."""
        return list(self._files.values())

    def is_folder(self, path: str) -> bool:
        """Whether ``path`` is a folder with an ``index.html``, asked for without its slash."""
        return path in self._folders

    def find(self, path: str) -> ServedFile | None:
        """Return the file for a URL path without its first slash, described as it is now."""
        name = f"{path}index.html" if path == "" or path.endswith("/") else path
        known = self._files.get(name)
        if known is None:
            return None
        try:
            if known.differs(known.path.stat()):
                known = self._files[name] = _read_page(self._folder, name)
        except (OSError, ArtifactError):
            return None
        return known


@dataclass(frozen=True)
class Site:
    """Everything the server offers."""

    artifacts: Sequence[ServedArtifact]
    packages: Sequence[Package]
    pages: Pages

    def files(self) -> list[ServedFile]:
        """All files: small ones first, so that pages are compressed before weights."""
        tables = [package.files for package in self.packages]
        tables += [artifact.files for artifact in self.artifacts]
        listed = [file for table in tables for file in table.values()]
        return sorted([*self.pages.files, *listed], key=lambda file: file.bytes)


def read_artifacts(folders: Sequence[Path]) -> list[ServedArtifact]:
    """Read the artifacts to serve; each gets a name of its own.

    Raises:
        ArtifactError: one of them is no artifact, or a file leads out of it.
    """
    slugs: set[str] = set()
    found: list[ServedArtifact] = []
    for name, folder in zip(artifact_names(folders), folders, strict=True):
        artifact = Artifact.load(folder)
        slug = _free_slug(re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "artifact", slugs)
        slugs.add(slug)
        files = {MANIFEST_NAME: ServedFile.read(folder, MANIFEST_NAME)}
        for path, record in artifact.manifest["files"].items():
            files[path] = ServedFile.read(folder, path, str(record["sha256"]))
        found.append(ServedArtifact(artifact, name, slug, files))
    return found


def check_hashes(
    artifacts: Sequence[ServedArtifact], progress: Callable[[str], None] = lambda step: None
) -> None:
    """Read every file of ``artifacts``: what is served under a hash must have it.

    Raises:
        ArtifactError: a file is not the one its manifest describes.
    """
    files = [file for artifact in artifacts for file in artifact.files.values()]
    progress("checking the artifact's hashes")
    with ThreadPoolExecutor(max_workers=2) as threads:
        for file, digest in zip(
            files, threads.map(lambda file: sha256_file(file.path), files), strict=True
        ):
            if digest != file.sha256:
                raise ArtifactError(
                    f"{file.path} is not the file its manifest describes; export again"
                )


def _read_page(folder: Path, name: str) -> ServedFile:
    file = ServedFile.read(folder, name)
    return PageScript.of(file) if name.endswith(".js") else file


def _page_names(folder: Path) -> list[str]:
    root = folder.resolve()
    names = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith((".", "node_modules")) for part in relative.parts)
        inside = root in path.resolve().parents and path.is_file()
        if path.suffix in PAGE_SUFFIXES and path.name not in _NOT_PAGES and inside and not hidden:
            names.append(relative.as_posix())
    return names


def _free_slug(slug: str, taken: set[str]) -> str:
    numbered = (f"{slug}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (slug, *numbered) if name not in taken)
