"""Reverb servers for tests; one starts in about 10 ms."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acme_ext.replay.server import ReplayServer


@pytest.fixture
def serve() -> Iterator[Callable[..., ReplayServer]]:
    """Starts servers of tables, which end with the test."""
    servers: list[ReplayServer] = []

    def start(tables: list, **options: Any) -> ReplayServer:
        servers.append(ReplayServer(tables, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
