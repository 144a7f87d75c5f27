"""Which parameters of a PyTorch module are one, read before any export. Needs torch.

Sharing is decided by identity, storage and bit equality, never by tolerance.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from exporter.checkpoint.probing import CallRecord, record_calls

__all__ = ["Reason", "SharedGroup", "SharingMap", "read_sharing_map", "same_bits"]

Reason = Literal["module_reuse", "same_parameter", "same_storage", "equal_values"]


@dataclass(frozen=True)
class SharedGroup:
    """Names that stand for one thing.

    Args:
        reason: ``module_reuse`` (one module under several names), ``same_parameter`` (one
            tensor under several names), ``same_storage`` (tensors that overlap in memory)
            or ``equal_values`` (equal dtype, shape and bits).
        names: module names for ``module_reuse``, else parameter or buffer names.
        bytes: bytes of what they share, counted once.
    """

    reason: Reason
    names: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class SharingMap:
    """The parameters and floating-point buffers of a module, and who shares what.

    Args:
        unique_bytes: bytes of the distinct tensors: overlapping memory counts once, and
            so do tensors of equal dtype, shape and bits.
        held_bytes: the same with equal values in separate memory counted apart; what
            PyTorch holds.
        total_bytes_if_unshared: bytes if every use had its own tensor; ``None`` where the
            uses are not known.
        groups: who shares, and why.
        calls: calls of a module in one forward pass, for those called another number of
            times than the module around them; empty when no pass was run.
    """

    unique_bytes: int
    held_bytes: int
    total_bytes_if_unshared: int | None = None
    groups: tuple[SharedGroup, ...] = ()
    calls: Mapping[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {
            "groups": [asdict(group) | {"names": list(group.names)} for group in self.groups],
            "calls": dict(self.calls),
        }


@dataclass(frozen=True)
class _Entry:
    name: str
    tensor: Tensor

    @property
    def view(self) -> tuple[object, ...]:
        """Equal for tensors that are the same view of the same memory."""
        t = self.tensor
        place = t.untyped_storage().data_ptr() or id(t)  # empty storages have no address
        return place, t.storage_offset(), tuple(t.shape), t.stride(), t.dtype

    @property
    def bytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()


def read_sharing_map(
    module: nn.Module, feeds: Mapping[str, Tensor] | CallRecord | None = None
) -> SharingMap:
    """Read who shares what in ``module``.

    Args:
        module: left as it is, training modes included.
        feeds: inputs by name for one forward pass that counts module calls, or the record
            of such a pass. Without them ``calls`` is empty and
            ``total_bytes_if_unshared`` unknown.

    Returns:
        The map; names are those of ``module.named_parameters()``, the first one for a
        module that is registered under several.
    """
    entries = list(_named_tensors(module))
    views: dict[tuple[object, ...], list[_Entry]] = defaultdict(list)
    for entry in entries:
        views[entry.view].append(entry)
    distinct = [same[0] for same in views.values()]
    classes = list(_value_classes(distinct))
    record = record_calls(module, feeds) if isinstance(feeds, Mapping) else feeds
    groups = (
        *_reused_modules(module),
        *_same_parameters(entries),
        *_overlapping(entries),
        *(
            SharedGroup("equal_values", tuple(e.name for e in same), same[0].bytes)
            for same in classes
            if len(same) > 1
        ),
    )
    return SharingMap(
        unique_bytes=_union_bytes([same[0] for same in classes]),
        held_bytes=_union_bytes(distinct),
        total_bytes_if_unshared=_unshared_bytes(module, record) if record else None,
        groups=groups,
        calls=record.exceptional if record else {},
    )


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Tell whether two tensors have equal dtype, shape and bytes (``0.0`` is not ``-0.0``)."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(_as_bytes(left), _as_bytes(right))


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def _named_tensors(module: nn.Module) -> Iterator[_Entry]:
    """Every registration of a parameter or float buffer in every distinct module."""
    for prefix, owner in module.named_modules():
        own = [*owner.named_parameters(recurse=False, remove_duplicate=False)]
        own += [
            (name, buffer)
            for name, buffer in owner.named_buffers(recurse=False, remove_duplicate=False)
            if buffer.is_floating_point()
        ]
        for name, tensor in own:
            yield _Entry(f"{prefix}.{name}" if prefix else name, tensor)


def _value_classes(entries: Sequence[_Entry]) -> Iterator[list[_Entry]]:
    """Split into classes of equal dtype, shape and bits, in order of first appearance."""
    alike: dict[tuple[object, ...], list[_Entry]] = defaultdict(list)
    for entry in entries:
        alike[entry.tensor.dtype, tuple(entry.tensor.shape)].append(entry)
    for candidates in alike.values():
        if len(candidates) == 1:  # no need to read its bytes
            yield candidates
            continue
        classes: dict[bytes, list[_Entry]] = defaultdict(list)
        for entry in candidates:
            classes[hashlib.sha256(_as_bytes(entry.tensor).numpy().data).digest()].append(entry)
        yield from classes.values()


def _union_bytes(entries: Sequence[_Entry]) -> int:
    """Bytes of memory that ``entries`` cover together."""
    by_storage: dict[int, list[_Entry]] = defaultdict(list)
    for entry in entries:
        by_storage[entry.tensor.untyped_storage().data_ptr() or id(entry.tensor)].append(entry)
    return sum(_covered_bytes(same) for same in by_storage.values())


def _covered_bytes(entries: Sequence[_Entry]) -> int:
    """Bytes of *one* storage that ``entries`` cover together, exact for any strides."""
    if len(entries) == 1 and entries[0].tensor.is_contiguous():
        return entries[0].bytes
    covered = torch.zeros(entries[0].tensor.untyped_storage().nbytes(), dtype=torch.bool)
    for entry in entries:
        tensor, width = entry.tensor, entry.tensor.element_size()
        # A stride of 0 repeats the same element: writing it once is enough.
        dims = [(n, s) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s]
        if tensor.numel():
            sizes = [*(n for n, _ in dims), width]
            strides = [*(s * width for _, s in dims), 1]
            covered.as_strided(sizes, strides, tensor.storage_offset() * width).fill_(True)
    return int(covered.sum())


def _reused_modules(module: nn.Module) -> Iterator[SharedGroup]:
    """One module under several names; what stands inside such a module is not repeated."""
    names: dict[nn.Module, list[str]] = defaultdict(list)
    for name, member in module.named_modules(remove_duplicate=False):
        names[member].append(name)
    reused = {name for same in names.values() if len(same) > 1 for name in same}
    for member, same in names.items():
        size = _union_bytes(list(_named_tensors(member)))
        outermost = [n for n in same if not any(p in reused for p in _parents(n))]
        if size and len(outermost) > 1:
            yield SharedGroup("module_reuse", tuple(outermost), size)


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _same_parameters(entries: Iterable[_Entry]) -> Iterator[SharedGroup]:
    by_identity: dict[int, list[_Entry]] = defaultdict(list)
    for entry in entries:
        by_identity[id(entry.tensor)].append(entry)
    for same in by_identity.values():
        if len(same) > 1:
            yield SharedGroup("same_parameter", tuple(e.name for e in same), same[0].bytes)


def _overlapping(entries: Iterable[_Entry]) -> Iterator[SharedGroup]:
    """Distinct tensors that cover the same bytes, joined through common members."""
    by_storage: dict[int, dict[int, _Entry]] = defaultdict(dict)
    for entry in entries:
        if address := entry.tensor.untyped_storage().data_ptr():
            by_storage[address].setdefault(id(entry.tensor), entry)
    for members in by_storage.values():
        clusters: list[list[_Entry]] = []
        for entry in members.values():
            touching = [c for c in clusters if any(_overlap(entry, other) for other in c)]
            joined = [e for cluster in touching for e in cluster] + [entry]
            clusters = [c for c in clusters if c not in touching] + [joined]
        for cluster in clusters:
            if len(cluster) > 1:
                names = tuple(e.name for e in cluster)
                yield SharedGroup("same_storage", names, _covered_bytes(cluster))


def _overlap(left: _Entry, right: _Entry) -> bool:
    if left.view == right.view:
        return True
    apart = _covered_bytes([left]) + _covered_bytes([right])
    return _spans_meet(left, right) and _covered_bytes([left, right]) < apart


def _spans_meet(left: _Entry, right: _Entry) -> bool:
    """Cheap answer that spares the exact one for neighbours in one flat storage."""
    (a, b), (c, d) = _span(left.tensor), _span(right.tensor)
    return a < d and c < b


def _span(tensor: Tensor) -> tuple[int, int]:
    width = tensor.element_size()
    first = int(tensor.storage_offset())
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return first * width, (first + reach + 1) * width


def _unshared_bytes(module: nn.Module, record: CallRecord) -> int:
    """Bytes if each call of a module had its own tensors."""
    total = 0
    for name, member in module.named_modules():
        own = [*member.parameters(recurse=False), *member.buffers(recurse=False)]
        size = sum(t.numel() * t.element_size() for t in own if t.is_floating_point())
        total += size * record.uses(name)
    return total
