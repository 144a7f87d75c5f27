"""Starting the workers of each runtime, and telling which runtimes are there."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from typing import Protocol

from exporter.errors import BenchmarkError
from exporter.records import Case, Device
from exporter.runtimes.browsers import Browser, find_browsers
from exporter.runtimes.device import describe_device
from exporter.runtimes.worker import Task, Worker

__all__ = ["InstalledRuntimes", "Launcher"]


class Launcher(Protocol):
    """What the protocol needs of runtimes; tests have one without any real runtime."""

    def browsers(self) -> list[str]:
        """Names of the installed browsers."""

    def missing(self, case: Case) -> str | None:
        """Why ``case`` cannot be run at all, and what to do; ``None``: it can be tried."""

    def device(self, case: Case) -> Device:
        """What is known of the device without starting the runtime.

        ``engine`` is at least the beginning of what a running one says.
        """

    def open(self, case: Case, task: Task) -> Worker:
        """Start a fresh worker.

        Raises:
            BenchmarkError: the model cannot be opened, or the worker died or hangs.
        """


class InstalledRuntimes:
    """The runtimes of this machine."""

    def browsers(self) -> list[str]:
        """Names of the installed browsers: ``chromium``, ``firefox``, …"""
        return [browser.name for browser in _found_browsers()]

    def missing(self, case: Case) -> str | None:
        """See :class:`Launcher`."""
        from exporter.packages import PackageError, find_node, runtime_files

        if case.runtime == "cpu":
            return None
        if case.runtime == "node" and find_node() is None:
            return "Node 20 or later is not installed: install it, or 'albert-export[web]'"
        if case.runtime == "browser" and find_spec("aiohttp") is None:
            return "driving a browser needs aiohttp: install 'albert-export[web]'"
        if case.runtime == "browser" and _browser(case) is None:
            return f"the browser {case.browser} is not installed"
        try:
            runtime_files()
        except PackageError as error:
            return str(error)
        return None

    def device(self, case: Case) -> Device:
        """See :class:`Launcher`."""
        from exporter.packages import RUNTIME

        if case.runtime == "cpu":
            return describe_device(
                engine=f"{platform.python_implementation()} {platform.python_version()}",
                runtime="onnxruntime",
                runtime_version=metadata.version("onnxruntime"),
            )
        engine = "Node"
        if case.runtime == "browser":
            found = _browser(case)
            engine = f"{case.browser} {found.version if found else ''}".strip().capitalize()
        return describe_device(
            engine=engine, runtime=RUNTIME.package, runtime_version=RUNTIME.version
        )

    def open(self, case: Case, task: Task) -> Worker:
        """See :class:`Launcher`."""
        if case.runtime == "cpu":
            from exporter.runtimes.cpu_worker import CpuWorker

            return CpuWorker(task)
        if case.runtime == "node":
            from exporter.runtimes.node_worker import NodeWorker

            return NodeWorker(task)
        from exporter.runtimes.browser_worker import BrowserWorker

        browser = _browser(case)
        if browser is None:
            raise BenchmarkError(f"the browser {case.browser} is not installed")
        return BrowserWorker(task, browser)


@cache
def _found_browsers() -> tuple[Browser, ...]:
    return tuple(find_browsers())


def _browser(case: Case) -> Browser | None:
    return next((found for found in _found_browsers() if found.name == case.browser), None)
