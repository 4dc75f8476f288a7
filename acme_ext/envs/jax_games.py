"""Environments written in JAX, `jax:NAME`, from Gymnax and Pgx, as `FunctionalEnvironment`s.

They run in compiled programs (`launch.Compiled`), and with `functional.FunctionalBatch` in all other runs.
"""

import functools
from collections.abc import Collection
from typing import Any

import numpy as np
from dm_env import specs

from acme_ext.envs.backend import FunctionalBackend
from acme_ext.envs.functional import NEVER, FunctionalEnvironment, Moved, Timed, strong
from acme_ext.types import Array, Tree

GYMNAX = {
    "CartPole-v1": "CartPole-v1",
    "Acrobot-v1": "Acrobot-v1",
    "MountainCar-v0": "MountainCar-v0",
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Pendulum-v1": "Pendulum-v1",
    "catch": "Catch-bsuite",
    "memory": "MemoryChain-bsuite",
}
"""Gymnax's environments by our names."""

PGX = {f"minatar-{game}": game for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")}
"""Pgx's MinAtar games by our names."""


class Jax(FunctionalBackend):
    """`jax:NAME`."""

    def names(self) -> Collection[str]:
        return [*GYMNAX, *PGX]

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment:
        return functional(name)


@functools.cache
def functional(name: str) -> FunctionalEnvironment:
    """Returns the environment `jax:NAME` as pure functions."""
    return GymnaxEnvironment(GYMNAX[name]) if name in GYMNAX else MinAtarGame(PGX[name])


class GymnaxEnvironment(FunctionalEnvironment):
    """A Gymnax environment whose time limit truncates; in Gymnax itself, the limit is a termination.

    Args:
        name: the environment's name in Gymnax.
    """

    def __init__(self, name: str):
        import gymnax
        import jax

        made: Any = gymnax.make(name)
        self._environment, params = made
        self._limit = params.max_steps_in_episode
        self._params = params.replace(max_steps_in_episode=NEVER)
        space: Any = self._environment.observation_space(params)
        seen = jax.eval_shape(self.begin, jax.random.key(0))[1]
        self._observation_spec = _array_spec(space, seen.shape, seen.dtype, "observation")
        actions: Any = self._environment.action_space(params)
        if hasattr(actions, "n"):
            self._action_spec: specs.Array = specs.DiscreteArray(int(actions.n), np.int32, "action")
        else:
            self._action_spec = _array_spec(actions, actions.shape, np.float32, "action")

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        import jax.numpy as jnp

        observation, state = self._environment.reset_env(key, self._params)
        return Timed(strong(state), jnp.int32(0)), observation

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        moved = self._environment.step_env(key, state.inner, action, self._params)
        (observation, inner, reward, terminated, _), time = moved, state.time + 1
        return Moved(Timed(strong(inner), time), observation, reward, terminated, time >= self._limit)

    def observation_spec(self) -> Tree:
        return self._observation_spec

    def action_spec(self) -> specs.Array:
        return self._action_spec


class MinAtarGame(FunctionalEnvironment):
    """One of Pgx's MinAtar games, with the sticky actions (Young and Tian 2019) and the time limit of `minatar:`.

    It has only the actions that have an effect in the game, as with `minimal_action_set` of `minatar:`.

    Args:
        game: the game's name.
    """

    limit = 10_000  # steps

    def __init__(self, game: str):
        import jax
        import pgx

        self._environment: Any = pgx.make(f"minatar-{game}")  # type: ignore[arg-type]
        state = jax.eval_shape(self._environment.init, jax.random.key(0))
        self._observation_spec = specs.BoundedArray(state.observation.shape, np.bool_, False, True, "observation")
        self._action_spec = specs.DiscreteArray(state.legal_action_mask.shape[0], np.int32, "action")

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        import jax.numpy as jnp

        state = self._environment.init(key)
        return Timed(state, jnp.int32(0)), state.observation

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        inner, time = self._environment.step(state.inner, action, key), state.time + 1
        return Moved(Timed(inner, time), inner.observation, inner.rewards[0], inner.terminated, time >= self.limit)

    def observation_spec(self) -> Tree:
        return self._observation_spec

    def action_spec(self) -> specs.Array:
        return self._action_spec


def _array_spec(space: Any, shape: tuple[int, ...], dtype: Any, name: str) -> specs.Array:
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    largest = np.finfo(np.float32).max
    if np.all(np.abs(low) < largest) and np.all(np.abs(high) < largest):
        return specs.BoundedArray(shape, dtype, np.float32(low), np.float32(high), name)
    return specs.Array(shape, dtype, name)
