"""Exploration: acting with and without a bonus, learning with a bonus, and the cost of the episodic memory."""

import contextlib
import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np

from acme_ext import envs
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.variables import VariableClient
from acme_ext.builders.base import Builder
from acme_ext.builders.ngu import NGU
from acme_ext.builders.ppo import PPO
from acme_ext.builders.r2d2 import R2D2
from acme_ext.builders.rnd import RND
from acme_ext.ops import intrinsic
from acme_ext.types import Array
from acme_ext.utils import compiling
from benchmarks.shared.measure import Contestant, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed import cartpole
from benchmarks.speed.sections.acting import repeated
from benchmarks.speed.sections.learner import measure_resident
from benchmarks.speed.tables import FixedVariables

_ENVIRONMENT = "gym:CartPole-v1"
_MEMORY = NGU(dataclasses.replace(NGU().config, memory_rows=1_000))
_GOAL = 0.5  # relative to acting without a bonus, for an agent with an episodic memory
_BATCHES = (8, 32)
_ROWS = (512, 2_048, 8_192, 30_000)


class Pair(NamedTuple):
    """An agent with a bonus, and a similar agent without one."""

    bonus: Builder
    without: Builder
    num_envs: int
    goal: float | None = None


PAIRS = (
    *(Pair(RND(), PPO(), n) for n in _BATCHES),
    *(Pair(_MEMORY, R2D2(), n, _GOAL if n == 32 else None) for n in _BATCHES),
)


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures acting with a bonus and without, the episodic memory alone, and learners, compared with bare steps."""
    return [
        *(acting(pair, seconds, rounds) for pair in PAIRS),
        *(memory(num_envs, rows, seconds, rounds) for num_envs in _BATCHES for rows in _ROWS),
        *(measure_resident("intrinsic", builder, cartpole.SPEC, seconds, rounds) for builder in (RND(), _MEMORY)),
    ]


def acting(pair: Pair, seconds: float, rounds: int) -> Figure:
    """Measures the environment loop with actors that write nothing."""
    with contextlib.ExitStack() as stack:
        contestants = {
            name: _acting(stack, builder, pair.num_envs)
            for name, builder in (("bonus", pair.bonus), ("without", pair.without))
        }
        measured = rates(contestants, seconds, rounds)
    ours = measured["bonus"]
    name = f"loop and actor, {pair.bonus.name}, B={pair.num_envs}"
    return figure(
        "intrinsic",
        name,
        "steps/s",
        ours,
        [against(ours, f"{pair.without.name}, without the bonus", measured["without"], pair.goal)],
    )


def memory(num_envs: int, rows: int, seconds: float, rounds: int) -> Figure:
    """Measures one step of NGU's memory: computing the nearest distances, and adding an embedding.

    The memory is full, with `rows` embeddings for each environment.
    """
    config, rng = _MEMORY.config, np.random.default_rng(0)
    full = rng.standard_normal((num_envs, config.embedding_size, rows)).astype(np.float32)
    embedding = rng.standard_normal((num_envs, config.embedding_size)).astype(np.float32)
    first = np.zeros(num_envs, np.bool_)

    def apply(kept: intrinsic.EpisodicMemory, embedding: Array, first: Array) -> tuple[Any, Array]:
        squares, _ = intrinsic.nearest_distances(kept, embedding, config.neighbours)
        return intrinsic.remember(kept, embedding, first, squares), squares

    kept: Any = jax.tree.map(jax.numpy.array, intrinsic.EpisodicMemory(full, np.full(num_envs, rows, np.int32)))
    compiled = compiling.jit(apply, donate_argnums=0)

    def step() -> int:
        nonlocal kept
        kept, squares = compiled(kept, embedding, first)
        np.asarray(squares)
        return num_envs

    def read() -> int:
        full.sum()
        return num_envs

    contestants = {"memory": repeated(step, times=1), "read": repeated(read, times=1)}
    measured = rates(contestants, seconds / 4, rounds)  # there are many measurements, and their rates are steady
    ours = measured["memory"]
    name = f"NGU's memory, {rows:,} rows, B={num_envs}"
    return figure("intrinsic", name, "steps/s", ours, [against(ours, "reading its rows once, NumPy", measured["read"])])


def _acting(stack: contextlib.ExitStack, builder: Builder, num_envs: int) -> Contestant:
    environment = envs.make(_ENVIRONMENT, num_envs=num_envs)
    stack.callback(environment.close)
    agent = builder.make_agent(envs.make_spec(environment))
    source = VariableClient(FixedVariables.of(agent))
    actor = agent.make_actor(source, jax.random.key(0), num_envs=num_envs)
    return repeated(EnvironmentLoop(environment, actor).step)
