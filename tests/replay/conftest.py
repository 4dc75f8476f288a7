"""Reverb servers for tests; one starts in about 10 ms."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acme_ext.replay.base import Replay
from acme_ext.replay.reverb.server import ReverbServer
from acme_ext.replay.reverb.store import ReverbStore


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """Starts the server of a replay, or of a list of `reverb.Table`s; servers end with the test."""
    servers: list[ReverbServer] = []

    def start(held: Any, **options: Any) -> ReverbServer:
        servers.append((ReverbStore if isinstance(held, Replay) else ReverbServer)(held, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
