"""One model in onnxruntime-web in a browser, which is started for it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.packages import runtime_files
from exporter.packed_arrays import pack_array
from exporter.runtimes.browsers import Browser, find_browsers
from exporter.runtimes.device import describe_device
from exporter.runtimes.page import Page
from exporter.runtimes.web_folder import web_folder
from exporter.runtimes.worker import MessageWorker, Task, external_data

__all__ = ["Browser", "BrowserWorker", "find_browsers"]


class BrowserWorker(MessageWorker):
    """Opens ``task`` in ``browser``; a :class:`~exporter.runtimes.worker.Worker`.

    Each worker starts a browser of its own with an empty profile: browsers keep compiled
    WebAssembly for all pages of a process, and a cold start would be cold only once.

    Raises:
        BenchmarkError: the browser cannot be started, the model cannot be opened, or the
            page died or hangs.
        PackageError: onnxruntime-web is not there and cannot be fetched.
    """

    def __init__(self, task: Task, browser: Browser) -> None:
        feeds = task.feeds()
        model = task.path.absolute()
        files = {
            **_folder("web/measure", web_folder() / "measure"),
            **_folder("runtime", runtime_files()),
            f"model/{model.name}": model,
        }
        external = external_data(model)
        files.update({f"model/{file.name}": file for file in external})
        if task.reference is not None:
            files["reference.json"] = task.reference
        # Locations are relative to the page, web/measure/driven.html.
        request: dict[str, Any] = {
            "runtime": "../../runtime/ort.wasm.min.mjs",
            "model": f"../../model/{model.name}",
            "externalData": [
                {"path": file.name, "location": f"../../model/{file.name}"} for file in external
            ],
            "threads": task.usable_threads,
            "feeds": {name: pack_array(array) for name, array in feeds.items()},
            "reference": "../../reference.json" if task.reference else None,
            "tolerance": task.tolerance,
            "warmFirst": task.warm_first,
            "maximumHeapBytes": task.heap_bytes,
        }
        super().__init__(
            task,
            lambda: Page(browser, files),
            request,
            lambda ready, opened: describe_device(
                engine=f"{browser.name.capitalize()} {browser.version}",
                runtime="onnxruntime-web",
                runtime_version=opened["runtimeVersion"],
                user_agent=ready["userAgent"],
                cross_origin_isolated=ready["crossOriginIsolated"],
                timer_resolution_ms=ready["timerResolutionMs"],
            ),
        )


def _folder(prefix: str, folder: Path) -> dict[str, Path]:
    return {f"{prefix}/{file.name}": file for file in folder.iterdir() if file.is_file()}
