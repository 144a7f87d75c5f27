"""The one entry: find out what a path is, and hand it to the module that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.checkpoint.detect import detect
from exporter.checkpoint.digests import hash_file, hash_files
from exporter.checkpoint.folders import find_weight_files, read_weights
from exporter.checkpoint.loaded import LoadedModel, Source
from exporter.checkpoint.state_dicts import StateDict, find_state_dict, load_tensors
from exporter.checkpoint.tokenizer_files import find_tokenizer_files
from exporter.checkpoint.unfinished import unfinished_notices
from exporter.errors import CheckpointError
from exporter.json_files import read_json

__all__ = ["load_checkpoint"]


def load_checkpoint(
    path: Path,
    *,
    inputs: Sequence[str] = (),
    trust_pickle: bool = False,
    import_paths: Sequence[Path] = (),
) -> LoadedModel:
    """Load a model. By default nothing in the file is executed; nothing is downloaded ever.

    Args:
        path: a ``.pt`` with configuration and weights, a folder with ``config.json`` and
            weights, a ``.pt2`` of ``torch.export``, or a pickled module.
        inputs: descriptions of inputs, as for ``--input``; for known architectures a list
            of names selects among their inputs.
        trust_pickle: allow the file to run code, as reading a pickled module does.
        import_paths: folders in which a pickled module's class may be found.

    Raises:
        CheckpointError: the path is none of these, is damaged, needs ``trust_pickle``, or
            holds weights that do not fit its configuration.
    """
    # So that '.' and '..' have a name; a link keeps its own.
    path = path.absolute() if path.name not in ("", "..") else path.resolve()
    found = detect(path)
    if found.kind in ("huggingface", "reference_folder"):
        return _load_folder(path, inputs)
    if found.kind == "state_dict":
        return _load_dictionary(path, inputs, trust_pickle, import_paths)
    if found.kind == "pickled_module":
        return _load_pickled(path, found.detail, inputs, trust_pickle, import_paths)
    if found.kind == "exported_program":
        return _load_program(path, inputs, trust_pickle)
    if found.kind == "onnx":
        raise CheckpointError(f"{path.name} is an ONNX file: it has no PyTorch module to load")
    raise CheckpointError(f"{path.name} {found.detail}")


def _build(
    config: Mapping[str, Any], state: StateDict, source: Source, inputs: Sequence[str]
) -> LoadedModel:
    if config.get("model_type") == "shared_encoder":
        from exporter.checkpoint.reference import build_reference

        return build_reference(config, state, replace(source, kind="reference"), inputs)
    from exporter.checkpoint.huggingface import build_huggingface

    return build_huggingface(config, state, replace(source, kind="huggingface"), inputs)


def _with_tokenizer(loaded: LoadedModel, folder: Path) -> LoadedModel:
    assets, notices = find_tokenizer_files(folder)
    return replace(loaded, assets=assets, notices=[*loaded.notices, *notices])


def _load_folder(folder: Path, inputs: Sequence[str]) -> LoadedModel:
    config = read_json(folder / "config.json")
    files = find_weight_files(folder)
    digest = hash_files([folder / "config.json", *files])
    source = Source(folder.name, "", digest)
    loaded = _with_tokenizer(_build(config, read_weights(files), source, inputs), folder)
    return replace(loaded, notices=[*unfinished_notices(folder), *loaded.notices])


def _load_dictionary(
    path: Path, inputs: Sequence[str], trust_pickle: bool, import_paths: Sequence[Path]
) -> LoadedModel:
    if trust_pickle:
        from exporter.checkpoint.pickled import build_pickled, find_module, load_trusted

        values = load_trusted(path, import_paths)
        if (module := find_module(values)) is not None:
            source = Source(path.name, "pickled_module", hash_file(path))
            return _with_tokenizer(build_pickled(module, source, inputs), path.parent)
    else:
        values = load_tensors(path, trustable=True)
    config = values.get("config")
    if not isinstance(config, Mapping):
        raise CheckpointError(
            f"{path.name} holds weights without a configuration. Put it as pytorch_model.bin "
            'into a folder with its config.json, or save {"config": …, "state_dict": …}'
        )
    state = find_state_dict({k: v for k, v in values.items() if k != "config"}, path.name)
    source = Source(path.name, "", hash_file(path))
    return _with_tokenizer(_build(config, state, source, inputs), path.parent)


def _load_pickled(
    path: Path,
    class_name: str,
    inputs: Sequence[str],
    trust_pickle: bool,
    import_paths: Sequence[Path],
) -> LoadedModel:
    from exporter.checkpoint.pickled import build_pickled, find_module, load_trusted, refuse

    if not trust_pickle:
        raise refuse(path, class_name)
    value = load_trusted(path, import_paths)
    module = find_module(value)
    if module is None:
        raise CheckpointError(f"{path.name} holds a {type(value).__name__}, not an nn.Module")
    source = Source(path.name, "pickled_module", hash_file(path))
    return _with_tokenizer(build_pickled(module, source, inputs), path.parent)


def _load_program(path: Path, inputs: Sequence[str], trust_pickle: bool) -> LoadedModel:
    from exporter.checkpoint.exported_program import build_program, load_program
    from exporter.checkpoint.program_archive import check_archive

    if not trust_pickle:
        check_archive(path)
    source = Source(path.name, "exported_program", hash_file(path))
    return _with_tokenizer(build_program(load_program(path), source, inputs), path.parent)
