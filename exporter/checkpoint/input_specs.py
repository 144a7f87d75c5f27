"""Parse ``--input`` texts, and choose among the inputs a known architecture has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from exporter.errors import CheckpointError
from exporter.inputs import InputSpec, ModelInputs, Role

__all__ = [
    "EXAMPLE",
    "WELL_KNOWN",
    "RequestedInput",
    "choose_inputs",
    "merge_limits",
    "parse_all",
    "parse_input",
    "well_known",
]

EXAMPLE = "--input 'input_ids:int64[batch,sequence<=512]<30000'"

WELL_KNOWN: Mapping[str, Role] = {
    "input_ids": "ids",
    "attention_mask": "mask",
    "token_type_ids": "ids",
}
"""Names with a default form, ``int64[batch,sequence]``, and their roles."""

_TEXT = re.compile(
    r"(?P<name>[A-Za-z_]\w*)(:(?P<dtype>\w+)\[(?P<shape>[^\]]*)\](<(?P<upper>\d+))?)?"
)
_SIZE = re.compile(r"(?P<symbol>[A-Za-z_]\w*)(<=(?P<limit>\d+))?|(?P<fixed>\d+)")
_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")


@dataclass(frozen=True)
class RequestedInput:
    """One ``--input``: a name alone (``spec`` is ``None``), or a full description."""

    name: str
    spec: InputSpec | None = None
    limits: Mapping[str, int] = field(default_factory=dict)


def well_known(name: str, *, upper: int | None = None) -> InputSpec:
    """Return the default form of a well-known input; ``upper`` is for ids."""
    return InputSpec(name, "int64", ("batch", "sequence"), WELL_KNOWN[name], upper)


def parse_input(text: str) -> RequestedInput:
    """Read ``NAME`` or ``NAME:DTYPE[DIM,...]``, optionally followed by ``<UPPER`` for ids.

    A ``DIM`` is a size, the name of a symbolic dimension, or such a name with its largest
    size: ``sequence<=512``.

    Raises:
        CheckpointError: the text does not read so.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise _unreadable(text, "wanted NAME or NAME:DTYPE[DIM,...] or NAME:DTYPE[DIM,...]<UPPER")
    name, dtype = match["name"], match["dtype"]
    if dtype is None:
        return RequestedInput(name)
    if dtype not in _DTYPES:
        raise _unreadable(text, f"unknown type {dtype!r}; one of: {', '.join(_DTYPES)}")
    shape: list[int | str] = []
    limits: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in match["shape"].split(","))):
        size = _SIZE.fullmatch(part)
        if size is None or size["fixed"] == "0" or size["limit"] == "0":
            raise _unreadable(text, f"{part!r} is neither a size nor a name")
        shape.append(int(size["fixed"]) if size["fixed"] else size["symbol"])
        if size["limit"]:
            limits[size["symbol"]] = int(size["limit"])
    upper = int(match["upper"]) if match["upper"] else None
    kind = np.dtype(dtype).kind
    if upper is not None and (kind not in "iu" or upper < 1):
        raise _unreadable(text, "'<UPPER' is for integer ids, and at least 1")
    role = _role(name, kind, upper)
    return RequestedInput(name, InputSpec(name, dtype, tuple(shape), role, upper), limits)


def _role(name: str, kind: str, upper: int | None) -> Role:
    if upper is not None:
        return "ids"
    # Masks come as integers, booleans or floats; ids are whole numbers.
    if name.endswith("mask"):
        return "mask"
    return "ids" if WELL_KNOWN.get(name) == "ids" and kind in "iu" else "values"


def _unreadable(text: str, why: str) -> CheckpointError:
    return CheckpointError(f"cannot read --input {text!r}: {why}. Example: {EXAMPLE}")


def parse_all(texts: Sequence[str]) -> list[RequestedInput]:
    """Parse every text.

    Raises:
        CheckpointError: one that cannot be read, or a name given twice.
    """
    parsed = [parse_input(text) for text in texts]
    names = [one.name for one in parsed]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise CheckpointError(f"--input {twice[0]} is given twice")
    return parsed


def merge_limits(requested: Sequence[RequestedInput]) -> dict[str, int]:
    """Join the limits of all inputs.

    Raises:
        CheckpointError: one symbol with two limits.
    """
    limits: dict[str, int] = {}
    for one in requested:
        for symbol, limit in one.limits.items():
            if limits.setdefault(symbol, limit) != limit:
                raise CheckpointError(
                    f"--input gives {symbol} two limits: {limits[symbol]} and {limit}"
                )
    return limits


def choose_inputs(
    defaults: Sequence[InputSpec], limits: Mapping[str, int], requested: Sequence[str]
) -> ModelInputs:
    """Choose among ``defaults``, whose first one cannot be left out.

    Args:
        defaults: every input the architecture has, with ids' ranges.
        limits: largest sizes of the defaults' symbols.
        requested: ``--input`` texts; a name alone selects the default, a full one may fix
            or rename sizes. None: all defaults.

    Raises:
        CheckpointError: an unreadable or unknown input, the first one left out, or a type,
            rank, size or id range the architecture does not have.
    """
    if not requested:
        return ModelInputs(tuple(defaults), dict(limits))
    chosen = {one.name: one for one in parse_all(requested)}
    known = {spec.name: spec for spec in defaults}
    for name in chosen:
        if name not in known:
            raise CheckpointError(f"--input {name}: this model takes {', '.join(known)}")
    if defaults[0].name not in chosen:
        raise CheckpointError(f"--input {defaults[0].name} is missing: the model needs it")
    all_limits = merge_limits(list(chosen.values()))
    specs = []
    for name, default in known.items():
        if name in chosen:
            spec = chosen[name].spec or default
            specs.append(_fit(spec, default, limits, all_limits))
    return ModelInputs(tuple(specs), all_limits)


def _fit(
    spec: InputSpec, default: InputSpec, limits: Mapping[str, int], chosen: dict[str, int]
) -> InputSpec:
    """Check ``spec`` against ``default`` and hand its limits on to ``chosen``."""
    if spec.dtype != default.dtype or len(spec.shape) != len(default.shape):
        dims = ",".join(str(size) for size in default.shape)
        raise CheckpointError(f"--input {spec.name} must be {default.dtype}[{dims}]")
    for size, symbol in zip(spec.shape, default.shape, strict=True):
        limit = limits.get(symbol) if isinstance(symbol, str) else symbol
        if limit is None:
            continue
        wanted = size if isinstance(size, int) else chosen.setdefault(size, limit)
        if wanted > limit:
            raise CheckpointError(
                f"--input {spec.name}: {symbol} {wanted} is beyond the model's maximum {limit}"
            )
    if spec.upper is not None and default.upper is not None and spec.upper > default.upper:
        raise CheckpointError(
            f"--input {spec.name}: ids below {spec.upper} exceed the model's {default.upper}"
        )
    return replace(spec, role=default.role, upper=spec.upper or default.upper)
