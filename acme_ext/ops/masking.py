"""Legal actions: how an observation says which actions may be taken, and what that means for values and policies.

The convention is that of Gymnasium and PettingZoo: an observation that is a mapping with a field `action_mask` `[A]`,
one bool or integer for each discrete action, not zero where it may be taken. An observation without that field allows
all actions. Beside it there may be `player`, the number of who moves, and `game_state`, for searches by a game's rules.
These three say what the rules are and not what there is to see, so that networks are given the other fields
(`visible`).
"""

from collections.abc import Mapping

import jax.numpy as jnp

from acme_ext.specs import ACTION_MASK, PLAYER, RULES
from acme_ext.types import Array, Tree

ILLEGAL = -1e9
"""The value and the logit of an action that may not be taken: finite, so that no gradient and no mean of a batch with
nothing legal in it (padding) is NaN, and far below every other."""


def legal_actions(observation: Tree) -> Array | None:
    """Returns which actions an observation `[..., *shape]` allows, bool `[..., A]`; None where it allows all."""
    if _has_mask(observation):
        return observation[ACTION_MASK] != 0
    return None


def player_of(observation: Tree) -> Array | None:
    """Returns whose move it is, `[...]`; None where an observation doesn't say, because there is one player."""
    if _has_mask(observation) and PLAYER in observation:
        return observation[PLAYER]
    return None


def masked(values: Array, legal: Array | None) -> Array:
    """Returns values or logits `[..., A]` that are `ILLEGAL` where an action is not legal, through which no gradient
    flows; as they are where `legal` is None.
    """
    return values if legal is None else jnp.where(legal, values, ILLEGAL)


def visible(observation: Tree) -> Tree:
    """Returns what networks are given of an observation: all fields but those of the rules, or, if that leaves one,
    that field alone.
    """
    if not _has_mask(observation):
        return observation
    seen = {name: value for name, value in observation.items() if name not in RULES}
    return next(iter(seen.values())) if len(seen) == 1 else seen


def _has_mask(observation: Tree) -> bool:
    return isinstance(observation, Mapping) and ACTION_MASK in observation
