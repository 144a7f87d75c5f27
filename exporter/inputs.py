"""What a model takes, and arrays to feed it with. Needs numpy alone.

Both wings use this module: verification feeds the exported model with
:func:`verification_cases`, a benchmark with :meth:`ModelInputs.draw`, and the manifest
holds the same :class:`InputSpec` records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from exporter.errors import ExportError

__all__ = [
    "DEFAULT_LIMIT",
    "Feeds",
    "InputSpec",
    "ModelInputs",
    "Role",
    "VerificationCase",
    "verification_cases",
]

Feeds = dict[str, np.ndarray]
Role = Literal["ids", "mask", "values"]

# Long inputs are there once, at the maximum length; verification's time is in its tokens.
_RANDOM_LENGTH = 48

DEFAULT_LIMIT = 128
"""Largest size tried for a symbolic dimension whose true limit is unknown."""


@dataclass(frozen=True)
class InputSpec:
    """One model input.

    ``int64[batch, sequence] < 30000`` as token ids is
    ``InputSpec("input_ids", "int64", ("batch", "sequence"), "ids", upper=30000)``.

    Args:
        name: input name in the graph.
        dtype: numpy's name of the element type.
        shape: fixed sizes, or names of symbolic dimensions.
        role: ``ids`` (drawn below ``upper``), ``mask`` (1 = token, 0 = padding) or
            ``values`` (anything else).
        upper: for ids, the first value that is out of range.
        optional: the graph has a default for it; it is fed only on purpose.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    role: Role = "values"
    upper: int | None = None
    optional: bool = False

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> InputSpec:
        """Read the record that :func:`dataclasses.asdict` gives."""
        return cls(**{**values, "shape": tuple(values["shape"])})


@dataclass(frozen=True)
class VerificationCase:
    """One named set of input arrays.

    Args:
        name: what it is.
        feeds: the arrays.
        padding_rows: rows of the batch that hold nothing but padding.
    """

    name: str
    feeds: Feeds
    padding_rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelInputs:
    """All inputs of a model, and the largest size of each symbolic dimension, if known."""

    specs: tuple[InputSpec, ...]
    limits: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        specs = [asdict(spec) | {"shape": list(spec.shape)} for spec in self.specs]
        return {"specs": specs, "limits": dict(self.limits)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ModelInputs:
        """Read what :meth:`to_dict` gave."""
        specs = tuple(InputSpec.from_dict(spec) for spec in values["specs"])
        return cls(specs, dict(values["limits"]))

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic dimensions, in order of appearance."""
        names = (size for spec in self.specs for size in spec.shape if isinstance(size, str))
        return tuple(dict.fromkeys(names))

    def limit(self, symbol: str) -> int:
        """Largest size to try for ``symbol``."""
        return self.limits.get(symbol, DEFAULT_LIMIT)

    def draw(
        self,
        sizes: Mapping[str, int],
        *,
        seed: int = 0,
        lengths: Sequence[int] | None = None,
    ) -> Feeds:
        """Draw one reproducible set of arrays.

        Args:
            sizes: size of each symbolic dimension.
            seed: the same seed gives the same arrays.
            lengths: number of tokens in each row; what follows them is padding.
                Default: no padding. Only masks change with it.

        Returns:
            One array per input that is not optional, of its dtype and concrete shape.
        """
        rng = np.random.default_rng(seed)
        feeds: Feeds = {}
        for spec in self.specs:
            if spec.optional:
                continue
            shape = tuple(sizes[d] if isinstance(d, str) else d for d in spec.shape)
            feeds[spec.name] = _draw_one(spec, shape, rng, lengths)
        return feeds

    def check(self, feeds: Feeds) -> None:
        """Refuse feeds the model was not made for, in one clear line.

        Raises:
            ExportError: an input missing, unknown, of another dtype or rank, of a
                dimension beyond its limit or unlike the same dimension of another input,
                or holding an id outside its range.
        """
        specs = {spec.name: spec for spec in self.specs}
        needed = {name for name, spec in specs.items() if not spec.optional}
        if wrong := sorted((needed - feeds.keys()) | (feeds.keys() - specs.keys())):
            verb = "is missing" if wrong[0] in specs else "is not an input of this model"
            raise ExportError(f"input {wrong[0]!r} {verb}; it takes: {', '.join(specs)}")
        sizes: dict[str, int] = {}
        for name, array in feeds.items():
            self._check_one(specs[name], array, sizes)

    def _check_one(self, spec: InputSpec, array: np.ndarray, sizes: dict[str, int]) -> None:
        if array.dtype != np.dtype(spec.dtype):
            raise ExportError(f"input {spec.name!r} must be {spec.dtype}, not {array.dtype}")
        if array.ndim != len(spec.shape):
            raise ExportError(
                f"input {spec.name!r} must have {len(spec.shape)} dimensions, not {array.ndim}"
            )
        for size, expected in zip(array.shape, spec.shape, strict=True):
            limit = self.limits.get(expected) if isinstance(expected, str) else expected
            if isinstance(expected, int) and size != expected:
                raise ExportError(f"input {spec.name!r} has size {size} where {expected} is fixed")
            if limit is not None and size > limit:
                raise ExportError(
                    f"input {spec.name!r} has {expected} {size}, beyond the model's maximum {limit}"
                )
            if isinstance(expected, str) and sizes.setdefault(expected, size) != size:
                raise ExportError(
                    f"input {spec.name!r} has {expected} {size}, "
                    f"but another input has {sizes[expected]}"
                )
        if spec.role == "ids" and array.size:
            low, high = int(array.min()), int(array.max())
            if low < 0 or (spec.upper is not None and high >= spec.upper):
                valid = "0 or more" if spec.upper is None else f"0 to {spec.upper - 1}"
                raise ExportError(
                    f"input {spec.name!r} holds id {low if low < 0 else high}, "
                    f"outside the valid range {valid}"
                )


def _draw_one(
    spec: InputSpec,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    lengths: Sequence[int] | None,
) -> np.ndarray:
    dtype = np.dtype(spec.dtype)
    if spec.role == "ids":
        return rng.integers(0, spec.upper or 2, shape).astype(dtype)
    if spec.role == "mask":
        mask = np.ones(shape, dtype)
        for row, length in zip(np.atleast_2d(mask), lengths or (), strict=False):
            row[..., length:] = 0
        return mask
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2, shape).astype(dtype)


def verification_cases(inputs: ModelInputs, *, seed: int = 0) -> list[VerificationCase]:
    """Return the standard inputs on which an exported model is compared with its source.

    With symbolic batch and sequence: 1×1, 3×8, a padded batch, one row half padded
    beside one of nothing but padding, 1×17, the maximum length, and three random
    shapes. With fixed shapes: three random draws, and the two with padding. What does not
    fit a limit is made smaller, or left out where its name would be wrong.
    """
    symbols = inputs.symbols
    masks = [spec for spec in inputs.specs if spec.role == "mask"]
    if not symbols:
        cases = [VerificationCase(f"draw {i}", inputs.draw({}, seed=seed + i)) for i in range(3)]
        return cases + [
            VerificationCase(name, inputs.draw({}, seed=seed, lengths=lengths))
            for name, lengths in _fixed_paddings(masks)
        ]
    longest = max((inputs.limit(s) for s in symbols if s != "batch"), default=1)
    rng = np.random.default_rng(seed)
    plan: list[tuple[str, int, int, list[int] | None]] = [
        ("1x1", 1, 1, None),
        ("3x8", 3, 8, None),
        ("1x17", 1, 17, None),
        ("maximum length", 1, longest, None),
    ]
    if masks:
        full, half = min(longest, 16), min(longest, 8)
        plan.append(("padded", 3, full, [full, full // 2 + 1, 1]))
        plan.append(("all-padding row", 3, half, [half, half // 2, 0]))
    for number in range(1, 4):
        batch, length = (
            int(rng.integers(1, 5)),
            int(rng.integers(1, min(longest, _RANDOM_LENGTH) + 1)),
        )
        lengths = [int(n) for n in rng.integers(1, length + 1, batch)]
        plan.append((f"random {number}: {batch}x{length}", batch, length, lengths))
    cases = []
    fixed_rows = next((s.shape[0] for s in masks if s.shape and isinstance(s.shape[0], int)), None)
    for index, (name, batch, length, row_lengths) in enumerate(plan):
        if length > longest:
            continue
        sizes = {s: min(batch if s == "batch" else length, inputs.limit(s)) for s in symbols}
        # The last rows are the padded ones, so they stay where fewer fit.
        rows = row_lengths[-(fixed_rows or sizes.get("batch", batch)) :] if row_lengths else None
        feeds = inputs.draw(sizes, seed=seed + index, lengths=rows)
        empty = tuple(row for row, length in enumerate(rows or ()) if not length)
        cases.append(VerificationCase(name, feeds, empty))
    return cases


def _fixed_paddings(masks: Sequence[InputSpec]) -> list[tuple[str, list[int]]]:
    """Row lengths for masks of fixed shape: half padded, and a last row of only padding."""
    shape = next((spec.shape for spec in masks if spec.shape), None)
    if shape is None:
        return []
    length = int(shape[-1])
    rows = int(shape[0]) if len(shape) > 1 else 1
    return [
        ("padded", [(length + 1) // 2] * rows),
        ("all-padding row", [length] * (rows - 1) + [0]),
    ]
