"""Learning of continuous control: SGD steps per second of each agent's learner and of its bare step."""

import acme.specs
import numpy as np
from dm_env import specs

from acme_ext import builders
from acme_ext.builders.base import Builder
from acme_ext.errors import UsageError
from benchmarks.shared.report import Figure
from benchmarks.speed import cartpole
from benchmarks.speed.sections.learner import measure_resident

SPEC = acme.specs.EnvironmentSpec(
    observations=specs.Array((24,), np.float32, "observation"),
    actions=specs.BoundedArray((6,), np.float32, -1.0, 1.0, "action"),
    rewards=cartpole.SPEC.rewards,
    discounts=cartpole.SPEC.discounts,
)
"""The spec's sizes are those of the control suite's walker."""


def run(seconds: float, rounds: int) -> list[Figure]:
    """Measures `Learner.step` of every agent with continuous actions, with default configs and a resident batch.

    The reference is the fastest variant of the bare compiled step with the same loss and batch, which is the limit.
    """
    return [measure_resident("continuous", builder, SPEC, seconds, rounds) for builder in agents()]


def agents() -> list[Builder]:
    """Returns the agents that support `SPEC`'s actions and learn from transitions, with their default configs."""
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
