"""Models that leave early, as files of their own.

The setting is an input with a default, and onnxruntime's web build neither lists such inputs nor
takes them. So a copy of the file is measured whose default is the setting: no runtime needs to
be told anything, and the copy runs as the file would.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.comparisons import exit_name
from exporter.exit_setting import ExitSetting

if TYPE_CHECKING:
    from exporter.benchmark.subjects import Subject

__all__ = ["leaving_subject", "save_with_setting"]


def leaving_subject(subject: Subject, setting: ExitSetting, folder: Path) -> Subject:
    """Return ``subject`` leaving early as ``setting`` says, from a copy of its file in ``folder``.

    Records describe the artifact's file, and say the setting beside it.

    Raises:
        CheckpointError: the file cannot be read.
        OSError: the copy cannot be written.
    """
    # The reference vectors are of the full depth: answers differ from them on purpose.
    return replace(
        subject,
        variant=exit_name(subject.variant),
        path=save_with_setting(subject.path, setting, folder / subject.path.name),
        reference=None,
        tolerance=None,
        leaves=setting,
    )


def save_with_setting(source: Path, setting: ExitSetting, target: Path) -> Path:
    """Write a copy of a model to ``target`` in which ``setting`` is the default.

    Raises:
        CheckpointError: ``source`` cannot be read.
        OSError: ``target`` cannot be written.
    """
    import onnx_ir as ir

    from exporter.onnx_files import read_model, write_model

    model = read_model(source)
    for name, value in setting.feeds.items():
        model.graph.initializers[name].const_value = ir.tensor(value, name=name)
    write_model(model, target)
    return target
