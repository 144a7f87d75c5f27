"""Precisions: how weights are stored, which of them, and why.

Plain data, imported by whoever asks for a precision, applies one or names a file by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal, get_args

from exporter.errors import ExportError

__all__ = [
    "INT4_RUNS",
    "MAIN_PRECISIONS",
    "OPERATORS",
    "PRECISIONS",
    "TARGETS",
    "TRANSFORMERS_JS_FILES",
    "Float16",
    "Int4",
    "Int4Run",
    "Int8",
    "Int8Weights",
    "Keep",
    "Operator",
    "Precision",
    "Rule",
    "Target",
    "choose_precisions",
    "find_precision",
]

Operator = Literal["MatMul", "Gemm", "Gather"]
"""Operators whose weights can be stored in fewer bits."""

OPERATORS: frozenset[Operator] = frozenset(get_args(Operator))

Int8Weights = Literal["int8", "uint8", "int7", "int8_full"]
"""How 8 bits are used.

x86 CPUs without VNNI add products of bytes in pairs, in 16 bits, when weights are signed.
``int8``: signed, with scales large enough that no two neighbouring weights can exceed 16
bits: exact everywhere, full speed everywhere. ``uint8``: around the zero point 128: exact
everywhere, but slow on CPUs with VNNI or AMX, whose instructions it does not use. ``int7``:
signed, within ±64: exact everywhere, at half the resolution. ``int8_full``: signed, within
±127: wrong sums on x86 CPUs without VNNI where large weights meet."""

Int4Run = Literal["float", "int8", "matmul_nbits", "dequantize"]
"""What a product computes with. ``float``: weights expanded once at load, arithmetic in
float32. ``int8``: expanded once at load to 8 bits, integer arithmetic. ``matmul_nbits``:
onnxruntime's ``MatMulNBits``, never expanded as a whole. ``dequantize``: a blocked
``DequantizeLinear`` (opset 21), which runs at every inference."""

Target = Literal["cpu", "web", "phone"]
"""Where the artifact will run, as far as a choice depends on it."""

TARGETS: tuple[Target, ...] = get_args(Target)

INT4_RUNS: Mapping[Target, Int4Run] = MappingProxyType(
    {"cpu": "int8", "web": "int8", "phone": "matmul_nbits"}
)
"""How ``int4`` runs on each target, from the figures in ``benchmarks/precisions/times.md``:
``int8`` is the fastest, but while it loads the heap grows to several times the file, which a
phone's browser may not grant; ``matmul_nbits`` takes an eighth of that, and three times as long."""

TRANSFORMERS_JS_FILES: Mapping[str, str] = MappingProxyType(
    {
        "fp32": "model.onnx",
        "fp16": "model_fp16.onnx",
        "q8": "model_quantized.onnx",
        "int8": "model_int8.onnx",
        "uint8": "model_uint8.onnx",
        "q4": "model_q4.onnx",
        "q4f16": "model_q4f16.onnx",
        "bnb4": "model_bnb4.onnx",
    }
)
"""The file that transformers.js loads for each of its ``dtype``s."""


@dataclass(frozen=True)
class Float16:
    """Weights stored as float16 and expanded at load: ``[K, N]`` float32 -> float16."""


@dataclass(frozen=True)
class Int8:
    """Weights stored in 8 bits; activations quantized at run time in front of products.

    A product's weight ``[K, N]`` has scales ``[N]``; a table that is only looked up
    ``[V, D]`` has scales ``[D]``; one that is also a product's transposed weight ``[V]``;
    a weight used as ``W`` and as ``Wᵀ`` in products one scale ``[]``.

    Args:
        weights: how 8 bits are used; see :data:`Int8Weights`.
        per_channel: one scale per channel as above; off, one per tensor.
    """

    weights: Int8Weights = "int8"
    per_channel: bool = True


@dataclass(frozen=True)
class Int4:
    """Weights stored in 4 bits by blocks along the summed axis, two numbers to a byte.

    A product's weight ``[K, N]`` -> numbers ``[N, K / block, block / 2]``, scales
    ``[N, K / block]``; a table ``[V, D]`` -> ``[V, D / block, block / 2]`` and
    ``[V, D / block]``. A last block that is not full is padded.

    Args:
        block: weights per scale: a power of two from 16 to 256.
        symmetric: zero is the number 8 in every block; otherwise each block has a zero
            point, 4 bits more per block.
        scales: type of the stored scales.
        run: what products compute with; see :data:`Int4Run`.

    Raises:
        ExportError: the block size is not one that runtimes take.
    """

    block: int = 32
    symmetric: bool = True
    scales: Literal["float16", "float32"] = "float16"
    run: Int4Run = "float"

    def __post_init__(self) -> None:
        if self.block not in (16, 32, 64, 128, 256):
            raise ExportError(f"int4 block size {self.block}: choose 16, 32, 64, 128 or 256")


@dataclass(frozen=True)
class Keep:
    """Weights that stay as they are.

    ``Keep("*.classifier.*", "the head is small and sensitive")``.

    Args:
        pattern: shell pattern for names of weights and of the nodes that use them; a weight
            that a matching node shares with others is kept for all.
        why: the reason, for reports.
    """

    pattern: str
    why: str = "asked for"

    def matches(self, name: str) -> bool:
        """Whether ``name`` is meant; upper and lower case differ."""
        return fnmatchcase(name, self.pattern)


@dataclass(frozen=True)
class Rule:
    """One way to store weights, the operators whose weights it takes, and why.

    A weight that several operators use is taken where the rule names all of them.
    """

    store: Float16 | Int8 | Int4
    why: str
    operators: frozenset[Operator] = OPERATORS


@dataclass(frozen=True)
class Precision:
    """One stored form of a model.

    Args:
        name: what people ask for.
        dtype: what transformers.js calls it; see :data:`TRANSFORMERS_JS_FILES`.
        summary: one line: what it gives and costs.
        tolerance: largest relative error of any output that passes: root mean square of the
            difference to the source, in proportion to that of the source, over the
            verification inputs.
        rules: applied one after another; each takes what those before it left.
        keep: weights that stay as they are, whatever the rules.
    """

    name: str
    dtype: str
    summary: str
    tolerance: float
    rules: tuple[Rule, ...] = ()
    keep: tuple[Keep, ...] = ()

    @property
    def file_name(self) -> str:
        """Name of the file in the artifact's ``onnx`` folder."""
        return TRANSFORMERS_JS_FILES[self.dtype]

    def keeping(self, *patterns: str, why: str = "asked for") -> Precision:
        """Return this precision with further weights kept as they are."""
        return replace(self, keep=(*self.keep, *(Keep(pattern, why) for pattern in patterns)))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "summary": self.summary,
            "tolerance": self.tolerance,
            "rules": [
                {
                    "store": type(rule.store).__name__.lower(),
                    **vars(rule.store),
                    "operators": sorted(rule.operators),
                    "why": rule.why,
                }
                for rule in self.rules
            ],
            "keep": [vars(keep) for keep in self.keep],
        }


_PRODUCTS: frozenset[Operator] = frozenset({"MatMul", "Gemm"})
_LOOKUPS: frozenset[Operator] = frozenset({"Gather"})
_EVERYTHING = "every weight, embeddings included"
_EXACT, _HALF, _EIGHT, _FOUR = 1e-4, 0.01, 0.15, 0.5
"""Tolerances. A sound int8 of a 12-layer encoder was seen at 0.04, one whose sums saturate at
0.4; a sound int4 of random weights at 0.3. Outputs that have nothing to do with the source's are
at 1 or more."""

PRECISIONS: tuple[Precision, ...] = (
    Precision("fp32", "fp32", "as trained", _EXACT),
    Precision(
        "fp16",
        "fp16",
        "half the bytes; computes in float32 after expanding at load",
        _HALF,
        (Rule(Float16(), _EVERYTHING),),
    ),
    Precision(
        "int8",
        "q8",
        "a quarter of the bytes; integer arithmetic, exact on every CPU",
        _EIGHT,
        (Rule(Int8("int8"), _EVERYTHING),),
    ),
    Precision(
        "int8-unsigned",
        "uint8",
        "as int8, with unsigned weights: a little finer, slow on CPUs with VNNI or AMX",
        _EIGHT,
        (Rule(Int8("uint8"), "for targets that multiply unsigned bytes as fast"),),
    ),
    Precision(
        "int8-reduced",
        "int8",
        "as int8, with weights of 7 bits: for runtimes that add more than two products",
        _EIGHT,
        (Rule(Int8("int7"), "the range that other quantizers call reduced"),),
    ),
    Precision(
        "int8-full",
        "int8",
        "as int8, with the full range of signed bytes: wrong sums on x86 CPUs without VNNI",
        _EIGHT,
        (Rule(Int8("int8_full"), "for targets known to add up signed bytes exactly"),),
    ),
    Precision(
        "int4-float",
        "q4",
        "an eighth of the bytes; expanded at load, then speed and memory of fp32",
        _FOUR,
        (Rule(Int4(run="float"), _EVERYTHING),),
    ),
    Precision(
        "int4-int8",
        "q4",
        "an eighth of the bytes; expanded at load to int8, then its speed and memory",
        _FOUR,
        (Rule(Int4(run="int8"), _EVERYTHING),),
    ),
    Precision(
        "int4-nbits",
        "q4",
        "an eighth of the bytes, least memory; onnxruntime's MatMulNBits, slow in WebAssembly",
        _FOUR,
        (Rule(Int4(run="matmul_nbits"), _EVERYTHING),),
    ),
    Precision(
        "int4-dequantize",
        "q4",
        "an eighth of the bytes; a blocked DequantizeLinear at every inference, opset 21",
        _FOUR,
        (Rule(Int4(run="dequantize"), _EVERYTHING),),
    ),
    Precision(
        "int8-int4-tables",
        "q8",
        "int8 with embeddings in 4 bits: looked up by rows, they cost no arithmetic",
        _FOUR,
        (
            Rule(Int4(), "tables that are only looked up: bytes, no arithmetic", _LOOKUPS),
            Rule(Int8(), "products, and tables tied to them", OPERATORS),
        ),
    ),
)


MAIN_PRECISIONS = ("fp32", "fp16", "int8", "int4")
"""What ``all`` means: one file of each size."""


def find_precision(name: str, target: Target = "web") -> Precision:
    """Return the precision of this name; ``int4`` is the form that suits ``target``.

    Raises:
        ExportError: there is none; the text lists those that exist.
    """
    if name == "int4":
        run = INT4_RUNS[target]
        form = next(p for p in PRECISIONS if p.rules and p.rules[0].store == Int4(run=run))
        return replace(form, name="int4")
    for precision in PRECISIONS:
        if precision.name == name:
            return precision
    known = ", ".join(["all", "int4", *(precision.name for precision in PRECISIONS)])
    raise ExportError(f"unknown precision {name!r}; choose from {known}")


def choose_precisions(names: Sequence[str], target: Target = "web") -> tuple[Precision, ...]:
    """Return the precisions that ``names`` ask for, each once, in the order asked.

    Args:
        names: each one name, or several with commas between; ``all`` is
            :data:`MAIN_PRECISIONS`.
        target: what ``int4`` is made for.

    Raises:
        ExportError: an unknown name, or none at all.
    """
    asked = [part.strip() for text in names for part in text.split(",") if part.strip()]
    if not asked:
        raise ExportError("no precision is asked for; try fp32, int8 or all")
    each = [one for name in asked for one in (MAIN_PRECISIONS if name == "all" else (name,))]
    return tuple(find_precision(name, target) for name in dict.fromkeys(each))
