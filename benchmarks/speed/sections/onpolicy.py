"""On-policy learning: environment steps per second of whole runs of PPO and IMPALA, and of their parts."""

import contextlib
from typing import NamedTuple

import jax
import numpy as np

from acme_ext import envs
from acme_ext.acting.variables import POLICY
from acme_ext.builders.impala import IMPALA
from acme_ext.builders.ppo import PPO
from acme_ext.types import EnvironmentSpec, Sample
from benchmarks.shared.measure import Contestant, Rate, one_after_the_other, rates
from benchmarks.shared.report import Figure, against, figure
from benchmarks.speed.sections.acting import bare_acting, bare_environment, bare_policy
from benchmarks.speed.sections.learner import bare
from benchmarks.speed.sections.training import whole_run


class Setting(NamedTuple):
    """A run to measure."""

    builder: PPO | IMPALA
    environment: str
    num_envs: int
    warm_up: int  # environment steps that aren't counted: start-up and compilation
    steps_per_second: int  # counted environment steps for each requested second


SETTINGS = (
    Setting(PPO(), "gym:CartPole-v1", 8, 10_000, 15_000),
    # Not the preset's deep network: on a CPU, its learner steps take seconds, which hides all other costs.
    Setting(IMPALA(torso="nature"), "envpool:Pong-v5", 8, 2_000, 700),
)

_GOAL = 0.8
_PARTS = ("environment", "policy", "learner", "acting")


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures whole runs in turns with the bare environments, policy and learner step.

    A part that runs alone doesn't share the processor's caches, so it is faster than in a run. Therefore the
    environment and the policy are also measured alternating.
    """
    rounds = max(1, rounds // 5)  # each round takes long here
    return [measure(setting, max(1, int(seconds * setting.steps_per_second)), rounds, seconds) for setting in SETTINGS]


def measure(setting: Setting, counted: int, rounds: int, seconds: float) -> Figure:
    """Measures `rounds` runs of `counted` environment steps, and after each run the parts, for a share of `seconds`."""
    name, num_envs = setting.environment, setting.num_envs
    builder = setting.builder.for_environment(name)  # with the same preset as the run
    found: dict[str, list[float]] = {part: [] for part in ("run", *_PARTS)}
    with contextlib.ExitStack() as stack:
        contestants = _contestants(stack, builder, name, num_envs)
        for _ in range(rounds):
            found["run"].append(whole_run(builder, name, num_envs, setting.warm_up, counted))
            for part, rate in rates(contestants, seconds / rounds, 1).items():
                found[part] += rate.rounds
    measured = {part: Rate(tuple(values)) for part, values in found.items()}
    ours = measured["run"]
    limit, apart = (
        one_after_the_other([measured[part] for part in parts])
        for parts in (("acting", "learner"), ("environment", "policy", "learner"))
    )
    return figure(
        "onpolicy",
        f"launch.run, {builder.name} on {name}, num_envs={num_envs}",
        "steps/s",
        ours,
        [
            against(ours, "environment and policy in turn, and the learner, bare", limit, _GOAL, source="computed"),
            against(ours, "the three below, each alone, added up", apart, source="computed"),
            against(ours, "environment, bare", measured["environment"]),
            against(ours, "compiled policy, bare", measured["policy"]),
            against(ours, "compiled learner step, bare", measured["learner"]),
        ],
    )


def _contestants(stack: contextlib.ExitStack, builder: PPO | IMPALA, name: str, num_envs: int) -> dict[str, Contestant]:
    environment = envs.make(name, num_envs=num_envs)
    stack.callback(environment.close)
    spec = envs.make_spec(environment)
    core = builder.make_agent(spec).core
    variables = core.variables(jax.jit(core.init)(jax.random.key(0)))
    return {
        "environment": bare_environment(environment),
        "acting": bare_acting(environment, builder, spec, variables[POLICY]),
        "policy": bare_policy(builder, spec, variables[POLICY], num_envs),
        "learner": _learner(builder, spec),
    }


def _learner(builder: PPO | IMPALA, spec: EnvironmentSpec) -> Contestant:
    """Returns a contestant for the compiled step on one resident batch; its units are environment steps."""
    agent = builder.make_agent(spec)
    replay, core = agent.replay, agent.core
    rows = np.zeros((replay.batch_size, replay.nbytes), np.uint8)
    sample = Sample(replay.decode(rows), np.ones(replay.batch_size, np.float32))
    step = bare(core, jax.device_put(jax.tree.map(lambda x: x[None], sample)), 1, unroll=True)
    steps = builder.config.batch_size * builder.config.replay.length
    return Contestant(lambda: steps * step.work(), step.finish, step.prepare)
