"""Functions that fill a replay's table, and read from it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import acme.core
import dm_env
import jax
import numpy as np

from acme_ext.acting.variables import VariableClient
from acme_ext.builders.base import Agent
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.replay.table import RawBatch, Table
from acme_ext.replay.transitions import TransitionReplay
from benchmarks.shared.measure import Contestant

PENDING = 256
"""Maximum number of rows in transit to the server, if configurable; with thousands of them, Reverb is slow."""


class FixedVariables(acme.core.VariableSource):
    """A source of constant variables."""

    def __init__(self, variables: Mapping[str, Any]):
        self._variables = variables

    @classmethod
    def of(cls, agent: Agent) -> "FixedVariables":
        """Returns a source of an agent's initial variables."""
        return cls(agent.core.variables(jax.jit(agent.core.init)(jax.random.key(0))))

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        return [self._variables[name] for name in names]


def unlimited(agent: Agent) -> Any:
    """Returns an agent's replay, limited only by a minimum size, so that sampling never waits; a queue keeps its own
    limit.
    """
    limit = None if agent.replay.fifo else RateLimit()  # a queue keeps its own
    return dataclasses.replace(agent.replay, limit=limit, max_size=10_000)


def experience(agent: Agent, timesteps: Sequence[dm_env.TimeStep], times: int = 25) -> tuple[Any, RawBatch]:
    """Returns an agent's replay, and the batches of one learner call.

    The data are the actions of the agent's policy at `timesteps` `[B, ...]`, repeated `times` times.
    """
    replay, num_envs = unlimited(agent), len(timesteps[0].step_type)
    server = ReverbStore(replay)
    try:
        writer = replay.writer(server.table.sink(), num_envs, max_pending=PENDING)
        variables = VariableClient(FixedVariables.of(agent))
        actor = agent.make_actor(variables, jax.random.key(0), num_envs=num_envs, writer=writer)
        actor.observe_first(timesteps[-1])
        for timestep in [*timesteps] * times:
            actor.observe(actor.select_action(timestep.observation), timestep)
        writer.flush()
        writer.wait()
        writer.close()
        dataset = server.table.batches(agent.sgd_steps_per_call)
        try:
            return replay, next(dataset)
        finally:
            dataset.close(wake=True)
    finally:
        server.close()


class _Errors(NamedTuple):
    largest_error: np.ndarray  # the items' priority in a prioritized replay


def fill(table: Table, replay: TransitionReplay, timesteps: Sequence[dm_env.TimeStep], times: int) -> None:
    """Fills a replay's table.

    The data are the transitions of `timesteps` `[B, ...]`, repeated `times` times.
    """
    num_envs = len(timesteps[0].step_type)
    writer = replay.writer(table.sink(), num_envs, max_pending=PENDING)
    action = np.zeros(num_envs, np.int32)
    extras = _Errors(np.ones(num_envs, np.float32))
    writer.add_first(timesteps[-1])
    for _ in range(times):
        for timestep in timesteps:
            writer.add(action, timestep, extras)
    writer.flush()
    writer.wait()
    writer.close()


def reader(read: Callable[[], Any], batches: int) -> Contestant:
    """Returns a contestant that reads `batches` batches per call."""

    def work() -> int:
        read()
        return batches

    def prepare() -> None:  # skips batches that were prefetched during the others' turns
        for _ in range(4):
            read()

    return Contestant(work, prepare=prepare)
