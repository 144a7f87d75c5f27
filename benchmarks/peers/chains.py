"""What is compared: chains of tools, and the files that each makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.environments import Environment
from benchmarks.repair.tools import ONNXRUNTIME, ONNXSLIM

__all__ = ["CHAINS", "IN_BROWSER", "OURS", "PRECISIONS", "Chain", "Step"]

TOOLS = Path(__file__).with_name("tools")
CONSTRAINTS = Path(__file__).with_name("constraints")
PRECISIONS = ("fp32", "fp16", "int8", "int4")
OURS = "albert-export"
IN_BROWSER = "LiteRT"
"""The peer whose files also run in a browser, in a runtime of their own."""

RuntimeName = Literal["onnxruntime", "openvino", "openvino-float32", "litert"]


def _environment(name: str, *requirements: str, borrows_torch: bool = False) -> Environment:
    pins = CONSTRAINTS / f"{name}.txt"
    return Environment(name, requirements, constraints=pins, borrows_torch=borrows_torch)


OPTIMUM = _environment(
    "optimum",
    *("optimum-onnx==0.1.0", "onnx==1.23.2", "onnxruntime==1.32.0", "onnxslim==0.1.98"),
    "accelerate==1.14.0",  # without it Optimum does not look for shared weights
    borrows_torch=True,
)
OLIVE = _environment(
    "olive",
    *("olive-ai==0.13.0", "onnx==1.23.2", "onnxruntime==1.32.0"),
    "requests==2.34.2",  # imported, and not among its requirements
    borrows_torch=True,
)
OPENVINO = _environment("openvino", "openvino==2026.4.1", "nncf==3.4.0")
LITERT = _environment("litert", "litert-torch==0.10.0", borrows_torch=True)


@dataclass(frozen=True)
class Step:
    """One run of a tool.

    Args:
        environment: where it is installed; ``None``: this project's own Python.
        arguments: for Python. ``{source}`` is what it reads, in ``{source_folder}``;
            ``{folder}`` where it writes.
        source: a file of the work folder, or ``chain precision`` of a file made before.
        file: what it writes, or has to, in its folder.
        folder: what to call its folder, where several files come from one run.
    """

    environment: Environment | None
    arguments: tuple[str, ...]
    source: str
    file: str = "model.onnx"
    folder: str | None = None


@dataclass(frozen=True)
class Chain:
    """One row of the table.

    Args:
        name: of the row.
        files: for each precision, the run that makes its file, or the file of the work folder.
        runtime: what runs them.
        measured_in: where they were made by another chain: its name.
        note: what a reader should know.
    """

    name: str
    files: Mapping[str, Step | str] = field(default_factory=dict)
    runtime: RuntimeName = "onnxruntime"
    environment: Environment | None = None
    note: str = ""


def _ours(name: str, files: Mapping[str, str], *options: str) -> Chain:
    """One export for all precisions; ``files``: where each is."""
    arguments = ("-m", "exporter", "export", "{source}", "-o", "{folder}", *options)
    steps = {
        precision: Step(None, arguments, "base", f"onnx/{file}", folder=name)
        for precision, file in files.items()
    }
    return Chain(name, steps)


def _int8(source: str) -> Step:
    arguments = (str(TOOLS / "quantize_dynamic.py"), "{source}", "{folder}/model.onnx")
    return Step(ONNXRUNTIME, arguments, source)


def _int4(source: str) -> Step:
    arguments = (str(TOOLS / "quantize_nbits.py"), "{source}", "{folder}/model.onnx")
    return Step(ONNXRUNTIME, arguments, source)


def _quantized(name: str, fp32: Step | str, note: str = "") -> Chain:
    """The chain, and onnxruntime's quantizers on what it makes."""
    source = fp32 if isinstance(fp32, str) else f"{name} fp32"
    files = {"fp32": fp32, "int8": _int8(source), "int4": _int4(source)}
    return Chain(name, files, note=note)


def _slim(source: str) -> Step:
    return Step(ONNXSLIM, ("-m", "onnxslim", "{source}", "{folder}/model.onnx"), source)


def _fused(source: str) -> Step:
    arguments = (
        *("-m", "onnxruntime.transformers.optimizer"),
        *("--input", "{source}", "--output", "{folder}/model.onnx"),
        *("--model_type", "bert", "--num_heads", "12", "--hidden_size", "768"),
    )
    return Step(ONNXRUNTIME, arguments, source)


def _optimum(*options: str) -> Step:
    arguments = (
        *("-m", "optimum.exporters.onnx", "--model", "{source}"),
        *("--task", "feature-extraction", *options, "{folder}"),
    )
    return Step(OPTIMUM, arguments, "base")


def _optimum_int8(source: str) -> Step:
    arguments = (
        *("-m", "optimum.commands.optimum_cli", "onnxruntime", "quantize"),
        *("--onnx_model", "{source_folder}", "--avx512_vnni", "-o", "{folder}"),
    )
    return Step(OPTIMUM, arguments, source, "model_quantized.onnx")


def _olive(precision: str) -> Step:
    arguments = (str(TOOLS / "olive_files.py"), "{source}", "{folder}", precision)
    return Step(OLIVE, arguments, "base-torchscript.onnx")


def _openvino(precision: str) -> Step:
    arguments = (str(TOOLS / "openvino_files.py"), "{source}", "{folder}", precision)
    return Step(OPENVINO, arguments, "base-torchscript.onnx", "model.xml")


def _litert(precision: str, source: str) -> Step:
    arguments = (str(TOOLS / "litert_files.py"), "{source}", "{folder}/model.tflite", precision)
    return Step(LITERT, arguments, source, "model.tflite")


TORCHSCRIPT, DYNAMO = "TorchScript exporter", "dynamo exporter"
MAIN_FILES = {
    "fp32": "model.onnx",
    "fp16": "model_fp16.onnx",
    "int8": "model_quantized.onnx",
    "int4": "model_q4.onnx",
}
ALL = ("--precision", "all")

CHAINS = (
    _ours(OURS, MAIN_FILES, *ALL),
    _ours(f"{OURS}, unrolled", MAIN_FILES, *ALL, "--layout", "unrolled"),
    _ours(f"{OURS}, int4-nbits", {"int4": "model_q4.onnx"}, "--precision", "int4-nbits"),
    _quantized(TORCHSCRIPT, "base-torchscript.onnx"),
    _quantized(DYNAMO, "base-dynamo.onnx"),
    _quantized(f"{TORCHSCRIPT} + onnxslim", _slim("base-torchscript.onnx")),
    _quantized(f"{DYNAMO} + onnxslim", _slim("base-dynamo.onnx")),
    _quantized(f"{TORCHSCRIPT} + transformers optimizer", _fused("base-torchscript.onnx")),
    _quantized(f"{DYNAMO} + transformers optimizer", _fused("base-dynamo.onnx")),
    Chain("Optimum", {"fp32": _optimum(), "int8": _optimum_int8("Optimum fp32")}),
    _quantized("Optimum --optimize O2", _optimum("--optimize", "O2")),
    _quantized("Optimum --slim", _optimum("--slim")),
    Chain("Olive", {"int8": _olive("int8"), "int4": _olive("int4")}),
    Chain(
        "OpenVINO + NNCF",
        {precision: _openvino(precision) for precision in PRECISIONS},
        "openvino",
        OPENVINO,
    ),
    Chain(
        "OpenVINO + NNCF, float32 arithmetic",
        {precision: f"OpenVINO + NNCF {precision}" for precision in PRECISIONS},
        "openvino-float32",
        OPENVINO,
    ),
    Chain(
        "OpenVINO + NNCF, calibrated",
        {"int8": _openvino("int8-calibrated")},
        "openvino",
        OPENVINO,
        "activations quantized too, ranges from 16 random rows",
    ),
    Chain(
        IN_BROWSER,
        {
            "fp32": _litert("fp32", "base"),
            "int8": _litert("int8", f"{IN_BROWSER} fp32"),
            "int4": _litert("int4", f"{IN_BROWSER} fp32"),
        },
        "litert",
        LITERT,
        "fixed at 1×128",
    ),
)
