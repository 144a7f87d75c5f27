"""A browser started for one page, which takes its orders over a WebSocket.

No automation library is needed: a server on the loopback interface serves the page,
the runtime and the model, and carries the messages.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from exporter.errors import BenchmarkError
from exporter.runtimes.browsers import Browser, start_command
from exporter.runtimes.content_types import content_type
from exporter.runtimes.line_process import NoAnswerError, ending

__all__ = ["Page"]

_HEADERS = {
    # Together they isolate the page, which gives it threads and fine timers.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A profile is used once: what it keeps on disk costs time and serves nobody.
    "Cache-Control": "no-store",
}
# Ends all processes of the browser when standard input closes: as well where this process dies
# and cannot end them itself.
_GUARD = 'exec 3<&0; "$@" </dev/null & child=$!; (read -r _ <&3; kill -KILL 0) & wait $child'
_POLL_SECONDS = 0.2
_STOP_SECONDS = 10


class Page:
    """A :class:`~exporter.runtimes.worker.Channel` to the one page of a fresh browser.

    Args:
        browser: which to start.
        files: path below a base that is random → file.
        start: which of them to open; it opens the WebSocket ``socket`` below the base.

    Raises:
        OSError: there is no free port or no shell.
    """

    def __init__(
        self,
        browser: Browser,
        files: Mapping[str, Path],
        start: str = "web/measure/driven.html",
    ) -> None:
        self._browser = browser
        self._files = files
        # Other users of this machine can reach the port, but do not know the path.
        self._base = f"/{secrets.token_urlsafe(16)}"
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._socket: web.WebSocketResponse | None = None
        self._loop = asyncio.new_event_loop()
        self._profile = Path(tempfile.mkdtemp(prefix="albert-export-browser-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        try:
            port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
            url = f"http://127.0.0.1:{port}{self._base}/{start}"
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", *start_command(browser, self._profile, url)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that all its processes end together
                env={**os.environ, "MOZ_CRASHREPORTER_DISABLE": "1"},
            )
        except BaseException:
            self.close()
            raise

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message; a page that is gone shows in :meth:`receive`."""
        if self._socket is not None and not self._loop.is_closed():
            text = json.dumps(message)
            asyncio.run_coroutine_threadsafe(self._send(self._socket, text), self._loop)

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next message.

        Raises:
            NoAnswerError: it said nothing for so long.
            BenchmarkError: the browser or its page ended.
        """
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            try:
                wait = max(0.0, min(_POLL_SECONDS, end - time.monotonic()))
                message = self._messages.get(timeout=wait)
            except queue.Empty:
                self._check_start()
                continue
            if message is None:
                self._messages.put(None)  # every further call says the same
                raise BenchmarkError(
                    f"the page in {self._browser.name} ended: it crashed, or memory ran out"
                )
            return message
        self._end_browser()
        raise NoAnswerError(
            f"no answer from {self._browser.name} within {timeout_s:g} s; it was ended"
        )

    def close(self) -> None:
        """End the browser, all its processes, and the server; safe to call again."""
        if self._loop.is_closed():
            return
        self._end_browser()
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(_STOP_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._profile, ignore_errors=True)

    def _check_start(self) -> None:
        """Before the page speaks, a browser that ended will never open it."""
        code = self._process.poll() if self._process else None
        if code is not None and self._socket is None:
            raise BenchmarkError(
                f"{self._browser.name} {ending(code)} before it opened the page; "
                f"try whether {self._browser.path} starts"
            )

    def _end_browser(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def _serve(self) -> int:
        app = web.Application()
        app.router.add_get(f"{self._base}/socket", self._talk)
        app.router.add_get(f"{self._base}/{{path:.+}}", self._file)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def _stop(self) -> None:
        if hasattr(self, "_runner"):
            await self._runner.cleanup()

    async def _file(self, request: web.Request) -> web.StreamResponse:
        path = self._files.get(request.match_info["path"])
        if path is None or not path.is_file():
            raise web.HTTPNotFound(headers=_HEADERS)
        return web.FileResponse(path, headers={**_HEADERS, "Content-Type": content_type(path.name)})

    async def _talk(self, request: web.Request) -> web.StreamResponse:
        if self._socket is not None:  # one page, which speaks first
            raise web.HTTPConflict
        socket = web.WebSocketResponse(max_msg_size=0)
        self._socket = socket
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                self._messages.put(json.loads(message.data))
        self._messages.put(None)
        return socket

    @staticmethod
    async def _send(socket: web.WebSocketResponse, text: str) -> None:
        with suppress(ConnectionError):
            await socket.send_str(text)
