"""The installed package, away from its sources."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

from tests.server.samples import write_artifact

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_serves_its_own_pages_and_the_runtime(tmp_path: Path) -> None:
    sources, installed = tmp_path / "sources", tmp_path / "installed"
    unwanted = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in ("exporter", "web_demo"):
        shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(sources)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    shutil.rmtree(sources)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(installed)  # a wheel of Python alone is installed by unpacking it
    pages = {str(p.relative_to(ROOT)) for p in (ROOT / "web_demo").rglob("*.js")}
    pages = {f"exporter/{page}" for page in pages if "node_modules" not in page}
    assert pages <= names
    assert not [name for name in names if "node_modules" in name or name.endswith("tsconfig.json")]

    artifact = write_artifact(tmp_path / "model-onnx")
    process = subprocess.Popen(
        [sys.executable, "-m", "exporter", "serve", str(artifact), "--port", "0"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        said = next(line for line in process.stdout if "serving on" in line)
        (url,) = re.findall(r"serving on (\S+)/", said)

        def get(path: str) -> bytes:
            with urllib.request.urlopen(f"{url}{path}", timeout=10) as answer:
                content: bytes = answer.read()
            return content

        assert get("/demo/") == (ROOT / "web_demo/demo/index.html").read_bytes()
        assert b"class DemoPage" in get("/demo/page.js")
        files = json.loads(get("/api/artifacts.json"))["packages"]["onnxruntime-web"]["files"]
        wasm = get(files["ort-wasm-simd-threaded.wasm"]["url"])
        assert wasm.startswith(b"\0asm") and len(wasm) > 10**7
    finally:
        process.terminate()
        process.wait(10)
