from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.runtimes.browser_worker import BrowserWorker
from exporter.runtimes.cpu_worker import CpuWorker
from exporter.runtimes.node_worker import NodeWorker
from exporter.runtimes.worker import Task, Worker
from tests.browsers import installed
from tests.runtimes.models import INPUTS, SIZES

Open = Callable[[Task], Worker]

EVERYWHERE = pytest.mark.parametrize("place", ("cpu", "node", "chromium", "firefox"), indirect=True)
# The same core runs in Node and in all browsers, and browsers are slow to start.
WITHOUT_FIREFOX = pytest.mark.parametrize("place", ("cpu", "node", "chromium"), indirect=True)
PROCESSES = pytest.mark.parametrize("place", ("cpu", "node"), indirect=True)


def opener(place: str) -> Open:
    """Return what opens a task there."""
    if place == "cpu":
        return CpuWorker
    if place == "node":
        return NodeWorker
    return lambda task: BrowserWorker(task, installed(place))


def task(path: Path, **changes: Any) -> Task:
    """A task on one of the small models; ``changes`` are of its fields."""
    return Task(**{"path": path, "inputs": INPUTS, "sizes": SIZES, "timeout_s": 60.0, **changes})


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_in(place: str) -> Open:
    return opener(place)
