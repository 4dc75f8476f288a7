"""The interface of batched environments: dm_env with a leading axis."""

import abc
from math import isfinite
from typing import Any

import dm_env
import numpy as np
import tree
from dm_env import specs

from acme_ext.envs.specs import DISCOUNT, REWARD, check_values
from acme_ext.types import Tree


class SingleEnvironment(dm_env.Environment):
    """One environment: the interface of dm_env, with type annotations and this package's reward and discount specs."""

    @abc.abstractmethod
    def observation_spec(self) -> Any: ...

    @abc.abstractmethod
    def action_spec(self) -> Any: ...

    def reward_spec(self) -> specs.Array:
        return REWARD

    def discount_spec(self) -> specs.BoundedArray:
        return DISCOUNT


class StatedSpecs:
    """A base class, before the interface, of environments that have their specs as attributes."""

    _observation_spec: Tree
    _action_spec: Any

    def observation_spec(self) -> Any:
        return self._observation_spec

    def action_spec(self) -> Any:
        return self._action_spec


class LimitedEnvironment(StatedSpecs, SingleEnvironment):
    """One environment with a time limit, which truncates.

    Args:
        max_steps: steps after which an episode is truncated.
    """

    def __init__(self, max_steps: int):
        self._limit = max_steps
        self._length, self._ended = 0, True

    @abc.abstractmethod
    def _begin(self) -> None:
        """Starts an episode."""

    @abc.abstractmethod
    def _move(self, action: int) -> tuple[Any, bool]:
        """Takes an action; returns the reward and whether it terminates the episode."""

    @abc.abstractmethod
    def _observe(self) -> np.ndarray:
        """Returns the observation of the current state."""

    def reset(self) -> dm_env.TimeStep:
        self._length, self._ended = 0, False
        self._begin()
        return dm_env.restart(self._observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        if self._ended:
            return self.reset()
        reward, terminal = self._move(int(action))
        self._length += 1
        self._ended = terminal or self._length == self._limit
        kind = dm_env.StepType.LAST if self._ended else dm_env.StepType.MID
        return dm_env.TimeStep(kind, np.float32(reward), np.float32(not terminal), self._observe())


class BatchedEnvironment(abc.ABC):
    """B environments that are stepped in parallel. `reset` and `step` return one `dm_env.TimeStep` of arrays:

    - `step_type` uint8 [B], values of `dm_env.StepType`;
    - `reward` float32 [B], 0 at FIRST;
    - `discount` float32 [B], in [0, 1]: 0 if no return follows (a termination, or a lost life in Atari), usually 1
      otherwise. A row that is LAST with a discount above 0 was truncated, so its value is bootstrapped;
    - `observation`, the nest of `observation_spec` with [B, ...] arrays.

    Floats and integers are in single precision (float32, int32) or smaller. The next `reset` or `step` may overwrite
    the arrays; copy them to keep them longer.
    """

    num_envs: int
    name: str = "the environment"
    """The environment's name in messages."""

    @abc.abstractmethod
    def reset(self) -> dm_env.TimeStep:
        """Starts a new episode in every row (called once, before the first `step`); every row is FIRST."""

    @abc.abstractmethod
    def step(self, actions: Any) -> dm_env.TimeStep:
        """Steps every row with its action [B, ...]; rows that were LAST are reset instead.

        As in dm_env, a row that is reset ignores its action and returns FIRST.
        """

    @abc.abstractmethod
    def observation_spec(self) -> Tree:
        """Specs of one environment's observation, unbatched."""

    @abc.abstractmethod
    def action_spec(self) -> specs.Array:
        """Spec of one environment's action, unbatched."""

    def reward_spec(self) -> specs.Array:
        """Spec of one environment's reward, unbatched."""
        return REWARD

    def discount_spec(self) -> specs.BoundedArray:
        """Spec of one environment's discount, unbatched."""
        return DISCOUNT

    def checked(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        """Returns a time step unchanged; raises RunError, naming environment and field, if a number is not finite."""
        _, reward, _, observation = timestep
        squares = reward.dot(reward)  # a sum of squares is finite if all numbers are
        for leaf in (observation,) if isinstance(observation, np.ndarray) else tree.flatten(observation):
            if leaf.dtype.kind == "f":
                numbers = leaf.ravel("K")
                squares += numbers.dot(numbers)
        if not isfinite(squares):
            check_values(self.name, self.observation_spec(), timestep)
        return timestep

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the environments; the batch can't be used afterwards, but `close` may be called again."""

    def __enter__(self) -> "BatchedEnvironment":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
