from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from exporter.artifact import Artifact
from exporter.cli.main import main
from exporter.records import Measurement

SHORT = ("--min-runs", "2", "--min-seconds", "0", "--seq", "4")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments)])


def test_the_table_has_a_row_per_model_with_its_ratio_to_the_baseline(artifact: Artifact) -> None:
    result = run(artifact.folder, *SHORT)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        "model",
        "file",
        "load",
        "memory",
        "first",
        "median",
        "p90",
        "time",
        "ratio",
    ]
    rows = {line.split()[0]: line.split() for line in lines[1:3]}
    assert set(rows) == {"fp32", "baseline"}
    assert rows["baseline"][-1] == "1.00×"
    size = artifact.manifest["file_bytes"] / 1e6
    assert rows["fp32"][1:3] == [f"{size:.2f}", "MB"]
    assert "1 thread(s), batch 1, sequence 4, 2 interleaved runs each" in result.stdout
    assert "…" not in result.stdout  # nothing was cut off


def test_json_is_one_measurement_a_line(artifact: Artifact) -> None:
    result = run(artifact.folder, "--json", "--threads", "2", "--batch", "3", *SHORT)
    assert result.exit_code == 0, result.output
    records = [Measurement.from_dict(json.loads(line)) for line in result.stdout.splitlines()]
    assert [record.variant for record in records] == ["fp32", "baseline"]
    for record in records:
        assert (record.threads, record.batch, record.sequence) == (2, 3, 4)
        assert len(record.samples_ms) == 2


def test_what_cannot_be_measured_is_one_line(artifact: Artifact, tmp_path: Path) -> None:
    for arguments, message in (
        ((tmp_path,), "is no artifact: it holds no albert-export.json"),
        ((artifact.folder, "--seq", "25"), "sequence 25 is beyond the model's maximum 24"),
    ):
        result = run(*arguments)
        assert result.exit_code == 1
        assert message in result.stderr
        assert "Traceback" not in result.stderr
        assert result.stdout == ""


def test_measuring_needs_no_torch(artifact: Artifact) -> None:
    program = (
        "import sys\n"
        "from exporter.cli.main import main\n"
        f"main({['bench', str(artifact.folder), *SHORT]!r}, standalone_mode=False)\n"
        "print('loaded:', *(m for m in ('torch', 'transformers') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded:"
    assert "baseline" in done.stdout
