"""What serving on the local network needs: addresses, a certificate, a code to scan."""

from __future__ import annotations

import contextlib
import io
import re
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

__all__ = ["CERTIFICATE_DAYS", "local_addresses", "local_names", "qr_code", "tls_context"]

CERTIFICATE_DAYS = 30
"""Browsers refuse certificates valid for more than 397 days; this one lives as long as a run."""

_NAME = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*")


def local_addresses() -> list[str]:
    """Return the IPv4 addresses under which other devices may reach this machine."""
    found: list[str] = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Connecting a datagram socket sends nothing: it asks the routing table. The address
        # is one reserved for documentation.
        probe.connect(("192.0.2.1", 9))
        found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        for *_, address in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET):
            found.append(str(address[0]))
    return [ip for ip in dict.fromkeys(found) if not ip.startswith(("127.", "0."))]


def local_names() -> list[str]:
    """Return the names under which other devices may reach this machine."""
    name = socket.gethostname().lower()
    if not _NAME.fullmatch(name) or name == "localhost":
        return []
    return [name] if "." in name else [name, f"{name}.local"]


def tls_context(identities: Sequence[str]) -> ssl.SSLContext:
    """Return a TLS context with a new certificate for names and addresses.

    The key is never kept: a browser asks again about the certificate after each start.
    """
    import trustme

    now = datetime.now(UTC)
    certificate = trustme.CA(organization_name="albert-export").issue_cert(
        *identities,
        organization_name="albert-export",
        # A phone's clock may be behind.
        not_before=now - timedelta(days=1),
        not_after=now + timedelta(days=CERTIFICATE_DAYS),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate.configure_cert(context)
    return context


def qr_code(text: str) -> str:
    """Return ``text`` as a QR code of block characters, for a dark terminal."""
    import segno

    output = io.StringIO()
    segno.make(text, error="l", micro=False).terminal(out=output, compact=True, border=2)
    return output.getvalue().rstrip("\n")
