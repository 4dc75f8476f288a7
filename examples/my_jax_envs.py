"""A custom environment written in JAX, for compiled runs and all other kinds of runs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext.envs.functional import FunctionalEnvironment, Moved


@dataclasses.dataclass(frozen=True)
class Corridor(FunctionalEnvironment):
    length: int = 6

    def begin(self, key):
        place = jax.random.randint(key, (), 0, self.length - 1)
        return (place, jnp.int32(0)), jax.nn.one_hot(place, self.length)

    def move(self, key, state, action):
        place, time = jnp.clip(state[0] + 2 * action - 1, 0, self.length - 1), state[1] + 1
        there = place == self.length - 1
        seen, reward = jax.nn.one_hot(place, self.length), jnp.where(there, 1.0, -0.1)
        return Moved((place, time), seen, reward, terminated=there, truncated=time >= 20)

    def observation_spec(self):
        return specs.BoundedArray((self.length,), np.float32, 0, 1, "observation")

    def action_spec(self):
        return specs.DiscreteArray(2, np.int32, "action")


def make_corridor(seed, evaluation, length=6):
    return Corridor(length)
