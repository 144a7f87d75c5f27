"""A browser without a window, driven from a test through puppeteer's core."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exporter.packages import cache_folder
from tests.browsers import installed

__all__ = ["Driven", "driven"]

PUPPETEER = "24.43.1"
_DRIVER = Path(__file__).with_name("driver.mjs")


class Driven:
    """One browser with one page.

    Args:
        process: the driver.
        name: ``chromium`` (or one that stands for it) or ``firefox``.
        product: what it is called, ``chrome`` say.
        version: as it says itself.
    """

    def __init__(
        self, process: subprocess.Popen[str], name: str, product: str, version: str
    ) -> None:
        self._process = process
        self.name, self.product, self.version = name, product, version

    def open(self, url: str, **options: Any) -> None:
        """Open a page in a fresh profile."""
        self.do("open", url=url, **options)

    def evaluate(self, code: str) -> Any:
        """Run JavaScript in the page; a promise is waited for."""
        return self.do("evaluate", code=code)

    def click(self, selector: str) -> None:
        """Click what a selector finds, once it can be clicked."""
        self.do("click", selector=selector)

    def wait(self, code: str, timeout_s: float = 30) -> None:
        """Wait until an expression is true.

        Raises:
            AssertionError: it never is; the text tells what the page shows.
        """
        try:
            self.do("wait", code=code, timeout=1000 * timeout_s)
        except AssertionError as error:
            seen, said = self.evaluate("document.body.innerText"), self.do("errors")
            raise AssertionError(f"{error}\nthe page shows: {seen}\nit logged: {said}") from error

    def text(self, selector: str) -> str:
        """Visible text of an element."""
        return str(self.evaluate(f"document.querySelector({selector!r}).innerText"))

    def do(self, command: str, **given: Any) -> Any:
        """Send one command to the driver.

        Raises:
            AssertionError: it failed.
        """
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps({"command": command, **given}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the driver of {self.name} ended"
        answer = json.loads(line)
        assert "error" not in answer, f"{command} {given}: {answer['error']}"
        return answer["value"]


@contextmanager
def driven(name: str) -> Iterator[Driven]:
    """Start ``chromium`` or ``firefox``; both have to be installed."""
    found = installed(name)
    kind = "firefox" if name == "firefox" else "chrome"
    command = ["node", str(_DRIVER), str(_puppeteer()), kind, str(found.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        browser = Driven(process, name, found.name, found.version)
        try:
            assert process.stdout
            assert process.stdout.readline(), f"{name} did not start"
            yield browser
        finally:
            assert process.stdin
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _puppeteer() -> Path:
    """Return the folder that holds puppeteer's core, fetched once through npm."""
    folder = cache_folder() / f"puppeteer-core-{PUPPETEER}"
    if (folder / "node_modules" / "puppeteer-core" / "package.json").is_file():
        return folder
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run([*npm, f"puppeteer-core@{PUPPETEER}"], cwd=unfinished, check=True)
    unfinished.replace(folder)
    return folder
