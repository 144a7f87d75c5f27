"""What is compared with what, and the names of what is compared."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.records import Case, Texts

__all__ = [
    "BASELINE",
    "compared_with",
    "exit_name",
    "exit_of",
    "is_baseline",
    "opponents",
    "reference_name",
    "work",
]

BASELINE = "baseline"
_EXIT = "-exit"


def is_baseline(variant: str) -> bool:
    """Whether ``variant`` is an unshared model: ``baseline``, ``baseline-int8``, …"""
    return variant == BASELINE or variant.startswith(f"{BASELINE}-")


def exit_name(variant: str) -> str:
    """Return the variant of a model that leaves early: ``int8-exit``."""
    return f"{variant}{_EXIT}"


def exit_of(name: str) -> str | None:
    """Return the variant that :func:`exit_name` was given; ``None`` for another name."""
    return name.removesuffix(_EXIT) if name.endswith(_EXIT) else None


def work(case: Case) -> Texts | int:
    """Return what a row of the case is: texts, or so many random ids.

    Of texts the number of tokens is left out: it is the tokenizer's, and differs between
    models that do the same work.
    """
    return case.texts or case.sequence


def opponents(variant: str) -> tuple[str, ...]:
    """Return what a variant is compared with, the most telling first.

    1. ``int8`` for ``int8-exit``: the same file through all layers.
    2. ``baseline``: what one would ship without sharing and without quantizing.
    3. ``baseline-int8`` for ``int8``: the unshared model in the same precision.
    4. ``fp32``: what the precision alone does.

    Of the unshared models, ``baseline-int8`` is compared with ``baseline``, which is compared
    with nothing.
    """
    if (full := exit_of(variant)) is not None:
        return (full, *opponents(full))
    if is_baseline(variant):
        return () if variant == BASELINE else (BASELINE,)
    return (BASELINE, f"{BASELINE}-{variant}", *(() if variant == "fp32" else ("fp32",)))


def compared_with(case: Case, others: Sequence[Case]) -> list[Case]:
    """Return those of ``others`` that ``case`` is compared with, the most telling first.

    They are the :func:`opponents` of its variant in its own artifact, and the same variant of
    the first artifact among ``others``, where that is another one.
    """
    wanted = [(case.artifact, variant) for variant in opponents(case.variant)]
    wanted += [(other.artifact, case.variant) for other in others[:1]]
    places = {(other.artifact, other.variant): other for other in others}
    found = [places[place] for place in wanted if place in places]
    return [other for other in found if other != case]


def reference_name(case: Case, reference: Case) -> str:
    """Name what ``case`` is compared with: its variant, with the artifact where that differs."""
    if reference.artifact == case.artifact:
        return reference.variant
    return f"{reference.artifact} {reference.variant}"
