"""Filling a replay's table, and reading from it."""

from collections.abc import Callable, Sequence
from typing import Any

import dm_env
import numpy as np

from acme_ext.replay.server import ReplayServer
from acme_ext.replay.transitions import TransitionReplay
from benchmarks.measure import Contestant

PENDING = 256
"""Rows on their way to the server, where there is a choice: with thousands of them Reverb's own bookkeeping is slow."""


def fill(server: ReplayServer, replay: TransitionReplay, timesteps: Sequence[dm_env.TimeStep], times: int) -> None:
    """Fills a replay's table with the transitions of `timesteps` `[B, ...]`, gone through `times` times."""
    num_envs = len(timesteps[0].step_type)
    writer = replay.writer(server.client, num_envs, max_pending=PENDING)
    action = np.zeros(num_envs, np.int32)
    extras = {"priority": np.ones(num_envs, np.float32)}
    writer.add_first(timesteps[-1])
    for _ in range(times):
        for timestep in timesteps:
            writer.add(action, timestep, extras)
    writer.flush()
    writer.wait()
    writer.close()


def reader(read: Callable[[], Any], batches: int) -> Contestant:
    """Returns what reads `batches` batches a call."""

    def work() -> int:
        read()
        return batches

    def prepare() -> None:  # past what was fetched while others had their turn
        for _ in range(4):
            read()

    return Contestant(work, prepare=prepare)
