"""Continuous actions in one unit: agents act in [-1, 1], and here their actions get the environment's bounds and shape.

Densities, entropies, noise and clipping then mean the same in every environment, and replay holds what the agent chose.
"""

from typing import Any

import dm_env
import numpy as np
from dm_env import specs

from acme_ext.envs.base import BatchedEnvironment
from acme_ext.types import Tree


class ActionScale:
    """Brings actions `[B, A]` in [-1, 1] to bounds and their shape `[B, ...]`; what lies beyond is clipped."""

    def __init__(self, minimum: np.ndarray, maximum: np.ndarray):
        self.minimum, self.maximum = minimum, maximum
        self.middle = minimum / 2 + maximum / 2
        self.half = maximum / 2 - minimum / 2

    def __call__(self, actions: Any) -> np.ndarray:
        # Rounding may step over a bound, so the result is clipped, not what comes in.
        scaled = self.middle + self.half * np.reshape(actions, (-1, *self.middle.shape))
        return np.clip(scaled, self.minimum, self.maximum, out=scaled)


class CanonicalActions(BatchedEnvironment):
    """An environment that takes actions `[B, A]` in [-1, 1], -1 for the minimum and 1 for the maximum of each value.

    What lies beyond is clipped.
    """

    def __init__(self, environment: BatchedEnvironment):
        bounds = bounds_of(environment.action_spec())
        if bounds is None:
            raise ValueError(f"only bounded continuous actions can be scaled, not {environment.action_spec()!r}.")
        self.environment, self.num_envs = environment, environment.num_envs
        self.environments = getattr(environment, "environments", (environment,) * self.num_envs)
        self._scale = ActionScale(*bounds)
        self._spec = specs.BoundedArray((self._scale.middle.size,), np.float32, -1.0, 1.0, "action")

    def reset(self) -> dm_env.TimeStep:
        return self.environment.reset()

    def step(self, actions: Any) -> dm_env.TimeStep:
        return self.environment.step(self._scale(actions))

    def observation_spec(self) -> Tree:
        return self.environment.observation_spec()

    def action_spec(self) -> specs.Array:
        return self._spec

    def reward_spec(self) -> specs.Array:
        return self.environment.reward_spec()

    def discount_spec(self) -> specs.BoundedArray:
        return self.environment.discount_spec()

    def close(self) -> None:
        self.environment.close()


def canonical_actions(environment: BatchedEnvironment) -> BatchedEnvironment:
    """Returns the environment with continuous actions in [-1, 1]; one with other actions as it is."""
    return environment if bounds_of(environment.action_spec()) is None else CanonicalActions(environment)


def own_actions(environment: BatchedEnvironment) -> specs.Array:
    """Returns the spec of an environment's actions in its own units, also of one that `canonical_actions` has made."""
    return (environment.environment if isinstance(environment, CanonicalActions) else environment).action_spec()


def bounds_of(spec: specs.Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the minimum and the maximum of a continuous action, float32 in its shape; None if the spec is not that of
    a continuous action with finite bounds, each minimum below its maximum.
    """
    if not isinstance(spec, specs.BoundedArray) or not np.issubdtype(spec.dtype, np.floating):
        return None
    with np.errstate(over="ignore"):
        low, high = (np.broadcast_to(x, spec.shape).astype(np.float32) for x in (spec.minimum, spec.maximum))
    if not low.size or not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        return None
    return low, high
