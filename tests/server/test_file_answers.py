from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import brotli  # type: ignore[import-untyped]
import pytest

from tests.server.harness import RunningServer, running
from tests.server.samples import FILES, NOISE, PAGES, RUNTIME, WEIGHTS, sha256

MODEL = f"/f/{sha256(WEIGHTS)}/model.onnx"


def wasm(server: RunningServer) -> str:
    base: str = server.catalogue()["packages"]["onnxruntime-web"]["base"]
    return f"{base}ort-wasm-simd-threaded.wasm"


def test_every_kind_of_file_has_its_own_media_type(server: RunningServer) -> None:
    base = server.catalogue()["packages"]["onnxruntime-web"]["base"]
    expected = {
        "/": ("text/html; charset=utf-8", PAGES["index.html"]),
        "/style.css": ("text/css; charset=utf-8", PAGES["style.css"]),
        "/measure/core.js": ("text/javascript; charset=utf-8", PAGES["measure/core.js"]),
        "/measure/worker.mjs": ("text/javascript; charset=utf-8", PAGES["measure/worker.mjs"]),
        "/demo.webmanifest": ("application/manifest+json", PAGES["demo.webmanifest"]),
        f"{base}ort.wasm.min.mjs": ("text/javascript; charset=utf-8", RUNTIME["ort.wasm.min.mjs"]),
        wasm(server): ("application/wasm", RUNTIME["ort-wasm-simd-threaded.wasm"]),
        MODEL: ("application/octet-stream", WEIGHTS),
        "/a/model-onnx/config.json": ("application/json", FILES["config.json"]),
        "/a/model-onnx/onnx/model_quantized.onnx_data": (
            "application/octet-stream",
            FILES["onnx/model_quantized.onnx_data"],
        ),
    }
    for path, (media_type, content) in expected.items():
        answer = server.ask(path)
        assert (answer.status, answer.headers["Content-Type"]) == (200, media_type), path
        assert answer.body == content, path
        assert answer.headers["Content-Length"] == str(len(content))
        assert "Content-Encoding" not in answer.headers


def test_what_is_named_by_its_content_never_changes_and_the_rest_is_asked_for_again(
    server: RunningServer,
) -> None:
    for path in (MODEL, wasm(server)):
        assert server.ask(path).headers["Cache-Control"] == "public, max-age=31536000, immutable"
    for path in ("/", "/measure/core.js", "/a/model-onnx/config.json", "/api/artifacts.json"):
        answer = server.ask(path)
        assert answer.headers["Cache-Control"] == "no-cache"
        again = server.ask(path, {"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        assert again.headers["ETag"] == answer.headers["ETag"]


@pytest.mark.parametrize(
    ("wish", "coding"),
    [
        ("br, gzip", "br"),
        ("gzip, deflate, br, zstd", "br"),
        ("gzip, deflate", "gzip"),
        ("br;q=0, gzip", "gzip"),
        ("br;q=0.0, gzip;q=0", None),
        ("*", "br"),
        ("br;q=0, *", "gzip"),
        ("identity", None),
        ("", None),
        ("brotli, xbr", None),
        ("br;q=nonsense", None),
        ("GZIP", "gzip"),
    ],
)
def test_the_coding_is_one_that_the_client_accepts(
    server: RunningServer, wish: str, coding: str | None
) -> None:
    answer = server.ask(MODEL, {"Accept-Encoding": wish})
    assert answer.headers.get("Content-Encoding") == coding
    unpack = {"br": brotli.decompress, "gzip": gzip.decompress, None: bytes}[coding]
    assert unpack(answer.body) == WEIGHTS
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert (len(answer.body) < len(WEIGHTS) / 2) == (coding is not None)


def test_each_coding_has_its_own_etag(server: RunningServer) -> None:
    etags = {
        wish: server.ask(MODEL, {"Accept-Encoding": wish}).headers["ETag"]
        for wish in ("br", "gzip", "identity")
    }
    assert len(set(etags.values())) == 3
    for wish, etag in etags.items():
        conditions = {"Accept-Encoding": wish, "If-None-Match": f'"other", W/{etag}'}
        assert server.ask(MODEL, conditions).status == 304
        assert server.ask(MODEL, {**conditions, "If-None-Match": '"other"'}).status == 200
    crossed = {"Accept-Encoding": "gzip", "If-None-Match": etags["br"]}
    assert server.ask(MODEL, crossed).status == 200


def test_noise_is_sent_as_it_is(server: RunningServer) -> None:
    path = f"/f/{sha256(NOISE)}/model_quantized.onnx"
    answer = server.ask(path, {"Accept-Encoding": "br, gzip"})
    assert answer.body == NOISE
    assert "Content-Encoding" not in answer.headers


def test_head_tells_what_get_would_send_without_sending_it(server: RunningServer) -> None:
    for wish in ("br", "identity"):
        head = server.ask(MODEL, {"Accept-Encoding": wish}, method="HEAD")
        get = server.ask(MODEL, {"Accept-Encoding": wish})
        assert head.body == b""
        for name in ("Content-Length", "Content-Type", "ETag", "Cache-Control"):
            assert head.headers[name] == get.headers[name]
        assert head.headers.get("Content-Encoding") == get.headers.get("Content-Encoding")
    answer = server.raw(f"HEAD {MODEL} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.0 200 ") and answer.endswith(b"\r\n\r\n")
    assert answer.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=10-19", 10, 19),
        ("bytes=22990-", 22990, 22999),
        ("bytes=22990-99999999", 22990, 22999),
        ("bytes=-5", 22995, 22999),
        ("bytes=-99999999", 0, 22999),
    ],
)
def test_a_range_is_a_part_of_the_uncompressed_file(
    server: RunningServer, asked: str, first: int, last: int
) -> None:
    assert len(WEIGHTS) == 23_000
    answer = server.ask(MODEL, {"Range": asked, "Accept-Encoding": "br, gzip"})
    assert answer.status == 206
    assert answer.body == WEIGHTS[first : last + 1]
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/23000"
    assert int(answer.headers["Content-Length"]) == len(answer.body)
    assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("asked", ["bytes=23000-", "bytes=99999-100000", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused_with_the_size(server: RunningServer, asked: str) -> None:
    answer = server.ask(MODEL, {"Range": asked})
    assert answer.status == 416
    assert answer.headers["Content-Range"] == "bytes */23000"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    "asked",
    ["bytes=5-2", "bytes=0-1,5-6", "bytes=-", "bytes=a-b", "items=0-5", "bytes=", "bytes=1" * 500],
)
def test_a_range_that_is_no_single_one_is_ignored(server: RunningServer, asked: str) -> None:
    answer = server.ask(MODEL, {"Range": asked})
    assert (answer.status, answer.body) == (200, WEIGHTS)


def test_a_range_of_something_else_than_the_client_has_gets_everything(
    server: RunningServer,
) -> None:
    plain = server.ask(MODEL, {"Accept-Encoding": "identity"})
    part = {"Range": "bytes=0-4"}
    assert server.ask(MODEL, {**part, "If-Range": plain.headers["ETag"]}).status == 206
    compressed = server.ask(MODEL, {"Accept-Encoding": "br"})
    for other in ('"other"', f"W/{plain.headers['ETag']}", compressed.headers["ETag"]):
        answer = server.ask(MODEL, {**part, "If-Range": other})
        assert (answer.status, answer.body) == (200, WEIGHTS)
    date = "Mon, 30 Nov 2026 00:00:00 GMT"
    assert server.ask(MODEL, {**part, "If-Range": date}).status == 200


def test_a_precondition_that_fails_is_said(server: RunningServer) -> None:
    etag = server.ask(MODEL).headers["ETag"]
    assert server.ask(MODEL, {"If-Match": etag}).status == 200
    assert server.ask(MODEL, {"If-Match": "*"}).status == 200
    assert server.ask(MODEL, {"If-Match": '"other"'}).status == 412


def test_the_catalogue_leads_to_every_file_with_its_true_sizes(server: RunningServer) -> None:
    (artifact,) = server.catalogue()["artifacts"]
    assert (artifact["name"], artifact["slug"]) == ("model-onnx", "model-onnx")
    assert artifact["tokenizer_config"] is None
    assert artifact["layout"] == {"layout": "rolled"}
    assert artifact["inputs"]["limits"] == {"sequence": 128}
    names = ("manifest", "config", "tokenizer", "reference")
    files = [artifact[name] for name in names]
    for variant in artifact["variants"]:
        parts = [variant["model"], *variant["external_data"]]
        files += parts
        for key, total in (
            ("bytes", "file_bytes"),
            ("brotli_bytes", "brotli_bytes"),
            ("gzip_bytes", "gzip_bytes"),
        ):
            assert variant[total] == sum(part[key] for part in parts)
    assert [variant["variant"] for variant in artifact["variants"]] == ["fp32", "int8", "baseline"]
    assert [variant["tolerance"] for variant in artifact["variants"]] == [0.02, 0.02, None]
    (weights,) = artifact["variants"][1]["external_data"]
    assert weights["location"] == "model_quantized.onnx_data"
    assert len(files) == 8
    for file in files:
        for wish, size in (("identity", "bytes"), ("br", "brotli_bytes"), ("gzip", "gzip_bytes")):
            answer = server.ask(file["url"], {"Accept-Encoding": wish})
            assert answer.status == 200
            assert len(answer.body) == file[size]
        assert sha256(server.ask(file["url"]).body) == file["sha256"]
        assert server.ask(artifact["base"] + file["path"]).status == 200
    manifest = server.ask(artifact["manifest"]["url"]).json()
    assert manifest == json.loads((server.folder / "model-onnx/albert-export.json").read_text())


def test_the_catalogue_comes_compressed_too(server: RunningServer) -> None:
    plain = server.ask("/api/artifacts.json")
    for wish, unpack in (("br", brotli.decompress), ("gzip", gzip.decompress)):
        answer = server.ask("/api/artifacts.json", {"Accept-Encoding": wish})
        assert answer.headers["Content-Encoding"] == wish
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert unpack(answer.body) == plain.body
        assert len(answer.body) < len(plain.body) / 2
        assert answer.headers["ETag"] != plain.headers["ETag"]
        conditions = {"Accept-Encoding": wish, "If-None-Match": answer.headers["ETag"]}
        assert server.ask("/api/artifacts.json", conditions).status == 304


SCRIPT = b"""/**
 * @file What people read.
 */
import { one } from './one.js'; // kept: it shares its line

  /** @type {number} */
const two = /** @type {any} */ (one) + 1;
// gone
const url = 'https://example.org/**/x'; /* kept */
  /** @type {any} */ (two).run();
/** one line */
export { two, url };
"""


def test_scripts_are_sent_without_the_comments_on_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "pages/measure/script.js"
    path.parent.mkdir(parents=True)
    path.write_bytes(SCRIPT)
    with running(tmp_path) as server:
        first = server.ask("/measure/script.js")
        assert first.text.splitlines() == [
            "import { one } from './one.js'; // kept: it shares its line",
            "",
            "const two = /** @type {any} */ (one) + 1;",
            "const url = 'https://example.org/**/x'; /* kept */",
            "  /** @type {any} */ (two).run();",
            "export { two, url };",
        ]
        packed = server.ask("/measure/script.js", {"Accept-Encoding": "gzip"})
        assert gzip.decompress(packed.body) == first.body
        path.write_bytes(b"/** new */\nexport {};\n")
        assert server.ask("/measure/script.js").text == "export {};\n"


def test_a_folder_of_pages_ends_with_a_slash(server: RunningServer) -> None:
    answer = server.ask("/bench")
    assert (answer.status, answer.headers["Location"]) == (308, "/bench/")
    assert server.ask("/bench/").body == PAGES["bench/index.html"]


def test_what_a_page_costs_on_the_wire_is_counted(server: RunningServer) -> None:
    with_head = server.raw(b"GET /demo.webmanifest HTTP/1.0\r\nHost: localhost\r\n\r\n")
    # The last one: another test asked for it too.
    transfer = [entry for entry in server.transfers if entry.path == "/demo.webmanifest"][-1]
    assert (transfer.method, transfer.status) == ("GET", 200)
    assert transfer.sent_bytes == len(with_head)
    assert with_head.endswith(PAGES["demo.webmanifest"])
    assert transfer.encoding is None


def test_a_compressed_neighbour_that_nobody_listed_is_not_served(tmp_path: Path) -> None:
    folder = tmp_path / "model-onnx/onnx"
    folder.mkdir(parents=True)
    for suffix in (".br", ".gz"):
        (folder / f"model.onnx{suffix}").write_bytes(b"other")
    with running(tmp_path) as server:
        for wish in ("br", "gzip"):
            answer = server.ask(MODEL, {"Accept-Encoding": wish})
            unpack = brotli.decompress if wish == "br" else gzip.decompress
            assert unpack(answer.body) == WEIGHTS
        assert server.ask("/a/model-onnx/onnx/model.onnx.br").status == 404


def test_a_model_that_was_replaced_is_gone_in_every_coding(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        path = tmp_path / "model-onnx/onnx/model.onnx"
        etag = server.ask(MODEL).headers["ETag"]
        status = path.stat()
        path.write_bytes(WEIGHTS[::-1])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        for headers in ({}, {"Accept-Encoding": "br"}, {"If-None-Match": etag}):
            answer = server.ask(MODEL, headers)
            assert answer.status == 410
            assert answer.text == (
                "onnx/model.onnx has changed since the server started; start the server again\n"
            )
            assert answer.headers["Cache-Control"] == "no-store"
        path.unlink()
        assert server.ask(MODEL).status == 410
        assert server.faults == []


def test_a_page_that_was_edited_is_served_anew(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        before = server.ask("/measure/core.js", {"Accept-Encoding": "br"})
        (tmp_path / "pages/measure/core.js").write_bytes(b"export const two = 2;")
        after = server.ask(
            "/measure/core.js",
            {"Accept-Encoding": "br", "If-None-Match": before.headers["ETag"]},
        )
        assert (after.status, after.body) == (200, b"export const two = 2;")
        (tmp_path / "pages/style.css").unlink()
        assert server.ask("/style.css").status == 404


def test_a_cleaned_cache_costs_only_the_compression(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        for copy in (tmp_path / "cache").iterdir():
            copy.unlink()
        answer = server.ask(MODEL, {"Accept-Encoding": "br"})
        assert (answer.status, answer.body) == (200, WEIGHTS)
        assert "Content-Encoding" not in answer.headers
