"""Tensors that a file stores more than once: equal, transposed, or packed into another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from exporter.accounting import tensor_digest
from exporter.errors import CheckpointError
from exporter.inspection.tensors import TensorEntry

__all__ = ["NODE_BYTES", "CopyGroup", "Member", "find_copies"]

NODE_BYTES = 128
"""Up to this size a tensor is neither a twin nor packed: the node that would compute it from
another takes as many bytes."""

_PARTS = (2, 3)
"""Key and value, or query, key and value side by side."""


@dataclass(frozen=True)
class Member:
    """A tensor of a group: what it is, and whether the group's first is its transpose."""

    entry: TensorEntry
    transposed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**self.entry.to_dict(), "transposed": self.transposed}


@dataclass(frozen=True)
class CopyGroup:
    """Tensors of which at most one need be stored.

    Args:
        dtype: data type, in ONNX's words.
        shape: of the first tensor.
        members: the tensors, in file order.
        packed_from: names of the tensors that lie side by side in each member, so that not
            even one need be stored; empty where it is no such tensor.
        wasted_bytes: stored bytes beyond what is needed.
    """

    dtype: str
    shape: tuple[int, ...]
    members: tuple[Member, ...]
    packed_from: tuple[str, ...]
    wasted_bytes: int

    @property
    def kinds(self) -> tuple[str, ...]:
        """What makes it a group and where it hides.

        Of ``exact`` (two or more bit-equal tensors), ``transposed`` (a matrix in both
        orientations), ``packed``, ``aliased`` (a member whose users all read it through
        aliases), ``constant`` (a member is in a ``Constant`` node or another attribute).
        """
        orientations = [member.transposed for member in self.members]
        found = {
            "exact": any(orientations.count(side) > 1 for side in (True, False)),
            "transposed": len(set(orientations)) > 1,
            "packed": bool(self.packed_from),
            "aliased": any(member.entry.behind for member in self.members),
            "constant": any(member.entry.place != "initializer" for member in self.members),
        }
        return tuple(kind for kind, holds in found.items() if holds)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kinds": list(self.kinds),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "wasted_bytes": self.wasted_bytes,
            "packed_from": list(self.packed_from),
            "tensors": [member.to_dict() for member in self.members],
        }


@dataclass
class _Content:
    """What bit-equal tensors have in common; holds one of the tensors, and no copy."""

    digest: str
    tensor: ir.TensorProtocol
    entries: list[TensorEntry] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape.numpy())

    @property
    def can_be_computed(self) -> bool:
        return self.tensor.dtype != ir.DataType.STRING and self.tensor.nbytes > NODE_BYTES


def find_copies(tensors: Iterable[tuple[TensorEntry, ir.TensorProtocol]]) -> tuple[CopyGroup, ...]:
    """Group tensors that say the same, the largest waste first.

    1. Equal in data type, shape and every bit, whatever the size, wherever they are.
    2. Matrices that are each other's transpose, bit for bit.
    3. Vectors and matrices that are two or three equally large tensors (or their transposes)
       side by side along an axis, where the file stores those too and they are not all one
       (a bias of zeros is a weight of its own, and no packed shorter one).

    Reads one tensor at a time; keeps digests. Groups that waste nothing, because their
    members share external data, are left out.

    Raises:
        CheckpointError: a tensor's content does not fit its shape.
    """
    contents: dict[str, _Content] = {}
    for entry, tensor in tensors:
        digest = _digest(entry, tensor)
        contents.setdefault(digest, _Content(digest, tensor)).entries.append(entry)
    twins = _find_twins(contents.values())
    packed = _find_packed(contents)
    groups = []
    grouped: set[str] = set()
    for digest, content in contents.items():
        if digest in grouped:  # with its twin
            continue
        twin = contents[twins[digest]] if digest in twins else None
        if twin is not None:
            grouped.add(twin.digest)
        group = _group(content, twin, packed)
        if group.wasted_bytes:
            groups.append(group)
    return tuple(sorted(groups, key=lambda g: (-g.wasted_bytes, g.members[0].entry.name)))


def _digest(entry: TensorEntry, tensor: ir.TensorProtocol) -> str:
    try:
        if tensor.dtype != ir.DataType.STRING and len(tensor.tobytes()) != tensor.nbytes:
            raise ValueError
        return tensor_digest(tensor)
    except (ValueError, TypeError, OSError) as error:
        raise CheckpointError(
            f"tensor {entry.name!r} does not hold the {tensor.nbytes:,} bytes its shape "
            f"{list(tensor.shape)} needs: the file is damaged; copy or download it again"
        ) from error


def _group(content: _Content, twin: _Content | None, packed: dict[str, list[str]]) -> CopyGroup:
    members = [Member(entry, transposed=False) for entry in content.entries]
    sources = packed.get(content.digest, [])
    if twin is not None:
        members += [Member(entry, transposed=True) for entry in twin.entries]
        sources = sources or packed.get(twin.digest, [])
    stored = sum(member.entry.stored_bytes for member in members)
    return CopyGroup(
        dtype=content.tensor.dtype.name,
        shape=content.shape,
        members=tuple(members),
        packed_from=tuple(sources),
        wasted_bytes=stored - (0 if sources else min(stored, content.tensor.nbytes)),
    )


def _find_twins(contents: Iterable[_Content]) -> dict[str, str]:
    """Map the digest of each matrix whose transpose is there too to the digest of that."""
    buckets: dict[object, dict[str, _Content]] = defaultdict(dict)
    for content in contents:
        shape = content.shape
        if content.can_be_computed and len(shape) == 2 and min(shape) > 1:
            buckets[content.tensor.dtype, tuple(sorted(shape))][content.digest] = content
    twins: dict[str, str] = {}
    for bucket in buckets.values():
        # Reading a matrix again is worth it only where there is something to be equal to.
        for digest, content in bucket.items() if len(bucket) > 1 else ():
            if digest in twins:
                continue
            other = tensor_digest(_array_tensor(content.tensor.numpy().T, content.tensor.dtype))
            if other in bucket and other != digest:
                twins[digest], twins[other] = other, digest
    return twins


def _find_packed(contents: dict[str, _Content]) -> dict[str, list[str]]:
    """Map the digest of each packed tensor to the names of its parts."""
    shapes = {(content.tensor.dtype, content.shape) for content in contents.values()}
    packed: dict[str, list[str]] = {}
    for digest, content in contents.items():
        if not content.can_be_computed or len(content.shape) > 2:
            continue
        for axis, count in _divisions(content, shapes):
            parts = _parts(content, axis, count, contents)
            if parts is not None:
                packed[digest] = parts
                break
    return packed


def _divisions(
    content: _Content, shapes: set[tuple[ir.DataType, tuple[int, ...]]]
) -> Iterator[tuple[int, int]]:
    """Yield axis and number of parts wherever tensors of the parts' shape are stored."""
    for axis, size in enumerate(content.shape):
        for count in _PARTS:
            if size % count:
                continue
            part = (*content.shape[:axis], size // count, *content.shape[axis + 1 :])
            if any((content.tensor.dtype, shape) in shapes for shape in (part, part[::-1])):
                yield axis, count


def _parts(
    content: _Content, axis: int, count: int, contents: dict[str, _Content]
) -> list[str] | None:
    names = []
    for part in np.split(content.tensor.numpy(), count, axis):
        found = None
        for array in (part, part.T) if part.ndim == 2 else (part,):
            digest = tensor_digest(_array_tensor(array, content.tensor.dtype))
            found = found or contents.get(digest)
        if found is None:
            return None
        names.append(found.entries[0].name)
    return names if len(set(names)) > 1 else None


def _array_tensor(array: np.ndarray, dtype: ir.DataType) -> ir.Tensor[Any]:
    return ir.Tensor(np.ascontiguousarray(array), dtype=dtype)
