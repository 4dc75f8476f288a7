"""Jumanji's single-agent environments, `jax:jumanji/NAME` (Bonnet et al. 2024), as `FunctionalEnvironment`s."""

import functools
import inspect
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext.envs.backend import FunctionalBackend
from acme_ext.envs.base import StatedSpecs
from acme_ext.envs.functional import NEVER, FunctionalEnvironment, Moved, Timed, strong
from acme_ext.errors import UsageError
from acme_ext.specs import ACTION_MASK
from acme_ext.types import Array, Tree

_STEPS = "step_count"  # a field of observations
_DOWNLOADS = "Sokoban-"


class Jumanji(FunctionalBackend):
    """`jax:jumanji/NAME`; the version in the name is optional."""

    def names(self) -> Collection[str]:
        return _library().registered_environments()

    def canonical(self, name: str) -> str:
        versions = [each for each in self.names() if each.rpartition("-v")[0] == name]
        return versions[0] if len(versions) == 1 else name

    def functional(self, name: str, evaluation: bool, **options: Any) -> FunctionalEnvironment:
        return _made(name)


class JumanjiEnvironment(StatedSpecs, FunctionalEnvironment):
    """One of Jumanji's environments, with observations as a flat mapping.

    - An observation has a field for each of Jumanji's fields; nested fields have joined names (`agent_position_row`).
    - Jumanji's action mask is the field `action_mask`, which agents with discrete actions use. An action with several
      parts becomes one number in row-major order, such as `10 * row + column` for Minesweeper's 10x10 cells; its mask
      is flattened.
    - In Jumanji, time limits are terminations; here they truncate.

    Args:
        name: the environment's name in Jumanji.

    Raises:
        UsageError: the environment has several agents, its action is not a single choice, or it downloads data.
    """

    def __init__(self, name: str):
        if name.startswith(_DOWNLOADS):
            raise UsageError(f"'jax:jumanji/{name}' would download its levels when it is made: take another.")
        library = _library()
        stated: Any = library.make(name)
        self._limit, self._environment = NEVER, stated
        if "time_limit" in inspect.signature(type(stated).__init__).parameters:
            self._limit, self._environment = stated.time_limit, library.make(name, time_limit=NEVER)
        self._sizes, self._in_parts = _sizes(name, stated), bool(stated.action_spec.shape)
        self._action_spec = specs.DiscreteArray(int(np.prod(self._sizes)), np.int32, "action")
        seen = jax.eval_shape(self._environment.reset, jax.random.key(0))[1].observation
        self._observation_spec = {
            "_".join(path): _spec("_".join(path), leaf, functools.reduce(getattr, path, stated.observation_spec))
            for path, leaf in _leaves(seen)
        }

    def begin(self, key: Array) -> tuple[Tree, Tree]:
        state, timestep = self._environment.reset(key)
        return Timed(strong(state), jnp.int32(0)), self._look(timestep.observation)

    def move(self, key: Array, state: Tree, action: Array) -> Moved:
        parts = jnp.stack(jnp.unravel_index(action, self._sizes)) if self._in_parts else action
        inner, timestep = self._environment.step(state.inner, parts)
        time, ended, terminated = state.time + 1, timestep.last(), timestep.discount == 0
        return Moved(
            Timed(strong(inner), time),
            self._look(timestep.observation),
            timestep.reward,
            ended & terminated,
            (ended & ~terminated) | (time >= self._limit),
        )

    def _look(self, observation: Any) -> Tree:
        fields = {"_".join(path): leaf for path, leaf in _leaves(observation)}
        if ACTION_MASK in fields:
            fields[ACTION_MASK] = fields[ACTION_MASK].reshape(-1)
        return fields


_made = functools.cache(JumanjiEnvironment)  # the same object for the same name: its compiled functions are reused


def _sizes(name: str, environment: Any) -> tuple[int, ...]:
    """Returns the number of choices for each part of an action."""
    spec = environment.action_spec
    refused = f"'jax:jumanji/{name}' can't be played by one agent that takes one action of several: its"
    if environment.reward_spec.shape:
        raise UsageError(f"{refused} reward is an array {list(environment.reward_spec.shape)}, one for each agent.")
    if not hasattr(spec, "num_values"):
        raise UsageError(f"{refused} actions are {spec!r}.")
    sizes = tuple(int(size) for size in np.ravel(spec.num_values))
    mask = getattr(environment.observation_spec, ACTION_MASK, None)
    if mask is not None and tuple(mask.shape) != sizes:
        raise UsageError(
            f"{refused} mask of legal actions, {list(mask.shape)}, is one for each of {len(sizes)} actors, and not one "
            "for each combination of their actions."
        )
    return sizes


def _leaves(observation: Any) -> list[tuple[tuple[str, ...], Any]]:
    """Returns the arrays of a nested observation, each with the names that lead to it."""
    import jax

    flat = jax.tree_util.tree_flatten_with_path(observation)[0]
    return [(tuple(key.name for key in path), leaf) for path, leaf in flat]


def _spec(name: str, leaf: Any, stated: Any) -> specs.Array:
    """Returns the spec of a field: of the array `leaf`, with the bounds that Jumanji states."""
    shape = (int(np.prod(leaf.shape)),) if name == ACTION_MASK else leaf.shape
    low, high = (getattr(stated, end, None) for end in ("minimum", "maximum"))
    if low is None or name == _STEPS:  # the step count may exceed its stated bound by one
        return specs.Array(shape, leaf.dtype, name)
    if name == ACTION_MASK:
        return specs.BoundedArray(shape, leaf.dtype, False, True, name)
    return specs.BoundedArray(shape, leaf.dtype, np.asarray(low), np.asarray(high), name)


def _library() -> Any:
    import jumanji

    return jumanji
