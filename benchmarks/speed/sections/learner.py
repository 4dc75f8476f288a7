"""Learning: SGD steps per second of the learner and of its bare step."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import dm_env
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.agents.dqn.config import ATARI, DQNConfig
from acme_ext.builders.base import Agent, Builder
from acme_ext.builders.dqn import DQN
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.learner import Learner
from acme_ext.replay.base import Replay
from acme_ext.replay.config import TransitionConfig
from acme_ext.replay.reverb.store import ReverbStore
from acme_ext.replay.table import RawBatch
from acme_ext.types import EnvironmentSpec, Sample
from acme_ext.utils import compiling
from benchmarks.shared.measure import Contestant, Rate, best, rates
from benchmarks.shared.report import Figure, Reference, against, figure
from benchmarks.speed import cartpole, images
from benchmarks.speed.tables import experience, fill, reader, unlimited

_GOAL = 0.8  # relative to the bare step


class Setting(NamedTuple):
    """A network and its batches."""

    name: str
    spec: EnvironmentSpec
    config: DQNConfig
    timesteps: Callable[[int], list[dm_env.TimeStep]]
    episodes: int  # episodes of 8 environments that fill the table
    fused: tuple[int, ...]  # the bare step's numbers of SGD steps per call; the fastest counts


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures `Learner.step`, compared with its limit: the fastest variant of the bare compiled step on a resident
    batch.
    """
    return [f for setting in settings() for f in measure(setting, seconds, rounds)]


def measure(setting: Setting, seconds: float, rounds: int) -> list[Figure]:
    """Measures one setting."""
    with contextlib.ExitStack() as stack:
        measured = rates(_contestants(stack, setting), seconds, rounds)
    figures = []
    for source in ("resident batch", "Reverb"):
        ours = measured[source]
        references = beside_bare(ours, measured)
        if source == "Reverb":
            references.append(against(ours, "the dataset alone, batches", measured["dataset"]))
        figures.append(figure("learner", f"Learner, {setting.name}, {source}", "SGD steps/s", ours, references))
    return figures


def beside_bare(ours: Rate, measured: Mapping[str, Rate], goal: float = _GOAL) -> list[Reference]:
    """Returns a learner's references: the fastest contestant named `bare ...`, and the fastest named `plain ...`."""
    bare, plain = (
        best([rate for name, rate in measured.items() if name.startswith(kind)]) for kind in ("bare", "plain")
    )
    return [
        against(ours, "bare step, resident batch, compiled as ours", bare, goal),
        against(ours, "bare step, resident batch, plain jax.jit", plain),
    ]


def settings() -> list[Setting]:
    """Returns the settings: a small network with single transitions and with blocks of them, and a large network.

    With the small network, replay is the slower part.
    """
    mlp = DQNConfig(hidden_sizes=(64, 64), batch_size=128)
    blocks = dataclasses.replace(mlp, sgd_steps_per_call=8, replay=TransitionConfig(rows_per_item=16))
    convolutional = DQNConfig(
        image_features=ATARI.image_features,
        batch_size=32,
        sgd_steps_per_call=ATARI.sgd_steps_per_call,
    )
    return [
        Setting("MLP 64x64, batch 128", cartpole.SPEC, mlp, cartpole.timesteps, 25, (1, 8, 32)),
        Setting(
            "MLP 64x64, batch 128, blocks of 16, 8 a call", cartpole.SPEC, blocks, cartpole.timesteps, 25, (1, 8, 32)
        ),
        Setting("Nature CNN, batch 32", images.SPEC, convolutional, images.timesteps, 1, (1,)),
    ]


def _contestants(stack: contextlib.ExitStack, setting: Setting) -> dict[str, Contestant]:
    agent = DQN(setting.config).make_agent(setting.spec)
    core = agent.core
    replay = unlimited(agent)
    server = ReverbStore(replay)
    stack.callback(server.close)
    fill(server.table, replay, setting.timesteps(8), setting.episodes)
    dataset = server.table.batches(agent.sgd_steps_per_call)
    stack.callback(dataset.close, wake=True)
    raw = next(dataset)

    def learner(batches: Iterator[RawBatch]) -> Contestant:
        count = agent.sgd_steps_per_call
        made = Learner(
            core, batches, replay.decode, jax.random.key(0), batch_size=replay.batch_size, steps_per_call=count
        )
        stack.callback(made.close)
        return stepping(made, count)

    alone = server.table.batches(agent.sgd_steps_per_call)
    stack.callback(alone.close, wake=True)
    contestants = {
        "Reverb": learner(dataset),
        "resident batch": learner(itertools.repeat(raw)),
        "dataset": reader(alone.__next__, agent.sgd_steps_per_call),
    }
    unroll = compiling.is_convolutional(jax.jit(core.init)(jax.random.key(0)))
    for count in setting.fused:
        sample = resident(replay, raw, count)
        contestants[f"bare {count}"] = bare(core, sample, count, unroll=unroll)
        contestants[f"plain {count}"] = bare(core, sample, count, unroll=unroll, plain=True)
    return contestants


def measure_resident(section: str, builder: Builder, spec: EnvironmentSpec, seconds: float, rounds: int) -> Figure:
    """Measures an agent's `Learner.step` on a resident batch with vector observations, compared with its bare step."""
    agent = builder.make_agent(spec)
    replay, raw = experience(agent, cartpole.timesteps(8, spec.observations.shape))
    with contextlib.ExitStack() as stack:
        contestants = beside(stack, agent, replay, "resident batch", itertools.repeat(raw))
        measured = rates(contestants, seconds, rounds)
    ours = measured["resident batch"]
    name = f"Learner, {builder.name}, batch {builder.config.batch_size}, resident batch"
    return figure(section, name, "SGD steps/s", ours, beside_bare(ours, measured))


def beside(
    stack: contextlib.ExitStack, agent: Agent, replay: Any, name: str, batches: Iterator[RawBatch]
) -> dict[str, Contestant]:
    """Returns contestants: an agent's learner on `batches`, called `name`, and variants of the bare step.

    The bare steps use the first batch, which stays on the device; see `beside_bare`.
    """
    core, count, raw = agent.core, agent.sgd_steps_per_call, next(batches)
    learner = Learner(
        core, batches, replay.decode, jax.random.key(0), batch_size=replay.batch_size, steps_per_call=count
    )
    stack.callback(learner.close)
    contestants = {name: stepping(learner, count)}
    for fused in sorted({1, count}):
        sample = resident(replay, raw, fused)
        contestants[f"bare {fused}"] = bare(core, sample, fused, unroll=False)
        contestants[f"plain {fused}"] = bare(core, sample, fused, unroll=False, plain=True)
    return contestants


def stepping(learner: Learner, steps: int) -> Contestant:
    """Returns a contestant for the learner's calls, with `steps` SGD steps each."""

    def work() -> int:
        learner.step()
        return steps

    return Contestant(work, finish=lambda: jax.block_until_ready(learner.save()), prepare=learner.step)


def resident(replay: Replay, raw: RawBatch, count: int) -> Sample:
    """Returns `count` unpacked batches `[count, ...]` on the device."""
    size = replay.batch_size
    chosen = np.arange(count * size).reshape(count, size) % len(raw.rows)
    each = [Sample(replay.decode(raw.rows[rows]), np.ones(size, np.float32)) for rows in chosen]
    return jax.device_put(jax.tree.map(lambda *leaves: jnp.stack(leaves), *each))


def bare(core: LearnerCore, batches: Sample, count: int, *, unroll: bool, plain: bool = False) -> Contestant:
    """Returns a contestant that only runs the core's step, with `count` steps fused in a call.

    It is compiled like the learner's step, or with plain `jax.jit`.
    """

    def step(state: Any, sample: Sample) -> tuple[Any, Any]:
        state, metrics, _ = core.step(state, sample)
        return state, metrics["loss"]

    def update(state: Any, batches: Sample) -> tuple[Any, Any]:
        if not unroll and count > 1:
            return jax.lax.scan(step, state, batches)
        losses = []
        for i in range(count):
            state, loss = step(state, jax.tree.map(lambda x: x[i], batches))  # noqa: B023  called in this round
            losses.append(loss)
        return state, jnp.stack(losses)

    state = jax.jit(core.init)(jax.random.key(0))
    wide = compiling.is_wide(state, batches.weight.shape[1])
    compiled = jax.jit(update) if plain else compiling.jit(update, threaded=wide)

    def work() -> int:
        nonlocal state
        state, _ = compiled(state, batches)
        return count

    return Contestant(work, finish=lambda: jax.block_until_ready(state), prepare=work)
