"""A small artifact, pages and packages, written by hand: serving needs no real model."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

from exporter.artifact import MANIFEST_NAME, MANIFEST_SCHEMA

WEIGHTS = random.Random(0).randbytes(3000) + b"zeros" * 4000
NOISE = random.Random(1).randbytes(5000)

FILES = {
    "config.json": b'{"id2label": {"0": "negative"}}',
    "tokenizer.json": json.dumps({"vocab": list(range(2000))}).encode(),
    "reference.json": b'{"schema": 1, "cases": []}',
    "onnx/model.onnx": WEIGHTS,
    "onnx/model_quantized.onnx": NOISE,
    "onnx/model_quantized.onnx_data": b"d" * 2000,
    "baseline/model.onnx": b"b" * 9000,
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write_artifact(folder: Path, files: dict[str, bytes] | None = None) -> Path:
    """Write an artifact as the exporter does, as far as a server looks."""
    files = FILES if files is None else files
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    variants = {
        "fp32": "onnx/model.onnx",
        "int8": "onnx/model_quantized.onnx",
        "baseline": "baseline/model.onnx",
    }
    spec = {"name": "input_ids", "dtype": "int64", "shape": ["batch", "sequence"], "role": "ids"}
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "scheme": "all",
        "layout": {"layout": "rolled"},
        "unique_bytes": 100,
        "unshared_bytes": 900,
        "reference": "reference.json",
        "inputs": {
            "specs": [{**spec, "upper": 2000, "optional": False}],
            "limits": {"sequence": 128},
        },
        "outputs": ["logits"],
        "models": [
            {
                "variant": variant,
                "path": path,
                "stored_bytes": 50,
                "tolerance": None if variant == "baseline" else 0.02,
            }
            for variant, path in variants.items()
            if path in files
        ],
        "files": {
            name: {"bytes": len(content), "sha256": sha256(content)}
            for name, content in files.items()
        },
    }
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest), encoding="utf-8")
    return folder


PAGES = {
    "index.html": b"<!doctype html><title>demo</title>" + b"<p>words</p>" * 200,
    "style.css": b"p { color: red }" * 50,
    "bench/index.html": b"<!doctype html><title>bench</title>",
    "measure/core.js": b"export const one = 1;" * 50,
    "measure/worker.mjs": b"export {};",
    "demo.webmanifest": b'{"name": "demo"}',
    "notes.py": b"secret = 1",
    "package.json": b'{"private": true}',
    ".hidden/key.txt": b"secret",
    "node_modules/a/a.js": b"secret",
}

RUNTIME = {
    "ort.wasm.min.mjs": b"export const ort = 1;" * 100,
    "ort-wasm-simd-threaded.mjs": b"export default 1;" * 100,
    "ort-wasm-simd-threaded.wasm": b"\0asm" + b"code" * 5000,
}


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def measurement(**changes: Any) -> dict[str, Any]:
    """A record as a page sends it, as plain JSON values."""
    label = changes.pop("label", "Phone of Ada")
    record: dict[str, Any] = {
        "kind": "measurement",
        "tool": "0.1.0",
        "created": "2026-01-31T12:00:00Z",
        "run": "r1",
        "case": {
            "artifact": "model-onnx",
            "variant": "int8",
            "runtime": "browser",
            "threads": 2,
            "batch": 1,
            "sequence": 64,
            "browser": "chromium",
        },
        "model": {
            "path": "onnx/model_quantized.onnx",
            "sha256": sha256(NOISE),
            "file_bytes": len(NOISE),
        },
        "device": {
            "label": label,
            "cpu": "unknown",
            "system": "Android 16",
            "engine": "Chromium 156",
            "runtime": "onnxruntime-web",
            "runtime_version": "1.30.0",
        },
        "samples_ms": [10.0, 12.0, 11.0],
    }
    return {**record, **changes}
