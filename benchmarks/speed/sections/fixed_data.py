"""Fixed data: batches and SGD steps per second from memory, and steps per second of a run that records."""

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np

from acme_ext import launch
from acme_ext.builders.base import Agent, Builder
from acme_ext.builders.bc import BC
from acme_ext.builders.discrete_cql import DiscreteCQL
from acme_ext.builders.dqn import DQN
from acme_ext.builders.iql import IQL
from acme_ext.builders.r2d2 import R2D2
from acme_ext.data.format import SHARD_STEPS, Episode, FolderWriter
from acme_ext.replay import fixed
from acme_ext.replay.fixed import FixedBatches
from acme_ext.types import EnvironmentSpec
from benchmarks.shared.measure import Contestant, one_after_the_other, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed import cartpole
from benchmarks.speed.sections import continuous
from benchmarks.speed.sections.acting import repeated
from benchmarks.speed.sections.learner import beside, beside_bare
from benchmarks.speed.sections.training import opened_run

_GATHER_GOAL, _LEARNER_GOAL, _RECORDED_GOAL = 0.7, 0.9, 0.95
_ROWS = 500_000
_BYTES = 2**29  # maximum bytes of the rows; there are fewer rows if they don't fit
_LENGTH = 250  # steps per episode
_R2D2 = R2D2(dataclasses.replace(R2D2().config, replay=dataclasses.replace(R2D2().config.replay, prioritized=False)))
_GATHERED = ((IQL(), continuous.SPEC), (_R2D2, cartpole.SPEC))
_LEARNERS = ((IQL(), continuous.SPEC), (BC(), continuous.SPEC), (DiscreteCQL(), cartpole.SPEC))


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures batches, learners and recorded runs, compared with a bare gather, bare steps and plain runs."""
    return [
        *(gather(builder, spec, seconds, rounds) for builder, spec in _GATHERED),
        *(learning(builder, spec, seconds, rounds) for builder, spec in _LEARNERS),
        recording(DQN(), seconds, rounds),
    ]


def gather(builder: Builder, spec: EnvironmentSpec, seconds: float, rounds: int, rows: int = _ROWS) -> Figure:
    """Measures the batches of learner calls, compared with NumPy's indexing of rows sampled in the same way."""
    agent = builder.make_agent(spec)
    data, size, count = _rows(agent, spec, rows), agent.replay.batch_size, agent.sgd_steps_per_call
    batches, rng = FixedBatches(data, size * count, 0), np.random.default_rng(0)

    def ours() -> int:
        next(batches)
        return count

    def bare() -> int:
        data[rng.integers(0, len(data), size * count)]
        return count

    measured = rates({"ours": repeated(ours), "bare": repeated(bare)}, seconds, rounds)
    name = f"batches, {builder.name}, {size} {agent.replay.item}s of {data.shape[1]:,} bytes, {count} a call"
    references = [against(measured["ours"], "a bare NumPy gather", measured["bare"], _GATHER_GOAL)]
    return figure("fixed_data", name, "batches/s", measured["ours"], references)


def learning(builder: Builder, spec: EnvironmentSpec, seconds: float, rounds: int, rows: int = _ROWS) -> Figure:
    """Measures an agent's learner on fixed data, compared with its bare compiled step on a resident batch."""
    agent = builder.make_agent(spec)
    size = agent.replay.batch_size * agent.sgd_steps_per_call
    batches: Iterator = FixedBatches(_rows(agent, spec, rows), size, 0)
    with contextlib.ExitStack() as stack:
        measured = rates(beside(stack, agent, agent.replay, "fixed data", batches), seconds, rounds)
    ours = measured["fixed data"]
    name = f"Learner, {builder.name}, batch {agent.replay.batch_size}, fixed data"
    return figure("fixed_data", name, "SGD steps/s", ours, beside_bare(ours, measured, _LEARNER_GOAL))


def recording(builder: Builder, seconds: float, rounds: int, num_envs: int = 8) -> Figure:
    """Measures a run in one process that records, including writing its shards, compared with a run that doesn't."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def stepped(name: str, record: str | None) -> Contestant:
            experiment = launch.Experiment(
                builder,
                "gym:CartPole-v1",
                steps=10**9,
                num_envs=num_envs,
                evaluation=launch.Evaluation(every=0),
                checkpoints=launch.Checkpoints(every_s=1e9, replay=False),
                run_dir=folder / name,
            )
            return repeated(opened_run(stack, experiment, record))

        contestants = {
            "recorded": stepped("recorded", str(folder / "data")),
            "unrecorded": stepped("unrecorded", None),
            "shards": _shards(folder / "shards"),
        }
        measured = rates(contestants, seconds, rounds)
    ours = one_after_the_other([measured["recorded"], measured["shards"]])
    name = f"a run, {builder.name} on CartPole, num_envs={num_envs}, recorded"
    references = [
        against(ours, "the same, not recorded", measured["unrecorded"], _RECORDED_GOAL, source="computed"),
        against(ours, "the same, shards not written", measured["recorded"]),
    ]
    return figure("fixed_data", name, "steps/s", ours, references)


def _rows(agent: Agent, spec: EnvironmentSpec, count: int) -> np.ndarray:
    """Returns `count` of an agent's rows, from a few repeated episodes."""
    rows = fixed.rows_of(agent.replay, [_episode(spec, seed) for seed in range(8)], agent.policy.init_state(1))
    count = min(count, max(1, _BYTES // rows.shape[1]))
    return rows[np.arange(count) % len(rows)]


def _episode(spec: EnvironmentSpec, seed: int) -> Episode:
    rng, rows = np.random.default_rng(seed), _LENGTH + 1
    action = spec.actions
    shape = (rows, *action.shape)
    step_type = np.ones(rows, np.uint8)
    step_type[0], step_type[-1] = 0, 2
    return Episode(
        observation=rng.standard_normal((rows, *spec.observations.shape)).astype(np.float32),
        action=(rng.integers(2, size=shape) if action.dtype.kind == "i" else rng.uniform(-1, 1, shape)).astype(
            action.dtype
        ),
        reward=(step_type != 0).astype(np.float32),
        discount=(step_type != 2).astype(np.float32),
        step_type=step_type,
    )


def _shards(folder: pathlib.Path) -> Contestant:
    """Returns a contestant that writes shards of CartPole; its units are environment steps."""
    writer = FolderWriter(folder, cartpole.SPEC, {})
    episodes = [_episode(cartpole.SPEC, seed) for seed in range(SHARD_STEPS // _LENGTH)]

    def work() -> int:
        for episode in episodes:
            writer.add(episode)
        return SHARD_STEPS

    return Contestant(work)
