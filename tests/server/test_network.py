from __future__ import annotations

import http.client
import re
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from exporter.errors import BenchmarkError
from exporter.server.app import build_app
from exporter.server.binding import bind
from exporter.server.guards import Policy
from exporter.server.lan import local_addresses, local_names, qr_code, tls_context
from exporter.server.limits import ConnectionLimits
from exporter.server.plain_page import build_plain_app
from tests.server.harness import TOKEN, make_service, running_app
from tests.server.samples import PAGES


def trusting_nobody() -> ssl.SSLContext:
    """As a browser whose warning was clicked through."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_the_certificate_names_what_it_serves_for_less_than_397_days(tmp_path: Path) -> None:
    tls = tls_context(["192.168.1.5", "my-laptop.local", "localhost", "::1"])
    service = make_service(tmp_path, policy=Policy(any_address=True))
    with running_app(build_app(service), service.connections, [], tls) as port:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
            trusting_nobody().wrap_socket(plain, server_hostname="192.168.1.5") as secure,
        ):
            assert secure.version() in ("TLSv1.2", "TLSv1.3")
            raw = secure.getpeercert(binary_form=True)
            assert raw is not None
        certificate = x509.load_der_x509_certificate(raw)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [
            "192.168.1.5",
            "::1",
        ]
        assert names.get_values_for_type(x509.DNSName) == ["my-laptop.local", "localhost"]
        assert certificate.not_valid_before_utc < datetime.now(UTC)
        assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=20)
        lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
        assert lifetime < timedelta(days=397)

        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=10, context=trusting_nobody()
        )
        connection.request("GET", "/", headers={"Host": f"192.168.1.5:{port}"})
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (200, PAGES["index.html"])
        # Over https, a page's origin is https, and that alone.
        for scheme, status in (("https", 400), ("http", 403)):
            connection.request(
                "POST",
                "/api/results",
                body=b"{",
                headers={
                    "Authorization": f"Bearer {TOKEN}",
                    "Content-Type": "application/json",
                    "Host": f"192.168.1.5:{port}",
                    "Origin": f"{scheme}://192.168.1.5:{port}",
                },
            )
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        connection.close()
    service.store.close()


def test_plain_http_explains_itself_and_gives_nothing_away(tmp_path: Path) -> None:
    policy = Policy(any_address=True, hosts={"localhost", "my-laptop"})
    connections = ConnectionLimits()
    with running_app(build_plain_app(policy, 8443, connections), connections, []) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

        def get(path: str, host: str) -> tuple[int, str, str]:
            connection.request("GET", path, headers={"Host": host})
            answer = connection.getresponse()
            return answer.status, answer.headers["Content-Type"], answer.read().decode()

        for host, link in (
            ("192.168.1.5:8444", "https://192.168.1.5:8443/"),
            ("my-laptop:8444", "https://my-laptop:8443/"),
            ("[fe80::1]:8444", "https://[fe80::1]:8443/"),
        ):
            status, media_type, text = get("/", host)
            assert (status, media_type) == (200, "text/html; charset=utf-8")
            assert re.findall(r'<a href="([^"]*)"', text) == [link]
            for word in ("threads", "clocks", "Cache API", "wake lock", "brotli"):
                assert word in text
            assert "<script" not in text and "<style" not in text and "style=" not in text
            assert "token" not in text
        assert get("/plain.css", "localhost")[:2] == (200, "text/css; charset=utf-8")
        assert get("/", "evil.example")[0] == 421
        for path in ("/api/session", "/api/artifacts.json", "/a/model-onnx/config.json"):
            status, media_type, text = get(path, "localhost")
            assert (status, media_type) == (404, "text/plain; charset=utf-8")
            assert text == "only https serves files, on port 8443\n"
        connection.close()


def test_the_code_holds_the_address() -> None:
    text = "https://192.168.1.5:8000/#token=abcdefghijklmnopqrstuv"
    lines = qr_code(text).splitlines()
    assert {len(line) for line in lines} == {len(lines[0])}
    assert set("".join(lines)) <= set(" ▀▄█")
    assert 20 <= len(lines[0]) <= 60  # fits a terminal
    assert qr_code(text + "x") != qr_code(text)


def test_addresses_are_those_that_others_reach() -> None:
    for address in local_addresses():
        assert not address.startswith("127.")
        with socket.create_server((address, 0)):  # ours indeed
            pass
    assert "localhost" not in local_names()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org", ""])
def test_the_network_is_only_served_on_demand(host: str) -> None:
    with pytest.raises(BenchmarkError, match="add --lan if that is wanted"):
        bind(host, 0, lan=False, plain=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_without_it_only_this_machine_is(host: str) -> None:
    binding = bind(host, 0, lan=False, plain=False)
    assert binding.main.getsockname() == ("127.0.0.1", binding.port)
    assert (binding.addresses, binding.names, binding.plain) == (["127.0.0.1"], (), None)
    binding.close()


def test_on_the_network_all_addresses_are_bound_and_two_ports_in_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("exporter.server.binding.local_addresses", lambda: ["192.0.2.7"])
    binding = bind("127.0.0.1", _pair(), lan=True, plain=True)
    assert binding.main.getsockname() == ("0.0.0.0", binding.port)
    assert binding.plain is not None
    assert binding.plain.getsockname() == ("0.0.0.0", binding.port + 1)
    assert binding.addresses == ["192.0.2.7"]
    binding.close()
    monkeypatch.setattr("exporter.server.binding.local_addresses", list)
    with pytest.raises(BenchmarkError, match="no network address found"):
        bind("127.0.0.1", 0, lan=True, plain=False)


def test_a_taken_port_names_the_next_free_one() -> None:
    port = _pair()
    with socket.create_server(("127.0.0.1", port)), pytest.raises(BenchmarkError) as caught:
        bind("127.0.0.1", port, lan=False, plain=False)
    match = re.fullmatch(rf"port {port} is taken; try --port (\d+)", str(caught.value))
    assert match is not None
    assert int(match[1]) > port
    binding = bind("127.0.0.1", int(match[1]), lan=False, plain=True)
    binding.close()


def test_a_taken_second_port_gives_the_first_one_back() -> None:
    port = _pair()
    with socket.create_server(("127.0.0.1", port + 1)):
        with pytest.raises(BenchmarkError, match=f"port {port + 1} is taken"):
            bind("127.0.0.1", port, lan=False, plain=True)
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_what_cannot_be_bound_is_one_clear_line() -> None:
    for host, port, words in (
        ("127.0.0.1", 70_000, "port 70000 is none"),
        ("192.0.2.7", 0, "cannot listen on 192.0.2.7: "),
        ("no.such.host.invalid", 0, "cannot listen on no.such.host.invalid: "),
    ):
        with pytest.raises(BenchmarkError) as caught:
            bind(host, port, lan=host != "127.0.0.1", plain=False)
        assert str(caught.value).startswith(words)
        assert "\n" not in str(caught.value)


def _pair() -> int:
    """Return a port that is free, as is the next one."""
    for _ in range(100):
        port = free_port()
        try:
            with socket.create_server(("0.0.0.0", port)), socket.create_server(("", port + 1)):
                return port
        except OSError:
            continue
    raise AssertionError("no two free ports in a row")
