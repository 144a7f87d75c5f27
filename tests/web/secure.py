"""The command itself over https, as a phone sees it: nobody vouches for its certificate."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SecureServer", "serving_securely"]


@dataclass
class SecureServer:
    """A running ``albert-export serve --https --log``.

    Args:
        url: its address, without the last slash.
        log: its log.
    """

    url: str
    log: Path

    def transfers(self, start: int = 0) -> list[dict[str, Any]]:
        """Return what was answered, from the entry ``start`` on."""
        return [json.loads(line) for line in self.log.read_text().splitlines()][start:]


@contextmanager
def serving_securely(artifact: Path, log: Path, *options: str) -> Iterator[SecureServer]:
    """Serve ``artifact``; compressed copies are those that this machine keeps anyway."""
    command = [sys.executable, "-m", "exporter", "serve", str(artifact), "--https", "--port", "0"]
    with subprocess.Popen(
        [*command, "--log", str(log), *options], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            said = ""
            for line in process.stdout:
                said += line
                if "Ctrl-C ends it" in line:
                    break
            ports = re.findall(r"serving on https://\S+:(\d+)/", said)
            assert ports, said
            yield SecureServer(f"https://localhost:{ports[0]}", log)
        finally:
            process.terminate()
