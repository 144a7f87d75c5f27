from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import exporter
from exporter.cli.serve_command import serve
from exporter.server import read_results
from tests.server.samples import PAGES, RUNTIME, measurement, write_artifact, write_files

ROOT = Path(__file__).resolve().parents[2]

# The packages come from a folder, so that no registry is needed.
PROGRAM = """
import sys
from pathlib import Path
from exporter.cli.serve_command import serve
import exporter.server.binding as binding
import exporter.server.serving as serving
folder = Path({folder!r})
serving.runtime_files = serving.tokenizer_files = lambda cache: folder / "runtime"
serving.web_folder = lambda: folder / "pages"
binding.local_addresses = lambda: ["127.0.0.1"]
serve({arguments!r}, standalone_mode=False)
heavy = ("torch", "transformers", "onnx", "onnx_ir", "onnxruntime")
print("loaded:", *(name for name in heavy if name in sys.modules))
"""


class Running:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for(self, words: str) -> str:
        def found() -> str | None:
            return next((line for line in self.lines if words in line), None)

        with self._changed:
            line = self._changed.wait_for(found, timeout=30)
        assert line is not None, self.lines
        return line

    def stop(self, name: signal.Signals = signal.SIGINT) -> tuple[int, list[str], str]:
        self.process.send_signal(name)
        code = self.process.wait(15)
        self._reader.join(5)
        assert self.process.stderr is not None
        return code, self.lines, self.process.stderr.read()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write_artifact(tmp_path / "model-onnx")
    write_files(tmp_path / "pages", PAGES)
    write_files(tmp_path / "runtime", {**RUNTIME, "tokenizers.min.mjs": b"export {};"})
    return tmp_path


@contextlib.contextmanager
def started(site: Path, *arguments: str) -> Iterator[Running]:
    given = [str(site / "model-onnx"), "--port", str(_free_pair()), *arguments]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(folder=str(site), arguments=given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={"XDG_CACHE_HOME": str(site / "cache"), "PATH": "", "COLUMNS": "400"},
    )
    running = Running(process)
    try:
        running.wait_for("Ctrl-C ends it")
        yield running
    finally:
        process.kill()
        process.wait(10)
        running._reader.join(5)


def ask(
    url: str, method: str = "GET", body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    match = re.fullmatch(r"(https?)://([\w.]+):(\d+)(/.*)", url)
    assert match is not None, url
    host, port = match[2], int(match[3])
    if match[1] == "https":
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=10, context=trusting
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=10)
    with contextlib.closing(connection):
        content = None if body is None else json.dumps(body).encode()
        connection.request(method, match[4], body=content, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_a_browser_gets_the_page_and_ctrl_c_ends_it(site: Path) -> None:
    with started(site, "--log", str(site / "log.jsonl")) as running:
        url = running.wait_for("serving on").removeprefix("serving on ")
        assert url.startswith("http://127.0.0.1:")
        assert ask(url)[2] == PAGES["index.html"]
        assert running.lines[1:3] == [
            "models: model-onnx (fp32, int8, baseline)",
            "pages: /demo/ to try them, /bench/ to measure them",
        ]
        _, headers, body = ask(url + "api/artifacts.json")
        assert headers["Content-Type"] == "application/json; charset=utf-8"
        catalogue = json.loads(body)
        assert catalogue["artifacts"][0]["name"] == "model-onnx"
        assert list(catalogue["packages"]) == ["onnxruntime-web", "@huggingface/tokenizers"]
        assert ask(url, Host="192.168.1.5:8000")[0] == 421
        # What clients do wrong fills no terminal.
        port = int(url.rsplit(":", 1)[1].rstrip("/"))
        with socket.create_connection(("127.0.0.1", port), timeout=10) as garbage:
            garbage.sendall(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
            assert garbage.recv(1000).startswith(b"HTTP/1.0 400")
        code, lines, errors = running.stop()
        assert code == 0, errors
        assert lines[-2:] == ["stopped", "loaded:"]
        assert "Measurements are kept until the end only; --results FOLDER keeps them." in lines
        assert not [line for line in errors.splitlines() if not line.endswith("…")]
    log = [json.loads(line) for line in (site / "log.jsonl").read_text().splitlines()]
    assert [(entry["path"], entry["status"]) for entry in log[:2]] == [
        ("/", 200),
        ("/api/artifacts.json", 200),
    ]
    assert log[0]["sent_bytes"] > len(PAGES["index.html"])


def test_a_phone_scans_measures_and_reports(site: Path) -> None:
    with started(site, "--lan", "--results", str(site / "results")) as running:
        scan = running.wait_for("scan this").removeprefix("scan this, or open ")
        url, _, token = scan.partition("#token=")
        assert url.startswith("https://127.0.0.1:")
        assert len(token) >= 20
        assert any(set(line) <= set(" ▀▄█") and "█" in line for line in running.lines)
        assert ask(url)[2] == PAGES["index.html"]
        plain = running.wait_for("plain http at").split()[3]
        assert plain == f"http://127.0.0.1:{int(url.split(':')[2].rstrip('/')) + 1}/"
        assert b"https" in ask(plain)[2]
        hostile = "Ada\u001b[2J\u202e\u0007[red]x[/red]\n\rphone"
        sent = measurement(label=hostile)
        given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        status, _, body = ask(url + "api/results", "POST", sent, **given, Origin=url.rstrip("/"))
        assert (status, json.loads(body)["stored"]) == (200, 1)
        line = running.wait_for("phone")
        assert line == (
            "Ada [2J  [red]x[/red]  phone · Chromium 156 · model-onnx int8 · 1×64 · 2 threads · "
            "11.0 ms (p90 11.8) · check not run"
        )
        failed = {"status": "failed", "error": "out of memory", "samples_ms": []}
        sent = measurement(label="Tablet", flags=["likely out of memory"], **failed)
        assert ask(url + "api/results", "POST", sent, **given)[0] == 200
        line = running.wait_for("Tablet")
        assert "failed: out of memory" in line and line.endswith("likely out of memory")
        code, lines, errors = running.stop(signal.SIGTERM)
        assert (code, lines[-2]) == (0, "stopped"), errors
    labels = [record.device.label for record in read_results(site / "results")]  # type: ignore[union-attr]
    assert labels == [hostile, "Tablet"]


def test_plain_http_on_the_network_says_what_that_means(site: Path) -> None:
    with started(site, "--lan", "--http", "--no-isolation") as running:
        url = running.wait_for("serving on").removeprefix("serving on ")
        assert url.startswith("http://127.0.0.1:")
        running.wait_for("Without https the token can be read by others")
        assert not [line for line in running.lines if "plain http at" in line]
        assert ask(url, Host="192.168.1.5:8000")[0] == 200
        assert ask(url, Host="evil.example")[0] == 421
        _, headers, _ = ask(url)
        assert "Cross-Origin-Opener-Policy" not in headers
        assert running.stop()[0] == 0


def test_https_is_possible_on_this_machine_too(site: Path) -> None:
    with started(site, "--https") as running:
        url = running.wait_for("serving on").removeprefix("serving on ")
        assert url.startswith("https://127.0.0.1:")
        assert json.loads(ask(url + "api/session")[2])["token"]
        assert not [line for line in running.lines if "scan" in line]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(serve, [str(argument) for argument in arguments])


def test_what_cannot_be_served_is_one_clear_line(site: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, words in (
            ((site / "model-onnx", "--port", port), f"port {port} is taken; try --port "),
            ((site / "model-onnx", "--host", "0.0.0.0"), "add --lan if that is wanted"),
            ((site / "pages", "--port", "0"), "is no artifact: it holds no albert-export.json"),
        ):
            result = run(*arguments)
            assert result.exit_code == 1
            assert words in result.stderr
            assert result.stderr.count("Error: ") == 1 and "Traceback" not in result.stderr
    assert run().exit_code == 2


def test_a_missing_library_names_the_extra(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The package is imported anew; afterwards the first one is in its place again.
    monkeypatch.setattr(exporter, "server", importlib.import_module("exporter.server"))
    for name in [name for name in sys.modules if name.startswith("exporter.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    result = run(site / "model-onnx")
    assert result.exit_code == 1
    assert "aiohttp is missing: pip install 'albert-export[web]'" in result.stderr


def test_help_needs_none_of_it() -> None:
    program = (
        "import sys\nfrom exporter.cli.serve_command import serve\n"
        "serve(['--help'], standalone_mode=False)\n"
        "heavy = ('torch', 'aiohttp', 'numpy', 'trustme', 'segno')\n"
        "print('loaded:', *(name for name in heavy if name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "loaded:"
    assert "--lan" in done.stdout


def _free_pair() -> int:
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as first:
            port = int(first.getsockname()[1])
            with contextlib.suppress(OSError, OverflowError):
                socket.create_server(("127.0.0.1", port + 1)).close()
                return port
    raise AssertionError("no two free ports in a row")
