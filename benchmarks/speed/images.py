"""The specs of an Atari game, and random experience with images of its size."""

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.interfaces import EnvironmentSpec
from benchmarks.speed import cartpole

SPEC = EnvironmentSpec(
    observations=specs.BoundedArray((84, 84, 4), np.uint8, 0, 255, "observation"),
    actions=specs.DiscreteArray(6, np.int32, "action"),
    rewards=cartpole.SPEC.rewards,
    discounts=cartpole.SPEC.discounts,
)


def timesteps(num_envs: int) -> list[dm_env.TimeStep]:
    """Returns timesteps with images similar to a game's: a plain background and some moving objects."""
    rng = np.random.default_rng(0)
    made = []
    for timestep in cartpole.timesteps(num_envs):
        images = np.full((num_envs, 84, 84, 4), 87, np.uint8)
        for image in images:
            for row, column in rng.integers(76, size=(6, 2)):
                image[row : row + 8, column : column + 8] = rng.integers(256, size=4, dtype=np.uint8)
        made.append(timestep._replace(observation=images))
    return made
