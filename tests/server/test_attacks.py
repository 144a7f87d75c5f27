from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.errors import ArtifactError
from exporter.server.files import Pages, read_artifacts
from exporter.server.guards import Policy, host_name
from tests.server.harness import RunningServer, running
from tests.server.samples import (
    FILES,
    NOISE,
    PAGES,
    WEIGHTS,
    measurement,
    sha256,
    write_artifact,
    write_files,
)

ROOTS = (
    "/",
    "/bench/",
    "/a/model-onnx/",
    f"/f/{sha256(WEIGHTS)}/",
    "/p/{digest}/",
)
ESCAPES = (
    "../secret.txt",
    "../../../../../../../../etc/passwd",
    "..%2fsecret.txt",
    "%2e%2e/secret.txt",
    "%2e%2e%2fsecret.txt",
    "%252e%252e%252fsecret.txt",
    "..%252fsecret.txt",
    "..\\secret.txt",
    "..%5csecret.txt",
    "%c0%ae%c0%ae/secret.txt",
    "....//secret.txt",
    "./../secret.txt",
    "onnx/../../secret.txt",
    "onnx/./model.onnx",
    "onnx//model.onnx",
    "/etc/passwd",
    "//etc/passwd",
    "%2fetc%2fpasswd",
    "model.onnx%00.html",
    "index.html%00",
    "secret.txt",
    "onnx",
    "onnx/",
    ".hidden/key.txt",
    "node_modules/a/a.js",
    "notes.py",
    "package.json",
    "MODEL.ONNX",
    "x" * 4000,
    "%",
    "%zz",
    "%ff%fe",
    "file:///etc/passwd",
)


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "results" not in path.parts
    }


@pytest.mark.parametrize("root", ROOTS)
def test_nothing_that_is_not_listed_is_found_or_changed(server: RunningServer, root: str) -> None:
    (server.folder / "secret.txt").write_text("secret")
    (server.folder / "model-onnx/secret.txt").write_text("secret")
    before = _snapshot(server.folder)
    digest = server.catalogue()["packages"]["onnxruntime-web"]["base"].split("/")[2]
    base = root.format(digest=digest)
    for escape in ESCAPES:
        request = f"GET {base}{escape} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = server.raw(request.encode("latin-1"))
        head, _, body = answer.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        assert status in (404, 400), (base, escape, answer)
        assert b"secret" not in answer and b"root:" not in answer, escape
        assert b"<" not in body, escape
        assert b"content-type: text/plain" in head.lower(), escape
        written = server.ask(f"{base}{escape}".split("%00")[0], method="PUT", body=b"x")
        assert written.status in (404, 400, 405), escape
    assert _snapshot(server.folder) == before
    assert server.service.store.lines() == []
    assert server.ask("/").status == 200
    assert server.faults == []


def test_a_folder_is_never_listed(server: RunningServer) -> None:
    for path in ("/measure/", "/measure", "/a/", "/a/model-onnx/", "/a/model-onnx/onnx/", "/f/"):
        answer = server.ask(path)
        assert answer.status == 404, path
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert answer.text == "there is no such file on this server\n"


def test_a_file_is_found_under_its_own_hash_and_name_only(server: RunningServer) -> None:
    for path in (
        f"/f/{sha256(WEIGHTS)}/model_quantized.onnx",
        f"/f/{sha256(NOISE)}/model.onnx",
        f"/f/{'0' * 64}/model.onnx",
        f"/f/{sha256(WEIGHTS).upper()}/model.onnx",
        f"/f/{sha256(WEIGHTS)}/onnx/model.onnx",
        f"/p/{'0' * 32}/ort.wasm.min.mjs",
        "/a/other/config.json",
    ):
        assert server.ask(path).status == 404, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "MOVE"])
def test_other_methods_are_refused(server: RunningServer, method: str) -> None:
    answer = server.ask("/a/model-onnx/config.json", method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET,HEAD"
    assert (server.folder / "model-onnx/config.json").read_bytes() == FILES["config.json"]


def test_no_request_makes_it_redirect_elsewhere(server: RunningServer) -> None:
    for target in (b"//evil.example/bench", b"/\\evil.example", b"//evil.example/..;/bench/"):
        answer = server.raw(
            b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400")), answer
        assert b"Location" not in answer


def test_garbage_is_answered_and_the_server_goes_on(server: RunningServer) -> None:
    for garbage in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # TLS on a plain port
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /api/results HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    ):
        answer = server.raw(garbage)
        assert answer.startswith(b"HTTP/1."), garbage
        assert b" 400 " in answer.partition(b"\r\n")[0], answer
        assert b"Traceback" not in answer and b"<" not in answer
    assert server.ask("/").status == 200


def test_every_answer_carries_the_headers_that_protect(server: RunningServer) -> None:
    paths = ["/", "/measure/core.js", "/api/artifacts.json", "/api/session", "/missing"]
    for path in paths:
        headers = server.ask(path).headers
        assert headers["Cross-Origin-Embedder-Policy"] == "require-corp", path
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"] == "albert-export"
        rules = _rules(headers)
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == "'self' blob: 'wasm-unsafe-eval'"
        assert rules["connect-src"] == "'self' blob:"
        assert "unsafe-inline" not in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


def test_a_page_says_more_than_what_it_is_made_of(server: RunningServer) -> None:
    first = server.ask("/")
    again = server.ask("/", {"If-None-Match": first.headers["ETag"]})
    assert again.status == 304
    for page in (first, again):
        rules = _rules(page.headers)
        assert rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
        assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert page.headers["Referrer-Policy"] == "no-referrer"
    script = server.ask("/measure/core.js")
    assert not {"Permissions-Policy", "Cross-Origin-Opener-Policy"} & script.headers.keys()


def _rules(headers: dict[str, str]) -> dict[str, str]:
    policy = headers["Content-Security-Policy"]
    return dict(rule.split(" ", 1) for rule in policy.split("; "))  # type: ignore[misc]


def test_a_page_may_keep_the_screen_on_and_not_look_or_listen(server: RunningServer) -> None:
    features = server.ask("/").headers["Permissions-Policy"].split(", ")
    assert "screen-wake-lock=(self)" in features
    assert "cross-origin-isolated=(self)" in features
    assert {"camera=()", "microphone=()", "geolocation=()"} <= set(features)
    # Chromium warns on the console about a feature that it does not know.
    assert not [feature for feature in features if feature.startswith("bluetooth")]


def test_without_isolation_only_the_pages_change(tmp_path: Path) -> None:
    with running(tmp_path, policy=Policy(isolated=False)) as server:
        page = server.ask("/")
        assert "Cross-Origin-Opener-Policy" not in page.headers
        assert "Cross-Origin-Embedder-Policy" not in page.headers
        assert page.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        again = server.ask("/", {"If-None-Match": page.headers["ETag"]})
        assert again.status == 304
        assert "Cross-Origin-Embedder-Policy" not in again.headers
        # A script that is cached now must serve an isolated page later.
        assert server.ask("/measure/core.js").headers["Cross-Origin-Embedder-Policy"]
        assert server.catalogue()["isolated"] is False
    assert Policy(isolated=False).salt != Policy().salt


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:1", True),
        ("127.9.9.9", True),
        ("[::1]:8000", True),
        ("localhost.", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("192.168.1.5", False),
        ("localhost:80:80", False),
        ("evil@localhost", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_only_its_own_names_are_answered(server: RunningServer, host: str, served: bool) -> None:
    answer = server.ask("/", {"Host": host})
    assert answer.status == (200 if served else 421)
    if not served:
        assert b"demo" not in answer.body
        assert server.ask("/api/session", {"Host": host}).status == 421


def test_no_host_and_two_hosts_are_refused(server: RunningServer) -> None:
    for lines in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        answer = server.raw(b"GET / HTTP/1.0\r\n" + lines + b"\r\n")
        assert answer.split()[1] in (b"421", b"400"), answer
        assert b"demo" not in answer


def test_on_the_network_addresses_are_answered_and_foreign_names_are_not(tmp_path: Path) -> None:
    policy = Policy(hosts={"localhost", "my-laptop", "my-laptop.local"}, any_address=True)
    with running(tmp_path, policy=policy) as server:
        for host, status in (
            ("192.168.1.5:8000", 200),
            ("[fe80::1]:8000", 200),
            ("my-laptop.local:8000", 200),
            ("evil.example", 421),
        ):
            assert server.ask("/", {"Host": host}).status == status
        # The token is for the machine that serves: others scan it.
        assert server.ask("/api/session", {"Host": "192.168.1.5:8000"}).status == 403
        assert server.ask("/api/session", {"Host": "localhost"}).status == 200


def test_the_token_is_not_given_to_other_sites(server: RunningServer) -> None:
    own = f"http://127.0.0.1:{server.port}"
    for headers, status in (
        ({}, 200),
        ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
    ):
        answer = server.ask("/api/session", headers)
        assert answer.status == status, headers
        assert (b"a-token" in answer.body) == (status == 200)
        assert answer.headers["Cache-Control"] == "no-store"


def test_other_origins_cannot_send_results(server: RunningServer) -> None:
    own = f"http://127.0.0.1:{server.port}"
    before = server.service.store.lines()
    for origin in ("https://evil.example", "null", own.replace("http", "https"), f"{own}.evil"):
        answer = server.post(measurement(label=origin), {"Origin": origin})
        assert answer.status == 403, origin
    assert server.service.store.lines() == before


def test_a_host_header_is_read_exactly() -> None:
    assert host_name("Example.ORG:80") == "example.org"
    assert host_name("[2001:DB8::1]:80") == "2001:db8::1"
    assert host_name("a:b") is None
    assert host_name("a b") is None


def test_links_that_lead_out_are_refused_and_those_inside_work(tmp_path: Path) -> None:
    folder = write_artifact(tmp_path / "model-onnx")
    secret = tmp_path / "secret"
    secret.write_bytes(FILES["config.json"])
    config = folder / "config.json"
    config.unlink()
    config.symlink_to(secret)
    with pytest.raises(ArtifactError, match=r"config\.json leads out of"):
        read_artifacts([folder])
    (folder / "blobs").mkdir()
    secret.rename(folder / "blobs/1")
    config.unlink()
    config.symlink_to("blobs/1")
    (served,) = read_artifacts([folder])
    assert served.files["config.json"].path == (folder / "blobs/1").resolve()
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert read_artifacts([link])[0].name == "model-onnx"


def test_pages_that_lead_out_are_not_served(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "pages", PAGES)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "out.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "in.css").symlink_to("style.css")
    pages = Pages(folder)
    assert pages.find("out.txt") is None
    assert pages.find("in.css") is not None
    assert sorted(file.name for file in pages.files) == [
        "bench/index.html",
        "demo.webmanifest",
        "in.css",
        "index.html",
        "measure/core.js",
        "measure/worker.mjs",
        "style.css",
    ]
    (folder / "style.css").unlink()
    (folder / "style.css").symlink_to(tmp_path / "secret.txt")
    assert pages.find("style.css") is None


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../secret"])
def test_a_manifest_that_names_files_outside_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_artifact(tmp_path / "model-onnx")
    (tmp_path / "secret").write_bytes(b"x")
    path = folder / "albert-export.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"bytes": 1, "sha256": sha256(b"x")}
    path.write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError):
        read_artifacts([folder])
