"""Learning of continuous control: SGD steps a second of each agent, inside the program and bare."""

import contextlib
import dataclasses
import itertools
from typing import Any

import acme.core
import acme.specs
import jax
import numpy as np
from dm_env import specs

from acme_ext import builders
from acme_ext.acting.variables import VariableClient
from acme_ext.builders.base import Agent, Builder
from acme_ext.errors import UsageError
from acme_ext.learning.learner import Learner
from acme_ext.replay.dataset import RawBatch
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.server import ReplayServer
from benchmarks import cartpole
from benchmarks.measure import Contestant, rates
from benchmarks.report import Figure, figure
from benchmarks.sections.learner import bare, beside_bare, resident, stepping
from benchmarks.tables import PENDING

_ENVS = 8
_EPISODES = 25  # of each environment, to fill the table

SPEC = acme.specs.EnvironmentSpec(
    observations=specs.Array((24,), np.float32, "observation"),
    actions=specs.BoundedArray((6,), np.float32, -1.0, 1.0, "action"),
    rewards=cartpole.SPEC.rewards,
    discounts=cartpole.SPEC.discounts,
)
"""As large as the walker's of the control suite."""


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures `Learner.step` of every agent that has continuous actions, with its defaults and a resident batch,
    beside the bare compiled step of the same loss and batch, its limit, in its best form.
    """
    return [measure(builder, seconds, rounds) for builder in agents()]


def agents() -> list[Builder]:
    """Returns the agents that take `SPEC`'s actions and learn from transitions, with their defaults."""
    found = []
    for name in builders.AGENTS:
        builder = builders.load(name)()
        try:
            replay = builder.make_agent(SPEC).replay
        except UsageError:
            continue
        if not replay.fifo:
            found.append(builder)
    return found


def measure(builder: Builder, seconds: float, rounds: int) -> Figure:
    """Measures one agent."""
    with contextlib.ExitStack() as stack:
        measured = rates(_contestants(stack, builder), seconds, rounds)
    ours = measured["resident batch"]
    name = f"Learner, {builder.name}, batch {builder.config.batch_size}, resident batch"
    return figure("continuous", name, "SGD steps/s", ours, beside_bare(ours, measured))


def _contestants(stack: contextlib.ExitStack, builder: Builder) -> dict[str, Contestant]:
    agent = builder.make_agent(SPEC)
    core, count = agent.core, agent.sgd_steps_per_call
    replay, raw = _batches(agent)
    learner = Learner(
        core,
        itertools.repeat(raw),
        replay.decode,
        jax.random.key(0),
        batch_size=replay.batch_size,
        steps_per_call=count,
    )
    stack.callback(learner.close)
    contestants = {"resident batch": stepping(learner, count)}
    for fused in sorted({1, count}):
        sample = resident(replay, raw, fused)
        contestants[f"bare {fused}"] = bare(core, sample, fused, unroll=False)
        contestants[f"plain {fused}"] = bare(core, sample, fused, unroll=False, plain=True)
    return contestants


def _batches(agent: Agent) -> tuple[Any, RawBatch]:
    """Returns an agent's replay, and the batches of one learner call, of experience that its own policy gave."""
    # Nothing but a least size limits the table, so that a batch is always found.
    replay: Any = dataclasses.replace(agent.replay, limit=RateLimit(), max_size=10_000)
    core = agent.core
    source = _Fixed(core.variables(jax.jit(core.init)(jax.random.key(0))))
    server = ReplayServer(replay.tables())
    try:
        writer = replay.writer(server.client, _ENVS, max_pending=PENDING)
        actor = agent.make_actor(VariableClient(source), jax.random.key(0), num_envs=_ENVS, writer=writer)
        rng = np.random.default_rng(0)
        timesteps = [
            timestep._replace(observation=rng.standard_normal((_ENVS, 24)).astype(np.float32))
            for timestep in cartpole.timesteps(_ENVS)
        ]
        actor.observe_first(timesteps[-1])
        for timestep in timesteps * _EPISODES:
            actor.observe(actor.select_action(timestep.observation), timestep)
        writer.flush()
        writer.wait()
        writer.close()
        dataset = replay.dataset(server.client, agent.sgd_steps_per_call)
        try:
            return replay, next(dataset)
        finally:
            dataset.close(wake=True)
    finally:
        server.close()


class _Fixed(acme.core.VariableSource):
    """Variables that stay as they are."""

    def __init__(self, variables: dict[str, Any]):
        self._variables = variables

    def get_variables(self, names: Any) -> list[Any]:
        return [self._variables[name] for name in names]
