"""Functions that read environment specs."""

from collections.abc import Mapping

import dm_env.specs
import numpy as np
import tree

from acme_ext.errors import UsageError
from acme_ext.types import EnvironmentSpec, Tree

ACTION_MASK = "action_mask"
"""The field of an observation with the mask of legal actions; see `ops.masking`."""
PLAYER = "player"
"""The field with the player whose turn it is."""
STATE = "game_state"
"""The field with the full state of a game, as bytes, for searches with its rules; its spec has the game's name."""
RULES = (ACTION_MASK, PLAYER, STATE)
"""The fields that networks don't receive, if the observation has a mask of legal actions."""
PICTURE_SIDE = 32
"""Side length, in pixels, from which an observation counts as a picture instead of a grid."""


class StackedFrames(dm_env.specs.BoundedArray):
    """Spec of an observation `[H, W, K]` that is the newest K frames of its episode, the newest last.

    Within an episode each observation holds the last K - 1 frames of the one before, so that a replay can store each
    frame once. The environment chooses the content before an episode's first frame.
    """

    def __reduce__(self):
        return StackedFrames, super().__reduce__()[1]


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
    count = int(actions.num_values)
    mask = spec.observations.get(ACTION_MASK) if isinstance(spec.observations, Mapping) else None
    if mask is not None and (tuple(mask.shape) != (count,) or mask.dtype.kind not in "biu"):
        raise UsageError(
            f"the observation's {ACTION_MASK!r} has the shape {tuple(mask.shape)} and the type {mask.dtype}: {agent} "
            f"takes it for the mask of legal actions, which has one bool or integer for each, of shape ({count},)."
        )
    return count


def action_size(spec: EnvironmentSpec, agent: str) -> int:
    """Returns the number of values in a continuous action.

    `envs.canonical_actions` converts environments with other bounds and shapes.

    Raises:
        UsageError: the actions are not vectors in [-1, 1]; the message names the agent.
    """
    actions = spec.actions
    needed = f"{agent} needs an environment with one continuous action that is bounded; this one's"
    if not isinstance(actions, dm_env.specs.Array) or not np.issubdtype(actions.dtype, np.floating):
        what = f"{type(actions).__name__} of shape {getattr(actions, 'shape', '?')}"
        raise UsageError(f"{needed} actions are {what} and type {getattr(actions, 'dtype', '?')}.")
    with np.errstate(over="ignore"):
        low, high = (np.asarray(getattr(actions, end, np.nan)).astype(np.float32) for end in ("minimum", "maximum"))
    if not np.all(np.isfinite(low) & np.isfinite(high)):
        raise UsageError(f"{needed} action has no finite bounds: {actions!r}.")
    if not np.prod(actions.shape) or not np.all(low < high):
        raise UsageError(f"{needed} action has nothing between its bounds: {actions!r}.")
    if len(actions.shape) != 1 or not (np.all(low == -1) and np.all(high == 1)):
        raise UsageError(
            f"{agent} acts by vectors in [-1, 1], and this environment's action is {actions!r}: give it to "
            "`envs.canonical_actions` first."
        )
    return int(actions.shape[0])


def is_discrete(spec: EnvironmentSpec) -> bool:
    """Returns whether an environment has one discrete action."""
    return isinstance(spec.actions, dm_env.specs.DiscreteArray)
