"""Which class of the model a label means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from exporter.errors import BenchmarkError
from exporter.evaluation.examples import Examples

__all__ = ["Truth", "class_names", "resolve_labels"]

_GENERIC = re.compile(r"LABEL_[0-9]+", re.IGNORECASE)
_INDEX = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Truth:
    """The right class of every example.

    Args:
        classes: int64 ``[rows]``.
        names: of all classes, in order.
        notice: what a person should know about how labels were understood.
    """

    classes: np.ndarray
    names: tuple[str, ...]
    notice: str | None = None

    @property
    def counts(self) -> tuple[int, ...]:
        """How many examples each class has."""
        return tuple(np.bincount(self.classes, minlength=len(self.names)).tolist())

    @property
    def majority(self) -> float:
        """Share of the most frequent class: what always saying that one reaches."""
        return max(self.counts) / len(self.classes)


def class_names(config: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Read the names of the classes from ``id2label`` of a ``config.json``, if it is there.

    Raises:
        BenchmarkError: ``id2label`` does not name every class from 0 on.
    """
    named = config.get("id2label")
    if named is None:
        return None
    try:
        by_index = {int(index): str(name).strip() for index, name in named.items()}
    except (AttributeError, ValueError):
        by_index = {}
    if not by_index or sorted(by_index) != list(range(len(by_index))):
        raise BenchmarkError('config.json: id2label is not {"0": NAME, "1": NAME, …}')
    return tuple(by_index[index] for index in range(len(by_index)))


def resolve_labels(examples: Examples, names: Sequence[str] | None, count: int) -> Truth:
    """Find the class that each label means.

    1. A label that is the name of a class, letter case aside, means that class, even where
       the name is a number.
    2. A whole number below ``count`` means the class of this index.
    3. Where the model's classes have no names (or only ``LABEL_0``, …), and the labels are as
       many different names as there are classes, they mean the classes in alphabetical
       order, and ``notice`` says so.

    Args:
        examples: the labelled text.
        names: of the model's classes; ``None`` where it has none.
        count: how many classes its logits have.

    Raises:
        BenchmarkError: a label that means none of them, with its line; or names and logits
            that do not agree.
    """
    if names is not None and len(names) != count:
        raise BenchmarkError(
            f"config.json names {len(names)} labels, but the logits have {count}: "
            f"{', '.join(names)}"
        )
    known = tuple(names or (str(index) for index in range(count)))
    found = [_class_of(row.label, known) for row in examples.rows]
    if None not in found:
        return Truth(np.array(found, np.int64), known)
    if names is None or all(_GENERIC.fullmatch(name) for name in names):
        seen = {row.label.casefold(): row.label for row in examples.rows}
        if len(seen) == count and not any(_INDEX.fullmatch(label) for label in seen):
            ordered = tuple(seen[label] for label in sorted(seen))
            classes = [ordered.index(seen[row.label.casefold()]) for row in examples.rows]
            order = ", ".join(f"{index} = {label}" for index, label in enumerate(ordered))
            notice = f"the model does not name its labels; taken in alphabetical order: {order}"
            return Truth(np.array(classes, np.int64), ordered, notice)
    row = examples.rows[found.index(None)]
    named = f"{', '.join(names)}, or " if names else ""
    raise BenchmarkError(
        f"{examples.name}, line {row.line}: the model knows no label {row.label[:80]!r}; it has "
        f"{named}0 to {count - 1}"
    )


def _class_of(label: str, names: Sequence[str]) -> int | None:
    if label in names:
        return names.index(label)
    folded = [name.casefold() for name in names]
    if label.casefold() in folded:
        return folded.index(label.casefold())
    if _INDEX.fullmatch(label) and int(label) < len(names):
        return int(label)
    return None
