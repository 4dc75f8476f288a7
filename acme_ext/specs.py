"""Reading environment specs."""

from typing import NamedTuple

import dm_env.specs
import numpy as np
import tree

from acme_ext.errors import UsageError
from acme_ext.types import EnvironmentSpec, Tree


def zeros(spec: Tree, batch: int) -> Tree:
    """Returns a nest of zeros `[batch, ...]` of the specs' shapes and dtypes."""
    return tree.map_structure(lambda leaf: np.zeros((batch, *leaf.shape), leaf.dtype), spec)


def num_actions(spec: EnvironmentSpec, agent: str) -> int:
    """Returns the number of discrete actions; raises UsageError, naming the agent, if the actions are not discrete."""
    actions = spec.actions
    if not isinstance(actions, dm_env.specs.DiscreteArray):
        raise UsageError(
            f"{agent} needs an environment with one discrete action; this one's actions are "
            f"{type(actions).__name__} of shape {getattr(actions, 'shape', '?')}."
        )
    return int(actions.num_values)


class Bounds(NamedTuple):
    """Where the values of a continuous action lie, in its shape; float32, finite, each minimum below its maximum."""

    minimum: np.ndarray
    maximum: np.ndarray

    @property
    def size(self) -> int:
        """The number of values that make an action."""
        return self.minimum.size


def action_bounds(spec: EnvironmentSpec, agent: str) -> Bounds:
    """Returns the bounds of a continuous action; raises UsageError, naming the agent, if the actions are discrete,
    several, or not bounded on both sides.
    """
    actions = spec.actions
    needed = f"{agent} needs an environment with one continuous action that is bounded; this one's"
    if not isinstance(actions, dm_env.specs.Array) or not np.issubdtype(actions.dtype, np.floating):
        what = f"{type(actions).__name__} of shape {getattr(actions, 'shape', '?')}"
        raise UsageError(f"{needed} actions are {what} and type {getattr(actions, 'dtype', '?')}.")
    low, high = (getattr(actions, end, np.float32(np.nan)) for end in ("minimum", "maximum"))
    with np.errstate(over="ignore"):
        bounds = Bounds(*(np.broadcast_to(x, actions.shape).astype(np.float32) for x in (low, high)))
    if not np.all(np.isfinite(bounds.minimum) & np.isfinite(bounds.maximum)):
        raise UsageError(f"{needed} action has no finite bounds: {actions!r}.")
    if not bounds.size or not np.all(bounds.minimum < bounds.maximum):
        raise UsageError(f"{needed} action has nothing between its bounds: {actions!r}.")
    return bounds
