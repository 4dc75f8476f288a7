"""Navix's grid worlds, `jax:navix/NAME` (Pignatelli et al. 2024), which are MiniGrid's in JAX, as
`FunctionalEnvironment`s.
"""

import functools
from collections.abc import Collection, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext.envs.backend import FunctionalBackend, Limit
from acme_ext.envs.base import StatedSpecs
from acme_ext.envs.functional import FunctionalEnvironment, Moved, strong
from acme_ext.types import Array, Tree
from acme_ext.utils.availability import hidden_tensorflow

_PREFIX, _SUFFIX = "Navix-", "-v0"
_CHANNELS = (11, 6, 4)  # kinds of objects, colours, and states: a door's 3, or the agent's 4 directions

VIEWS = {"grid": "symbolic_first_person", "picture": "rgb_first_person", "whole": "symbolic"}
"""Navix's functions of observation by the names that `minigrid:` has for its views."""


class Navix(FunctionalBackend):
    """`jax:navix/NAME`, where `DoorKey-8x8` stands for `Navix-DoorKey-8x8-v0`."""

    types = {"view": Literal["grid", "picture", "whole"], "max_steps": Limit}

    def names(self) -> Collection[str]:
        return [self.canonical(name) for name in library().registry()]

    def canonical(self, name: str) -> str:
        return name.removeprefix(_PREFIX).removesuffix(_SUFFIX)

    def options(self, name: str) -> Mapping[str, Any]:
        """Returns the options: `view` is one of `VIEWS`; with `fixed_map`, every episode has the map of seed 0; and
        `max_steps` is the time limit, which truncates, with None for Navix's own limit.
        """
        return {"view": "grid", "fixed_map": False, "max_steps": None}

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment:
        view, fixed, limit = ({**self.options(name), **options}[key] for key in ("view", "fixed_map", "max_steps"))
        return _made(f"{_PREFIX}{name}{_SUFFIX}", view, fixed, limit)


class NavixEnvironment(StatedSpecs, FunctionalEnvironment):
    """One of Navix's environments.

    Args:
        name: the environment's name in Navix.
        view: `grid`, the agent's view, one-hot bool `[7, 7, 21]`; `picture`, the same view as an image, uint8 `[56,
            56, 3]`; or `whole`, the whole map, one-hot bool `[H, W, 21]`.
        fixed_map: whether every episode starts in the same way, with seed 0.
        limit: steps after which an episode is truncated; None for Navix's own limit.
    """

    def __init__(self, name: str, view: str, fixed_map: bool, limit: int | None):
        navix = library()
        self._fixed, self._one_hot, self._cache = fixed_map, view != "picture", None
        if self._one_hot:  # instead of the map's image, which would be most of the state
            self._cache = navix.rendering.cache.RenderingCache(patches=np.zeros((0,), np.uint8))
        self._environment = navix.make(
            name,
            observation_fn=getattr(navix.observations, VIEWS[view]),
            **({} if limit is None else {"max_steps": limit}),
        )
        seen = jax.eval_shape(self.begin, jax.random.key(0))[1]
        self._observation_spec = specs.BoundedArray(
            seen.shape, seen.dtype, 0, 1 if self._one_hot else 255, "observation"
        )
        self._action_spec = specs.DiscreteArray(len(self._environment.action_set), np.int32, "action")

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        if self._fixed:
            key = jax.random.key(0)
        timestep = strong(self._environment.reset(key, self._cache))
        return timestep, self._look(timestep.observation)

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        # With this step type, Navix doesn't reset automatically, and XLA removes the reset.
        going = state.replace(step_type=jnp.int32(0))
        timestep = strong(self._environment.step(going, action))
        return Moved(
            timestep,
            self._look(timestep.observation),
            timestep.reward,
            timestep.is_termination(),
            timestep.is_truncation(),
        )

    def _look(self, observation: Array) -> Array:
        if not self._one_hot:
            return observation
        codes = [jax.nn.one_hot(observation[..., i], size, dtype=bool) for i, size in enumerate(_CHANNELS)]
        return jnp.concatenate(codes, axis=-1)


_made = functools.cache(NavixEnvironment)  # the same object for the same arguments: compiled functions are reused


def library() -> Any:
    """Returns the module navix, which imports TensorFlow Probability through Distrax."""
    with hidden_tensorflow():
        import navix
    return navix
