"""``/api/artifacts.json``: what the pages know about what is served.

::

    {"schema": 1,
     "tool": version of albert-export,
     "isolated": whether pages are sent with COOP and COEP,
     "packages": {NPM NAME: {"base": "/p/<digest>/", "files": {NAME: FILE}}},
     "artifacts": [
       {"name": the folder's, as in records; "slug": its name in URLs; "base": "/a/<slug>/",
        "manifest": FILE, "config": FILE?, "tokenizer": FILE?, "tokenizer_config": FILE?,
        "reference": FILE?,
        "scheme", "layout", "unique_bytes", "unshared_bytes", "inputs", "outputs": the manifest's,
        "variants": [
          {"variant", "stored_bytes", "precision", "tolerance", "coverage", "note": the manifest's,
           "model": FILE, "external_data": [FILE + {"location": as the model names it}],
           "sha256", "file_bytes", "brotli_bytes", "gzip_bytes": model and external data
           together, as a record's model wants them}]}]}

    FILE = {"url": "/f/<sha256>/<name>", "path": within its artifact or package, "bytes",
            "sha256", "brotli_bytes", "gzip_bytes": on the wire}

``?`` marks what may be null. A file of a package has the package's URL, so that scripts of
one package find each other. Where compressing gains nothing, or the file is too large for
it, the bytes on the wire are the file's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from exporter import __version__
from exporter.artifact import MANIFEST_NAME, combined_digest
from exporter.server.encodings import Encodings
from exporter.server.files import Package, ServedArtifact, ServedFile, Site

__all__ = ["CATALOGUE_SCHEMA", "catalogue", "external_data"]

CATALOGUE_SCHEMA = 1

_ASSETS = {
    "manifest": MANIFEST_NAME,
    "config": "config.json",
    "tokenizer": "tokenizer.json",
    "tokenizer_config": "tokenizer_config.json",
}
_FROM_MANIFEST = (
    "scheme", "layout", "unique_bytes", "unshared_bytes", "inputs", "outputs", "early_exit",
)  # fmt: skip
_FROM_MODEL = ("variant", "stored_bytes", "precision", "tolerance", "coverage", "note")


def catalogue(site: Site, encodings: Encodings, *, isolated: bool) -> dict[str, Any]:
    """Return the document described above, as plain JSON values."""
    return {
        "schema": CATALOGUE_SCHEMA,
        "tool": __version__,
        "isolated": isolated,
        "packages": {package.name: _package(package, encodings) for package in site.packages},
        "artifacts": [_artifact(artifact, encodings) for artifact in site.artifacts],
    }


def external_data(files: Mapping[str, ServedFile], model: str) -> list[ServedFile]:
    """Return the files that hold weights of ``model``: those beside it named ``X.onnx_data…``."""
    return [files[name] for name in sorted(files) if name.startswith(f"{model}_data")]


def _package(package: Package, encodings: Encodings) -> dict[str, Any]:
    base = f"/p/{package.digest}/"
    return {
        "base": base,
        "files": {
            name: _file(file, encodings, base + name) for name, file in package.files.items()
        },
    }


def _artifact(served: ServedArtifact, encodings: Encodings) -> dict[str, Any]:
    manifest = served.artifact.manifest
    assets = {**_ASSETS, "reference": manifest.get("reference") or ""}
    return {
        "name": served.name,
        "slug": served.slug,
        "base": f"/a/{served.slug}/",
        **{
            key: _file(served.files[name], encodings) if name in served.files else None
            for key, name in assets.items()
        },
        **{key: manifest.get(key) for key in _FROM_MANIFEST},
        "variants": [_variant(model, served, encodings) for model in manifest["models"]],
    }


def _variant(
    model: Mapping[str, Any], served: ServedArtifact, encodings: Encodings
) -> dict[str, Any]:
    main = served.files[model["path"]]
    weights = external_data(served.files, main.name)
    return {
        **{key: model.get(key) for key in _FROM_MODEL},
        "exit_value": (model.get("calibration") or {}).get("value"),
        "sha256": combined_digest([file.sha256 for file in (main, *weights)]),
        "model": _file(main, encodings),
        "external_data": [
            _file(file, encodings) | {"location": PurePosixPath(file.name).name} for file in weights
        ],
        "file_bytes": sum(file.bytes for file in (main, *weights)),
        "brotli_bytes": sum(encodings.transfer_bytes(file, "br") for file in (main, *weights)),
        "gzip_bytes": sum(encodings.transfer_bytes(file, "gzip") for file in (main, *weights)),
    }


def _file(file: ServedFile, encodings: Encodings, url: str | None = None) -> dict[str, Any]:
    return {
        "url": url or f"/f/{file.sha256}/{PurePosixPath(file.name).name}",
        "path": file.name,
        "bytes": file.bytes,
        "sha256": file.sha256,
        "brotli_bytes": encodings.transfer_bytes(file, "br"),
        "gzip_bytes": encodings.transfer_bytes(file, "gzip"),
    }
