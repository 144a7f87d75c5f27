from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.harness import RunningServer, no_limit, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that the tests of one module share; they change nothing but its results."""
    folder = tmp_path_factory.mktemp("site")
    with running(folder, requests=no_limit(), posts=no_limit()) as server:
        yield server
