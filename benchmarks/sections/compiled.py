"""Compiled runs: environment steps per second of PPO and DQN on CartPole, without the time to compile."""

import contextlib
import dataclasses
import tempfile

import jax
import numpy as np

from acme_ext import builders
from acme_ext.builders.base import Builder
from acme_ext.envs.jax_games import functional
from acme_ext.launch import Checkpoints, Evaluation, Experiment
from acme_ext.launch.compiled import loops, runner
from acme_ext.utils import compiling
from benchmarks import compiled_loops
from benchmarks.measure import Contestant, rates
from benchmarks.report import Figure, against, figure
from benchmarks.sections.acting import repeated
from benchmarks.sections.training import opened_run

BATCHES = (8, 128)
_BARE_GOAL = 0.9
_SINGLE_GOALS = {"ppo": 20.0, "dqn": 10.0}


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures compiled loops, compared with bare loops of the same work and with runs in one process."""
    return [measure(name, num_envs, seconds, rounds) for name in _SINGLE_GOALS for num_envs in BATCHES]


def measure(name: str, num_envs: int, seconds: float, rounds: int) -> Figure:
    """Measures one agent with `num_envs` environments."""
    with contextlib.ExitStack() as stack:
        bare = getattr(compiled_loops, name)(num_envs)
        contestants = {
            "ours": ours(name, num_envs),
            "bare": Contestant(bare, prepare=bare),
            "single": _single(stack, name, num_envs),
        }
        measured = rates(contestants, seconds, rounds)
    return figure(
        "compiled",
        f"launch.run_compiled, {name} on jax:CartPole-v1, num_envs={num_envs}",
        "steps/s",
        measured["ours"],
        [
            against(measured["ours"], "a bare compiled loop of the same work", measured["bare"], _BARE_GOAL),
            against(measured["ours"], "one process, gym:CartPole-v1", measured["single"], _SINGLE_GOALS[name]),
        ],
    )


def ours(name: str, num_envs: int) -> Contestant:
    """Returns a contestant for calls of the runner's loop."""
    experiment = _experiment(name, "jax:CartPole-v1", num_envs, "none")
    agent = dataclasses.replace(experiment.make_agent(experiment.make_spec()), sgd_steps_per_call=1)
    loop = loops.Loop(agent, functional("CartPole-v1"), num_envs, name)
    world = jax.jit(loop.init)(*runner.keys_of(experiment))
    advance = compiling.jit(loop.advance, donate_argnums=0)
    length = compiled_loops.BATCHES_A_CALL if name == "ppo" else compiled_loops.TICKS_A_CALL

    def work() -> int:
        nonlocal world
        before = int(world.place.steps)
        world, _ = advance(world, np.int32(2**31 - 1), np.int32(length))
        return int(world.place.steps) - before

    return Contestant(work, prepare=work)


def _single(stack: contextlib.ExitStack, name: str, num_envs: int) -> Contestant:
    """Returns a contestant for a run in one process."""
    experiment = _experiment(name, "gym:CartPole-v1", num_envs, stack.enter_context(tempfile.TemporaryDirectory()))
    # For PPO, this is one batch.
    work = repeated(opened_run(stack, experiment), times=128 if name == "ppo" else 16).work
    return Contestant(work, prepare=work)


def _experiment(name: str, environment: str, num_envs: int, run_dir: str) -> Experiment:
    builder: Builder = builders.load(name)()
    if name == "ppo":  # a batch has one sequence of each environment
        builder = builder.replace(config=dataclasses.replace(builder.config, batch_size=num_envs))
    return Experiment(
        builder,
        environment,
        10**9,
        num_envs=num_envs,
        evaluation=Evaluation(every=0),
        checkpoints=Checkpoints(every_s=1e9),
        run_dir=run_dir,
    )
