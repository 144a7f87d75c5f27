"""How much slower or faster, and how sure that is.

Samples are compared in pairs that were taken next to each other, so that drift of the
machine's speed cancels. Two things scatter then: the runs within one process, whose
neighbours are alike (a machine is slow for a while, not for one run); and the processes
themselves, since where memory happens to lie makes one process of a file 1–3 % faster than
another of the same file, however long both run. Which of them can be seen decides the
interval:

1. Several fresh processes of each (the default of ``bench``): each pair of processes gives
   one figure, the median ratio of its pairs; the interval is Student's, over the logarithms
   of these figures. It covers both kinds of scatter.
2. One process of each: a circular block bootstrap of that figure. Blocks keep neighbours
   together; their length follows from the correlation of neighbours. It covers the scatter
   within a process only: two processes of one file may well lie outside of it, so that it
   decides the verdict and is not shown.

Runs on texts take unlike times, and a model that leaves early saves much on one text and
nothing on the next. The median of the pairs would tell of some text in the middle; what all of
them take is what counts, so the figure of a process is then the ratio of the sums. Each process
runs the next texts, so that the interval covers the scatter of the texts too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from exporter.errors import BenchmarkError
from exporter.records import Measurement

__all__ = [
    "DEFAULT_SEED",
    "Ratio",
    "block_length",
    "paired_ratio",
    "ratio",
    "sessions_note",
    "student_quantile",
]

DEFAULT_SEED = 20_260_101
_LEVEL = 0.95
_FEWEST_SESSIONS = 3  # of two, Student's quantile is 12.7: the interval says nothing
_DRAWS = 1000
_LONGEST_MEMORY = 0.95  # beyond this correlation, blocks would hold the whole series


@dataclass(frozen=True)
class Ratio:
    """Time of a candidate in proportion to that of its reference.

    Args:
        value: geometric mean over processes of the median ratio of pairs, or of the ratio of
            sums where texts were run; of one process, that figure.
        low, high: 95 % interval.
        pairs: how many pairs of samples it rests on.
        sessions: how many fresh processes of each.
    """

    value: float
    low: float
    high: float
    pairs: int = 0
    sessions: int = 1

    @property
    def has_interval(self) -> bool:
        """Whether to show the interval: one process tells nothing of how processes differ."""
        return self.sessions > 1

    @property
    def verdict(self) -> str:
        """``faster``, ``slower``, or ``no clear difference`` where the interval holds 1."""
        if self.high < 1:
            return "faster"
        return "slower" if self.low > 1 else "no clear difference"


def ratio(candidate: Measurement, reference: Measurement, *, seed: int = DEFAULT_SEED) -> Ratio:
    """Compare two measurements of one interleaved run.

    Raises:
        BenchmarkError: they are not of one run, one of them was not measured, or they did not
            run the same texts.
    """
    for one in (candidate, reference):
        if one.status != "measured":
            raise BenchmarkError(f"{one.case.variant} was not measured: {one.error}")
    if candidate.run != reference.run:
        raise BenchmarkError(
            f"{candidate.case.variant} and {reference.case.variant} were measured in two runs; "
            "only samples of one interleaved run make pairs"
        )
    if candidate.case.texts != reference.case.texts:
        raise BenchmarkError("the two measurements did not run the same texts")
    if candidate.session_runs != reference.session_runs:
        raise BenchmarkError("the two measurements do not divide into the same sessions")
    return paired_ratio(
        candidate.samples_ms,
        reference.samples_ms,
        seed,
        candidate.session_runs,
        of_sums=candidate.case.texts is not None,
    )


def sessions_note(ratios: Iterable[Ratio]) -> str | None:
    """Say that there were too few processes for intervals; ``None`` if there were enough."""
    fewest = min((one.sessions for one in ratios), default=_FEWEST_SESSIONS)
    if fewest >= _FEWEST_SESSIONS:
        return None
    count = "1 session is" if fewest == 1 else f"{fewest} sessions are"
    return f"{count} too few for an interval; use --sessions 4 or more"


def paired_ratio(
    candidate: Sequence[float],
    reference: Sequence[float],
    seed: int = DEFAULT_SEED,
    session_runs: Sequence[int] = (),
    *,
    of_sums: bool = False,
) -> Ratio:
    """Compare two series whose samples were taken in pairs.

    Args:
        candidate, reference: positive milliseconds, ``[n]`` each.
        seed: of the bootstrap; the same samples and seed give the same interval.
        session_runs: how many samples each fresh process gave; empty: one gave all.
        of_sums: compare sums, not pair by pair: the pairs are runs of unlike texts.

    Raises:
        BenchmarkError: no pairs, series of unlike length, a sample that is not positive (a
            clock too coarse), or sessions that do not add up.
    """
    pairs = len(candidate)
    if not pairs or pairs != len(reference):
        raise BenchmarkError(f"{pairs} and {len(reference)} samples make no pairs")
    if session_runs and sum(session_runs) != pairs:
        raise BenchmarkError(f"sessions of {sum(session_runs)} runs for {pairs} samples")
    if min(*candidate, *reference) <= 0:
        raise BenchmarkError("a sample is not positive; the clock is too coarse for a ratio")
    times = np.array([candidate, reference], float)
    sessions = np.split(times, np.cumsum(session_runs or (pairs,))[:-1], axis=1)
    figure = _log_of_sums if of_sums else _median_log
    figures = np.array([figure(session) for session in sessions])
    if len(sessions) > 1:
        low, high = _student_interval(figures)
    else:
        low, high = _bootstrap_interval(times, figure, np.random.default_rng(seed))
    center = float(figures.mean())
    # Rounding must not put the centre of a constant series outside of its interval.
    low, high = min(low, center), max(high, center)
    return Ratio(math.exp(center), math.exp(low), math.exp(high), pairs, len(sessions))


def _median_log(times: np.ndarray) -> np.ndarray:
    """Median logarithm of the ratios of pairs; ``[2, …, n]`` to ``[…]``."""
    return np.median(np.log(times[0]) - np.log(times[1]), axis=-1)


def _log_of_sums(times: np.ndarray) -> np.ndarray:
    """Logarithm of the ratio of sums; ``[2, …, n]`` to ``[…]``."""
    sums = times.sum(axis=-1)
    return np.log(sums[0]) - np.log(sums[1])


def block_length(series: np.ndarray) -> int:
    """How many neighbours a bootstrap of the median must keep together.

    From the correlation of neighbours in lying above the median (what the median's own
    scatter depends on), by the rule for a first-order process that makes the error of the
    variance smallest: ``(2 r / (1 - r²))^(2/3) n^(1/3)``. The correlation of a short series
    comes out too small on average, by ``(1 + 3 r) / n``, which is added first.
    """
    count = len(series)
    above = np.sign(series - np.median(series))
    power = float((above * above).sum())
    if count < 4 or power == 0:
        return 1
    seen = float((above[1:] * above[:-1]).sum()) / power
    memory = min((count * seen + 1) / (count - 3), _LONGEST_MEMORY)
    if memory <= 0:
        return 1
    length = math.ceil((2 * memory / (1 - memory**2)) ** (2 / 3) * count ** (1 / 3))
    return min(length, max(1, count // 4))


def _bootstrap_interval(
    times: np.ndarray, figure: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator
) -> tuple[float, float]:
    count = times.shape[1]
    length = block_length(np.log(times[0]) - np.log(times[1]))
    starts = rng.integers(0, count, (_DRAWS, math.ceil(count / length)))
    indices = (starts[:, :, None] + np.arange(length)).reshape(_DRAWS, -1)[:, :count] % count
    figures = figure(times[:, indices])
    tail = _widened_tail(count / length)
    low, high = np.quantile(figures, [tail, 1 - tail])
    return float(low), float(high)


def _widened_tail(blocks: float) -> float:
    """Tail to cut off on each side, so that few blocks give no interval that is too short.

    A bootstrap of m blocks underestimates the scatter by √((m-1)/m) and takes it as known;
    Student's quantile corrects both.
    """
    tail = (1 - _LEVEL) / 2
    if blocks < 3:
        return 0.0  # all that the draws reached
    freedom = blocks - 1
    quantile = math.sqrt(blocks / freedom) * student_quantile(1 - tail, freedom)
    return NormalDist().cdf(-quantile)


def _student_interval(figures: np.ndarray) -> tuple[float, float]:
    count = len(figures)
    error = float(figures.std(ddof=1)) / math.sqrt(count)
    half = student_quantile((1 + _LEVEL) / 2, count - 1) * error
    center = float(figures.mean())
    return center - half, center + half


def student_quantile(probability: float, freedom: float) -> float:
    """Quantile of Student's distribution; within 0.2 % for the probability 0.975.

    One and two degrees of freedom have closed forms; beyond, the expansion around the
    normal quantile (Abramowitz and Stegun, 26.7.5).
    """
    if freedom < 2:
        return math.tan(math.pi * (probability - 0.5))
    if freedom < 3:
        spread = 4 * probability * (1 - probability)
        return 2 * (probability - 0.5) * math.sqrt(2 / spread)
    z = NormalDist().inv_cdf(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))
