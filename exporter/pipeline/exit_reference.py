"""What the PyTorch model gives when it leaves early, at the settings that are verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from exporter.checkpoint import LoadedModel
from exporter.early_exit import LAYERS_USED, MAX_LAYERS, MIN_LAYERS, RULES, RuleName
from exporter.inputs import Feeds
from exporter.models.early_exit import EarlyExit, exit_passes, exit_signals
from exporter.pipeline.options import ExitCase
from exporter.source_model import run_source

__all__ = ["exit_runner"]

_CLEAR_GAP = 1e-4
"""Distance of a threshold from every value it is compared with, where rounding cannot matter."""


def exit_runner(
    loaded: LoadedModel, rule: RuleName
) -> Callable[[Feeds], Sequence[ExitCase]] | None:
    """Return what runs ``loaded`` at every depth and leaves by ``rule``; ``None``: it cannot.

    The settings are those of the earliest and of no exit, some in between, and bounds on the
    number of passes. The threshold in between is the one at which rows leave at the most
    different passes, of those that keep their distance from every value they are compared with.
    """
    plan = loaded.depth_plan
    if plan is None or len(plan.depths) != 1:
        return None
    depth = plan.depths[0]

    def run(feeds: Feeds) -> list[ExitCase]:
        passes = []
        for number in range(1, depth + 1):
            with plan.at(number):
                passes.append(run_source(loaded, feeds))
        outputs = {name: [torch.from_numpy(one[name]) for one in passes] for name in passes[0]}
        watched = outputs.get("logits") or next(iter(outputs.values()))
        mask = _mask(loaded, feeds)
        cases = []
        for settings in _settings(rule, exit_signals(rule, watched, mask)):
            used = settings.layers_used(watched, mask)
            expected = {name: settings.answers(of, used).numpy() for name, of in outputs.items()}
            expected[LAYERS_USED] = used.numpy()
            given = _feeds(settings)
            name = ", ".join(f"{key} {value.item():.6g}" for key, value in given.items())
            cases.append(ExitCase(name, given, expected))
        return cases

    return run


def _mask(loaded: LoadedModel, feeds: Feeds) -> Tensor | None:
    names = [spec.name for spec in loaded.inputs.specs if spec.role == "mask"]
    return torch.from_numpy(feeds[names[0]]) if names else None


def _settings(rule: RuleName, signals: Tensor) -> Iterator[EarlyExit]:
    depth = len(signals)
    earliest = RULES[rule].values[0]
    yield EarlyExit(rule, earliest)
    yield EarlyExit(rule, earliest, min_layers=min(2, depth))
    yield EarlyExit(rule, earliest, min_layers=depth, max_layers=1)
    yield EarlyExit(rule, max_layers=max(depth - 1, 1))
    for between in (1.0, 2.0) if rule == "patience" else _dividing(rule, signals):
        yield EarlyExit(rule, between)
        yield EarlyExit(rule, between, min_layers=min(2, depth))


def _dividing(rule: RuleName, signals: Tensor) -> list[float]:
    """Return the threshold at which rows leave at the most different passes.

    Of several the one of the widest gap; none where no gap between values is clear.
    """
    values = np.sort(signals[torch.isfinite(signals)].numpy().astype(np.float64))
    gaps = np.diff(values)
    middles = values[:-1] + gaps / 2

    def passes_and_gap(number: int) -> tuple[int, float]:
        passes = exit_passes(rule, signals, float(middles[number]))
        return len(set(passes.tolist())), float(gaps[number])

    clear: list[int] = np.flatnonzero(gaps >= 2 * _CLEAR_GAP).tolist()
    return [float(middles[max(clear, key=passes_and_gap)])] if clear else []


def _feeds(settings: EarlyExit) -> Feeds:
    feeds: Feeds = {}
    if settings.setting is not None:
        feeds |= RULES[settings.rule].feeds(settings.setting)
    if settings.min_layers != 1:
        feeds[MIN_LAYERS.name] = np.array(settings.min_layers, np.int64)
    if settings.max_layers is not None:
        feeds[MAX_LAYERS.name] = np.array(settings.max_layers, np.int64)
    return feeds
