"""Find the inputs of a module nobody described, from its ``forward`` and one small run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from exporter.checkpoint.input_specs import (
    WELL_KNOWN,
    RequestedInput,
    merge_limits,
    parse_all,
    well_known,
)
from exporter.checkpoint.probing import probing
from exporter.errors import CheckpointError
from exporter.inputs import InputSpec, ModelInputs

__all__ = ["derive_inputs"]

_SEQUENCE = 4


def derive_inputs(module: nn.Module, requested: Sequence[str]) -> tuple[ModelInputs, list[str]]:
    """Work out what ``module.forward`` takes.

    1. Inputs that are requested are taken as they are described.
    2. Without any: ``input_ids`` if ``forward`` has it, else its first parameter, as
       ``int64[batch,sequence]`` ids; and ``attention_mask`` if it has it.
    3. Ids without a range get the size of the smallest embedding they reach in a run on
       tiny inputs; positions looked up in an embedding limit the sequence.

    Returns:
        The inputs, and notices on what was found rather than given.

    Raises:
        CheckpointError: an unreadable or unknown input, a required parameter without
            one, ids that reach no embedding, or a failing run.
    """
    parameters = _parameters(module)
    specs, limits = (
        _requested(parse_all(requested), parameters) if requested else (_default(parameters), {})
    )
    given = {spec.name for spec in specs}
    lacking = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in given
    ]
    if lacking:
        raise CheckpointError(
            f"forward needs {', '.join(lacking)}: describe every input, such as "
            f"{_example([*given, *lacking])}"
        )
    found = _probe(module, specs, limits, bool(requested))
    notices: list[str] = []
    complete = [_complete(spec, found, bool(requested), notices) for spec in specs]
    symbols = {spec.shape[1] for spec in complete if spec.role == "ids" and len(spec.shape) == 2}
    for symbol in symbols:
        if isinstance(symbol, str) and found.positions and symbol not in limits:
            limits[symbol] = found.positions
            notices.append(f"{symbol} is limited to {found.positions} by the position embedding")
    return ModelInputs(tuple(complete), limits), notices


def _parameters(module: nn.Module) -> dict[str, inspect.Parameter]:
    """Parameters of ``forward`` that can be given by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    signature = inspect.signature(module.forward)
    return {name: p for name, p in signature.parameters.items() if p.kind in kinds}


_FORMS = {
    "input_ids": "int64[batch,sequence]<30000",
    "attention_mask": "int64[batch,sequence]",
    "token_type_ids": "int64[batch,sequence]<2",
}


def _example(names: Sequence[str]) -> str:
    forms = {name: _FORMS.get(name, "float32[batch,sequence,64]") for name in names}
    return " ".join(f"--input '{name}:{form}'" for name, form in forms.items())


def _requested(
    requested: Sequence[RequestedInput], parameters: Mapping[str, inspect.Parameter]
) -> tuple[list[InputSpec], dict[str, int]]:
    specs = []
    for one in requested:
        if one.name not in parameters:
            takes = ", ".join(parameters) or "nothing by name"
            raise CheckpointError(f"--input {one.name}: forward takes {takes}")
        if one.spec is None and one.name not in WELL_KNOWN:
            raise CheckpointError(
                f"--input {one.name} needs a type and a shape, such as {_example([one.name])}"
            )
        specs.append(one.spec or well_known(one.name))
    return specs, merge_limits(requested)


def _default(parameters: Mapping[str, inspect.Parameter]) -> list[InputSpec]:
    if not parameters:
        raise CheckpointError(
            "forward takes nothing by name, so its inputs cannot be described: "
            "wrap the module in one whose forward names them"
        )
    first = "input_ids" if "input_ids" in parameters else next(iter(parameters))
    specs = [InputSpec(first, "int64", ("batch", "sequence"), "ids")]
    if "attention_mask" in parameters:
        specs.append(well_known("attention_mask"))
    return specs


class _Lookups(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record which embedding each input reaches, by the pattern of its ids."""

    def __init__(self, patterns: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.patterns = patterns
        self.reached: dict[str, int] = {}
        self.positions: int | None = None

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is torch.ops.aten.embedding.default:
            self._note(int(args[0].shape[0]), args[1].reshape(-1))
        return func(*args, **(kwargs or {}))

    def _note(self, rows: int, ids: Tensor) -> None:
        for name, pattern in self.patterns.items():
            if _same_memory(ids, pattern) or (
                # A few bits could be equal by chance.
                ids.numel() >= 2 * _SEQUENCE and torch.equal(ids, pattern.reshape(-1).to(ids.dtype))
            ):
                self.reached[name] = min(rows, self.reached.get(name, rows))
        counting = torch.arange(_SEQUENCE, dtype=ids.dtype).repeat(ids.numel() // _SEQUENCE)
        if torch.equal(ids, counting):
            self.positions = min(rows, self.positions or rows)


def _same_memory(left: Tensor, right: Tensor) -> bool:
    return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


def _probe(
    module: nn.Module, specs: Sequence[InputSpec], limits: Mapping[str, int], described: bool
) -> _Lookups:
    """Run ``module`` on tiny inputs whose ids are 0 and 1, in a pattern for each input."""
    feeds: dict[str, Tensor] = {}
    patterns: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)
    for spec in specs:
        sizes = [d if isinstance(d, int) else min(_tiny(d), limits.get(d, 4)) for d in spec.shape]
        dtype = getattr(torch, spec.dtype)
        if spec.role == "ids":
            feeds[spec.name] = torch.randint(0, 2, sizes, generator=generator).to(dtype)
            patterns[spec.name] = feeds[spec.name]
        elif spec.role == "mask" or not dtype.is_floating_point:
            feeds[spec.name] = torch.ones(sizes, dtype=dtype)
        else:
            feeds[spec.name] = torch.randn(sizes, generator=generator).to(dtype)
    lookups = _Lookups(patterns)
    try:
        with probing(module), lookups:
            module(**feeds)
    except Exception as error:  # code of somebody else: anything can happen
        tried = ", ".join(f"{n} {_spell(t)}" for n, t in feeds.items())
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        hint = (
            "check --input"
            if described
            else f"describe the inputs, such as {_example(list(feeds))}"
        )
        raise CheckpointError(
            f"a trial run of forward on {tried} failed ({why}): {hint}"
        ) from error
    return lookups


def _tiny(symbol: str) -> int:
    return 2 if symbol == "batch" else _SEQUENCE


def _spell(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _complete(spec: InputSpec, found: _Lookups, described: bool, notices: list[str]) -> InputSpec:
    """Give ids without a range the one of the embedding they reach."""
    if spec.role != "ids" or spec.upper is not None:
        return spec
    if spec.name in found.reached:
        rows = found.reached[spec.name]
        notices.append(f"ids of {spec.name} are below {rows}: the size of the embedding they reach")
        return replace(spec, upper=rows)
    if described:
        return spec
    raise CheckpointError(
        f"{spec.name} reaches no embedding, so it does not seem to hold ids: describe it, "
        f"such as {_example([spec.name])}"
    )
