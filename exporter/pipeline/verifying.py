"""Compare files with the source on the standard inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from exporter.early_exit import LAYERS_USED
from exporter.inputs import Feeds, InputSpec, ModelInputs, VerificationCase, verification_cases
from exporter.pipeline.options import Prepared
from exporter.reference import ReferenceCase
from exporter.runtimes.cpu import CpuSession
from exporter.verification import Verification, compare, judge, judge_relative

__all__ = ["DEPTH_INPUT", "Verifier"]

DEPTH_INPUT = InputSpec("depth", "int64", (), optional=True)
"""Number of passes through the layers, where that is an input; all of them by default."""

_REFERENCE_CASES = ("padded", "3x8", "1x17", "1x1")
_REFERENCE_BYTES = 256_000
"""Reference vectors are few: a device computes them before it is measured."""


class Verifier:
    """Holds files to what the source computes.

    Args:
        prepared: the source.
        inputs: what the files take.
        keep_answers: keep the source's outputs for further files, in place of computing them
            for each: memory for time.
    """

    def __init__(self, prepared: Prepared, inputs: ModelInputs, *, keep_answers: bool) -> None:
        self._prepared, self._inputs, self._keep = prepared, inputs, keep_answers
        self._cases = verification_cases(inputs)
        self._answers: dict[int, Mapping[str, np.ndarray]] = {}
        self._excluded: dict[str, tuple[int, ...]] = {}

    def exact(self, path: Path, atol: float) -> Verification:
        """Hold a file in float32 to an absolute difference.

        A model of elastic depth is also compared at every depth up to its own, one with an
        early exit at several settings, with the pass at which each row leaves.
        """
        session = CpuSession(path, inputs=self._inputs)
        reports = []
        for case in self._cases:
            reference = self._answer(case)
            candidate = _answers(session, case.feeds, reference)
            report = compare(case.name, reference, candidate)
            if case.padding_rows and judge((report,), atol).verdict.status == "failed":
                # Attention over nothing has no agreed result: 0, uniform or NaN.
                report = compare(case.name, reference, candidate, exclude_rows=case.padding_rows)
                self._excluded[case.name] = case.padding_rows
            reports.append(report)
        if DEPTH_INPUT in self._inputs.specs:
            at_depth = self._prepared.reference_at_depth
            assert at_depth is not None
            feeds = self._small_feeds()
            for depth in range(1, self._own_depth() + 1):
                candidate = session.run(feeds | {DEPTH_INPUT.name: np.array(depth, np.int64)})
                reports.append(compare(f"depth {depth}", at_depth(feeds, depth), candidate))
        if (exit_cases := self._prepared.exit_cases) is not None:
            feeds = self._small_feeds()
            for exit_case in exit_cases(feeds):
                candidate = session.run(feeds | exit_case.settings)
                reports.append(compare(exit_case.name, exit_case.expected, candidate))
        return judge(tuple(reports), atol)

    def relative(self, path: Path, tolerance: float) -> Verification:
        """Hold a file in a reduced precision to a relative error, over all cases together."""
        session = CpuSession(path, inputs=self._inputs)
        reports = []
        for case in self._cases:
            reference = self._answer(case)
            candidate = _answers(session, case.feeds, reference)
            excluded = self._excluded.get(case.name, ())
            reports.append(compare(case.name, reference, candidate, exclude_rows=excluded))
        return judge_relative(tuple(reports), tolerance)

    def reference_cases(self) -> list[ReferenceCase]:
        """Return the few cases that go into the artifact, for devices to check themselves.

        None where even the smallest outputs are too large, or not finite.
        """
        chosen, room = [], _REFERENCE_BYTES
        for case, outputs in self._small_cases():
            size = sum(array.nbytes for array in outputs.values())
            finite = all(np.isfinite(array).all() for array in outputs.values())
            if size <= room and finite and case.name not in self._excluded:
                room -= size
                chosen.append(ReferenceCase(case.name, case.feeds, self._whole(outputs)))
        return chosen

    def _whole(self, outputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Add what the source does not give: how many layers a model uses that may leave early."""
        if self._prepared.exit_cases is None:
            return outputs
        rows = len(next(iter(outputs.values())))
        return {**outputs, LAYERS_USED: np.full(rows, self._own_depth(), np.int64)}

    def _small_cases(self) -> Iterator[tuple[VerificationCase, Mapping[str, np.ndarray]]]:
        by_name = {case.name: case for case in self._cases}
        names = [name for name in _REFERENCE_CASES if name in by_name]
        for name in names or [case.name for case in self._cases]:
            yield by_name[name], self._answer(by_name[name])

    def _small_feeds(self) -> Feeds:
        """Draw eight rows of eight tokens, every other one mostly padding.

        Fewer where the model does not take so many.
        """
        limits = {symbol: min(8, self._inputs.limit(symbol)) for symbol in self._inputs.symbols}
        return self._inputs.draw(limits, lengths=(8, 3) * 4)

    def _answer(self, case: VerificationCase) -> Mapping[str, np.ndarray]:
        # Not by name: two random cases may have the same shape, which is their name.
        if id(case) in self._answers:
            return self._answers[id(case)]
        answer = self._prepared.reference(case.feeds)
        if self._keep:
            self._answers[id(case)] = answer
        return answer

    def _own_depth(self) -> int:
        assert self._prepared.layout is not None
        return int(self._prepared.layout.loops[0]["iterations"])


def _answers(
    session: CpuSession, feeds: Feeds, reference: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """Run, and leave out how many layers were used, which PyTorch does not tell."""
    outputs = session.run(feeds)
    return {n: value for n, value in outputs.items() if n != LAYERS_USED or n in reference}
