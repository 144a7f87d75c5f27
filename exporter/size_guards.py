"""What ``torch.export`` assumed about free sizes, held against the module itself.

Where a ``forward`` asks for a size (``if x.shape[1] > 8``), the trace takes the branch of
its example and records the condition as a guard. ONNX has no guards: a graph would go on
computing that branch where the module takes another one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.checkpoint.exported_program import bounds_of, user_tensors
from exporter.errors import CaptureError
from exporter.inputs import ModelInputs
from exporter.source_model import FlatModule, first_line

__all__ = ["check_guards", "tighten_limits"]

_SIZE = re.compile(r"L\['values'\]\[(\d+)\]\.size\(\)\[(\d+)\]")

# Sizes among which one is searched that breaks a guard, by the number of sizes it ties.
_SEARCHED = {1: 512, 2: 64}
_SEARCHED_OF_MANY = 12

# Numbers that a guard names are searched too, as far as a model can be run that long.
_LARGEST = 2048

# Both run the same kernels, in the same order unless a branch differs.
_TOLERANCE = 1e-4

_Run = Callable[..., Iterable[Tensor]]


def tighten_limits(
    program: ExportedProgram, inputs: ModelInputs
) -> tuple[ModelInputs, tuple[str, ...]]:
    """Limit each symbolic dimension to what the program was made for.

    Returns:
        The inputs with smaller or added limits, and one notice for each of these.
    """
    limits = dict(inputs.limits)
    notices = []
    for symbol, (_, upper) in _ranges(program, inputs).items():
        if upper is not None and upper < limits.get(symbol, upper + 1):
            limits[symbol] = upper
            notices.append(
                f"the model was captured for {symbol} up to {upper}: it behaves differently beyond"
            )
    return ModelInputs(inputs.specs, limits), tuple(notices)


def check_guards(
    program: ExportedProgram,
    flat: FlatModule,
    inputs: ModelInputs,
    example: Mapping[str, int],
) -> None:
    """Compare program and module at sizes, within the limits, that the trace did not foresee.

    Many guards only choose between equal computations (``x[:, :5]`` of a longer or a
    shorter input), so a guard is no reason to refuse a model: a difference is.

    Args:
        program: the program captured from ``flat``.
        flat: the module.
        inputs: its inputs, with the limits of :func:`tighten_limits`.
        example: the sizes it was captured with.

    Raises:
        CaptureError: the module fails or computes something else at such a size.
    """
    run: _Run | None = None
    for condition, symbols, sizes in _unforeseen(program, inputs, example):
        run = run or torch.fx.Interpreter(program.module(check_guards=False)).run
        reason = _difference(flat, run, inputs, sizes)
        if reason is not None:
            names = " and ".join(symbols)
            at = ", ".join(f"{symbol} {sizes[symbol]}" for symbol in symbols)
            raise CaptureError(
                f"the model was captured for {condition}, and at {at} {reason}; give {names} as "
                f"a fixed size in --input, or make the model treat every {names} alike"
            )


def _unforeseen(
    program: ExportedProgram, inputs: ModelInputs, example: Mapping[str, int]
) -> Iterator[tuple[str, tuple[str, ...], dict[str, int]]]:
    """Give sizes that the program was not made for: the condition, its symbols, the sizes."""
    for symbol, (lower, _) in _ranges(program, inputs).items():
        if lower > 2:  # 2 says nothing: see bounds_of
            for size in range(lower - 1, 0, -1):
                yield f"{symbol} of {lower} or more", (symbol,), {**example, symbol: size}
    for guard in _guards(program, inputs):
        sizes = guard.broken(inputs)
        if sizes is not None:
            yield f"{guard.text} only", guard.symbols, {**example, **sizes}


def _ranges(program: ExportedProgram, inputs: ModelInputs) -> dict[str, tuple[int, int | None]]:
    """Smallest and largest size of each symbol, over all inputs that have it."""
    ranges: dict[str, tuple[int, int | None]] = {}
    for node, spec in zip(user_tensors(program), inputs.specs, strict=True):
        for size, symbol in zip(node.meta["val"].shape, spec.shape, strict=True):
            if isinstance(symbol, str) and not isinstance(size, int):
                lower, upper = bounds_of(program, size)
                known_lower, known_upper = ranges.get(symbol, (0, None))
                uppers = [bound for bound in (upper, known_upper) if bound is not None]
                ranges[symbol] = (max(lower, known_lower), min(uppers, default=None))
    return ranges


@dataclass(frozen=True)
class _Guard:
    """One condition: its text for people, its code, and the symbols it speaks of."""

    text: str
    code: CodeType
    symbols: tuple[str, ...]

    def holds(self, sizes: tuple[int, ...]) -> bool:
        known = {"__builtins__": {"max": max, "min": min}}
        return bool(eval(self.code, known, dict(zip(self.symbols, sizes, strict=True))))

    def broken(self, inputs: ModelInputs) -> dict[str, int] | None:
        """Find the smallest sizes that break the guard; above 1, which torch treats apart."""
        reach = _SEARCHED.get(len(self.symbols), _SEARCHED_OF_MANY)
        named = {int(digits) + step for digits in re.findall(r"\d+", self.text) for step in (0, 1)}
        choices = [
            sorted(
                size
                for size in {*range(2, reach + 1), *named, inputs.limit(symbol)}
                if 2 <= size <= min(inputs.limits.get(symbol, _LARGEST), _LARGEST)
            )
            for symbol in self.symbols
        ]
        for sizes in sorted(itertools.product(*choices), key=sum):
            try:
                if not self.holds(sizes):
                    return dict(zip(self.symbols, sizes, strict=True))
            except ZeroDivisionError:
                continue
        return None


def _guards(program: ExportedProgram, inputs: ModelInputs) -> Iterator[_Guard]:
    """Read the conditions as torch writes them, in Python; those on anything else are left out."""
    for text in dict.fromkeys(program._guards_code):
        shapes = [inputs.specs[int(m[1])].shape[int(m[2])] for m in _SIZE.finditer(text)]
        symbols = tuple(dict.fromkeys(size for size in shapes if isinstance(size, str)))
        readable = _SIZE.sub(lambda m: str(inputs.specs[int(m[1])].shape[int(m[2])]), text)
        code = compile(readable, "<guard>", "eval")
        if symbols and set(code.co_names) <= {*symbols, "max", "min"}:
            yield _Guard(readable, code, symbols)


def _difference(
    flat: FlatModule,
    run: _Run,
    inputs: ModelInputs,
    sizes: Mapping[str, int],
) -> str | None:
    def feeds() -> tuple[Tensor, ...]:  # drawn twice, since a forward may change its inputs
        return tuple(torch.from_numpy(array) for array in inputs.draw(sizes).values())

    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            expected = flat(*feeds())
    except Exception as error:
        return f"the model itself fails ({first_line(error)})"
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            produced = run(*feeds())
        torch.testing.assert_close(
            tuple(produced), expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
        )
    except Exception:
        return "the captured graph computes something else"
    return None
