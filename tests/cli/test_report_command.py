from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from exporter.artifact import MANIFEST_SCHEMA
from exporter.cli.report_command import report
from exporter.records import to_json
from tests.report.making import PHONE, read_html, trio
from tests.samples import ids_inputs


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    path.write_text("".join(f"{to_json(record)}\n" for record in trio()), encoding="utf-8")
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(report, [*map(str, arguments)])


def test_it_writes_one_page_and_prints_its_path(results: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "report.html"
    result = run(results, "-o", output, "--title", "Release 1 <final>")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{output}\n"
    assert result.stderr == ""
    page = read_html(output.read_text(encoding="utf-8"))
    assert page.all("h1")[0].text == "Release 1 <final>"
    assert [path.name for path in output.parent.iterdir()] == ["report.html"]


def test_formats_lie_beside_the_output(results: Path, tmp_path: Path) -> None:
    result = run(results, "-o", tmp_path / "r.html", "--format", "html, md,json")
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(tmp_path / name) for name in ("r.html", "r.md", "r.json")]
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["records"] == 3
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("## demo: measurements")


@pytest.mark.parametrize(
    ("output", "formats", "written"),
    [
        ("r.md", [], {"r.md": "## "}),
        ("r.JSON", [], {"r.JSON": "{"}),
        ("r", [], {"r": "<!doctype"}),
        ("r.txt", ["--format", "md"], {"r.txt": "## "}),
        ("r.html", ["--format", "md"], {"r.md": "## "}),
        ("v1.2", ["--format", "md,json"], {"v1.2.md": "## ", "v1.2.json": "{"}),
    ],
)
def test_the_name_decides_the_format_unless_one_is_given(
    results: Path, tmp_path: Path, output: str, formats: list[str], written: dict[str, str]
) -> None:
    folder = tmp_path / "out"
    result = run(results, "-o", folder / output, *formats)
    assert result.exit_code == 0, result.output
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert found.keys() == written.keys()
    assert all(text.lstrip().startswith(written[name]) for name, text in found.items())


def test_a_dash_prints_one_format(results: Path) -> None:
    result = run(results, "-o", "-", "--format", "md")
    assert result.exit_code == 0
    assert result.stdout.startswith("## demo: measurements")
    result = run(results, "-o", "-", "--format", "md,json")
    assert result.exit_code == 1
    assert "standard output takes one format" in result.stderr


def test_results_of_several_devices_are_merged(results: Path, tmp_path: Path) -> None:
    phones = tmp_path / "phones"
    phones.mkdir()
    lines = [to_json(record) for record in trio(device=PHONE, run="b")]
    (phones / "one.jsonl").write_text("\n".join(lines), encoding="utf-8")
    result = run(results, phones, results, "-o", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert [device["label"] for device in found["devices"]] == ["Laptop", "Phone"]
    assert found["records"] == 6
    assert "3 of 9 records were there already" in result.stderr


def test_skipped_lines_are_named_on_the_terminal_and_in_the_report(
    results: Path, tmp_path: Path
) -> None:
    with results.open("a", encoding="utf-8") as stream:
        stream.write('{"kind": "measurement", "schema": 7}\n')
    result = run(results, "-o", tmp_path / "r.html")
    assert result.exit_code == 0
    place = f"{results}, line 4"
    assert f"Notice: {place}: skipped: record has schema 7; this version reads 2" in result.stderr
    page = read_html((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert place in page.all("section", id="warnings")[0].text


def test_without_a_record_nothing_is_written(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    output = tmp_path / "r.html"
    output.write_text("yesterday's", encoding="utf-8")
    result = run(empty, "-o", output)
    assert result.exit_code == 1
    assert "empty.jsonl holds no valid record" in result.stderr
    assert output.read_text(encoding="utf-8") == "yesterday's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.jsonl", "r.html"]


def test_results_are_never_overwritten(results: Path) -> None:
    before = results.read_bytes()
    result = run(results, "-o", results, "--format", "json")
    assert result.exit_code == 1
    assert "holds the results" in result.stderr
    assert results.read_bytes() == before


def test_nothing_that_a_folder_of_results_holds_is_overwritten(results: Path) -> None:
    before = results.read_bytes()
    (results.parent / "results.sqlite").write_bytes(b"what phones sent")
    for name in ("results.jsonl", "results.sqlite"):
        (results.parent / "sub").mkdir(exist_ok=True)
        place = results.parent / "sub" / ".." / name
        result = run(results.parent, "-o", place, "--format", "json")
        assert result.exit_code == 1
        assert "holds measurements or belongs to a model" in result.stderr
    assert results.read_bytes() == before
    assert (results.parent / "results.sqlite").read_bytes() == b"what phones sent"


def test_a_link_is_followed_and_what_is_no_file_is_refused(results: Path, tmp_path: Path) -> None:
    (tmp_path / "target.html").write_text("old", encoding="utf-8")
    (tmp_path / "link.html").symlink_to("target.html")
    assert run(results, "-o", tmp_path / "link.html").exit_code == 0
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "target.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    os.mkfifo(tmp_path / "pipe")
    result = run(results, "-o", tmp_path / "pipe", "--format", "md")
    assert result.exit_code == 1
    assert "is no regular file" in result.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_a_write_that_fails_leaves_what_was_there(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "r.html"
    output.write_text("yesterday's", encoding="utf-8")

    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    result = run(results, "-o", output)
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert output.read_text(encoding="utf-8") == "yesterday's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "results.jsonl"]


def test_what_is_asked_wrongly_is_a_usage_error(results: Path, tmp_path: Path) -> None:
    result = run(results, "--format", "pdf")
    assert result.exit_code == 2
    assert "'pdf' is none of html, md, json" in result.stderr
    assert run(tmp_path / "missing.jsonl").exit_code == 2
    assert run().exit_code == 2
    result = run(results, "--artifact", tmp_path)
    assert result.exit_code == 1
    assert "is no artifact" in result.stderr


def test_an_artifact_adds_its_files(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model_q4.onnx").write_bytes(b"12345")
    digest = "5" * 64
    manifest = {
        "schema": MANIFEST_SCHEMA,
        "models": [{"variant": "int4", "path": "onnx/model_q4.onnx", "file_bytes": 5}],
        "files": {"onnx/model_q4.onnx": {"bytes": 5, "sha256": digest}},
        "inputs": ids_inputs(100, 16).to_dict(),
    }
    (folder / "albert-export.json").write_text(json.dumps(manifest), encoding="utf-8")
    result = run(results, "--artifact", folder, "-o", tmp_path / "r.json")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    models = [m for part in found["artifacts"] for m in part["models"]]
    assert [m["file_bytes"] for m in models if m["variant"] == "int4"] == [5]


def test_reporting_imports_neither_torch_nor_onnxruntime(results: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from exporter.cli.report_command import report;"
        f"report([{str(results)!r}, '-o', {str(tmp_path / 'r.html')!r}], standalone_mode=False);"
        "heavy = {'torch', 'onnxruntime', 'transformers', 'aiohttp'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").stat().st_size > 10_000
