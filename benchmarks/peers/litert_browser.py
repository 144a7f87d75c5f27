"""LiteRT.js in an installed browser, as a worker of the product's own protocol."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.environments import ToolError, run_logged
from exporter.packed_arrays import pack_array
from exporter.runtimes.browsers import Browser
from exporter.runtimes.device import describe_device
from exporter.runtimes.page import Page
from exporter.runtimes.worker import MessageWorker, Task

__all__ = ["VERSION", "LiteRtBrowserWorker", "install"]

VERSION = "2.5.3"
PAGE = Path(__file__).with_name("litert_page")
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
PACKAGES = ("core", "wasm-utils")


class LiteRtBrowserWorker(MessageWorker):
    """Opens ``task`` in ``browser``; a :class:`~exporter.runtimes.worker.Worker`.

    Args:
        packages: what :func:`install` returned.

    Raises:
        BenchmarkError: the browser cannot be started, the model cannot be opened, or the
            page died or hangs.
    """

    def __init__(self, task: Task, browser: Browser, packages: Path) -> None:
        feeds = task.feeds()
        files = {"model/model.tflite": task.path}
        for name, folder in (("page", PAGE), *((name, packages / name) for name in PACKAGES)):
            files.update(
                {f"{name}/{p.relative_to(folder).as_posix()}": p for p in folder.rglob("*.*")}
            )
        request = {
            "model": "../model/model.tflite",
            "feeds": [pack_array(feeds[name]) for name in INPUTS],
            "version": VERSION,
        }
        super().__init__(
            task,
            lambda: Page(browser, files, "page/page.html"),
            request,
            lambda ready, opened: describe_device(
                engine=f"{browser.name.capitalize()} {browser.version}",
                runtime="LiteRT.js",
                runtime_version=opened["runtimeVersion"],
                user_agent=ready["userAgent"],
                cross_origin_isolated=ready["crossOriginIsolated"],
            ),
        )


def install(work: Path) -> Path:
    """Install LiteRT.js below ``work``; return the folder with its packages.

    Raises:
        ToolError: there is no npm, or it failed.
    """
    home = work / "litertjs"
    packages = home / "node_modules" / "@litertjs"
    if all((packages / name).is_dir() for name in PACKAGES):
        return packages
    npm = shutil.which("npm")
    if npm is None:
        raise ToolError("npm is not installed")
    home.mkdir(exist_ok=True)
    command = [npm, "install", "--prefix", str(home), f"@litertjs/core@{VERSION}"]
    run_logged(command, home / "install.log")
    return packages
