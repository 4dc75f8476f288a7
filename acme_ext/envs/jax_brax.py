"""Brax's robots, `jax:brax/NAME` (Freeman et al. 2021), as `FunctionalEnvironment`s with continuous actions."""

import contextlib
import functools
import io
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext.config.types import PositiveInt
from acme_ext.envs.backend import FunctionalBackend
from acme_ext.envs.base import StatedSpecs
from acme_ext.envs.functional import FunctionalEnvironment, Moved, Timed, strong
from acme_ext.errors import UsageError
from acme_ext.types import Array, Tree

NAMES = (
    "ant",
    "halfcheetah",
    "hopper",
    "humanoid",
    "humanoidstandup",
    "inverted_double_pendulum",
    "inverted_pendulum",
    "pusher",
    "reacher",
    "swimmer",
    "walker2d",
)

PHYSICS = ("generalized", "spring", "positional", "mjx")
"""Brax's pipelines; `generalized` is the default of its environments."""


class Brax(FunctionalBackend):
    """`jax:brax/NAME`."""

    types = {"max_steps": PositiveInt}

    def names(self) -> Collection[str]:
        return NAMES

    def options(self, name: str) -> Mapping[str, Any]:
        """Returns the options: `physics` is one of `PHYSICS`, and `max_steps` the time limit, which truncates."""
        return {"physics": PHYSICS[0], "max_steps": 1_000}

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment:
        physics, limit = ({**self.options(name), **options}[key] for key in ("physics", "max_steps"))
        known = PHYSICS[:1] if name == "swimmer" else PHYSICS
        if physics not in known:
            raise UsageError(f"the physics of 'jax:brax/{name}' must be one of {', '.join(known)}, not {physics!r}.")
        return _made(name, physics, limit)


class BraxEnvironment(StatedSpecs, FunctionalEnvironment):
    """One of Brax's environments, without its wrappers.

    Args:
        name: the environment's name in Brax.
        physics: the physics pipeline, one of `PHYSICS`.
        limit: steps after which an episode is truncated.
    """

    def __init__(self, name: str, physics: str, limit: int):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Brax System", category=UserWarning)  # that it is unmaintained
            self._environment: Any = _library().get_environment(name, backend=physics)
        self._limit = limit
        seen = jax.eval_shape(self.begin, jax.random.key(0))[1]
        self._observation_spec = specs.Array(seen.shape, np.float32, "observation")
        # Brax's environments take actions in [-1, 1], whatever the actuators' ranges.
        self._action_spec = specs.BoundedArray((self._environment.action_size,), np.float32, -1.0, 1.0, "action")

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        state = strong(self._environment.reset(key))
        return Timed(state, jnp.int32(0)), state.obs

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        inner, time = strong(self._environment.step(state.inner, action)), state.time + 1
        return Moved(Timed(inner, time), inner.obs, inner.reward, inner.done > 0, time >= self._limit)


_made = functools.cache(BraxEnvironment)  # the same object for the same arguments: its compiled functions are reused


def _library() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # MuJoCo prints which of its optional parts are missing
        from brax import envs
    return envs
