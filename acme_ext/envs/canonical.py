"""Scales continuous actions: agents act in [-1, 1], and their actions are converted to the environment's bounds.

So densities, entropies, noise and clipping have the same meaning in all environments. Replay stores the agent's actions
before the conversion.
"""

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.envs.base import BatchedEnvironment
from acme_ext.types import Tree


class ActionScale:
    """Converts actions `[B, A]` in [-1, 1] to the given bounds and their shape `[B, ...]`, with clipping."""

    def __init__(self, minimum: np.ndarray, maximum: np.ndarray):
        self.minimum, self.maximum = minimum, maximum
        self.middle = minimum / 2 + maximum / 2
        self.half = maximum / 2 - minimum / 2

    @classmethod
    def of(cls, spec: specs.Array) -> "ActionScale":
        """Returns the scale of an action spec's bounds; raises ValueError if `bounds_of` finds none."""
        bounds = bounds_of(spec)
        if bounds is None:
            raise ValueError(f"only bounded continuous actions can be scaled, not {spec!r}.")
        return cls(*bounds)

    @property
    def spec(self) -> specs.BoundedArray:
        """The spec of the agent's actions, `[A]` in [-1, 1]."""
        return specs.BoundedArray((self.middle.size,), np.float32, -1.0, 1.0, "action")

    def __call__(self, actions: Any) -> np.ndarray:
        # Clip the result and not the input, because rounding could exceed a bound.
        scaled = self.middle + self.half * np.reshape(actions, (-1, *self.middle.shape))
        return np.clip(scaled, self.minimum, self.maximum, out=scaled)


class CanonicalActions(BatchedEnvironment):
    """Wraps an environment to take actions `[B, A]` in [-1, 1], -1 for the minimum and 1 for the maximum of each value.

    Actions outside this range are clipped.
    """

    def __init__(self, environment: BatchedEnvironment):
        self.environment, self.num_envs = environment, environment.num_envs
        self.environments = getattr(environment, "environments", (environment,) * self.num_envs)
        self._scale = ActionScale.of(environment.action_spec())

    def reset(self) -> dm_env.TimeStep:
        return self.environment.reset()

    def step(self, actions: Any) -> dm_env.TimeStep:
        return self.environment.step(self._scale(actions))

    def observation_spec(self) -> Tree:
        return self.environment.observation_spec()

    def action_spec(self) -> specs.Array:
        return self._scale.spec

    def reward_spec(self) -> specs.Array:
        return self.environment.reward_spec()

    def discount_spec(self) -> specs.BoundedArray:
        return self.environment.discount_spec()

    def close(self) -> None:
        self.environment.close()


def canonical_actions(environment: BatchedEnvironment) -> BatchedEnvironment:
    """Returns the environment with continuous actions scaled to [-1, 1]; unchanged if actions are not continuous."""
    return environment if bounds_of(environment.action_spec()) is None else CanonicalActions(environment)


def own_actions(environment: BatchedEnvironment) -> specs.Array:
    """Returns the spec of an environment's actions in its original units, even after `canonical_actions`."""
    return (environment.environment if isinstance(environment, CanonicalActions) else environment).action_spec()


def bounds_of(spec: specs.Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the minimum and the maximum of a continuous action, float32 in its shape.

    Returns None if the action is not continuous, or if a bound is not finite, or a minimum not below its maximum.
    """
    if not isinstance(spec, specs.BoundedArray) or not np.issubdtype(spec.dtype, np.floating):
        return None
    with np.errstate(over="ignore"):
        low, high = (np.broadcast_to(x, spec.shape).astype(np.float32) for x in (spec.minimum, spec.maximum))
    if not low.size or not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        return None
    return low, high
