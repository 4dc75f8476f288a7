"""Legal actions: how an observation specifies them, and how values and policies are masked.

The convention is the same as in Gymnasium and PettingZoo. The observation is a mapping with a field `action_mask`
`[A]`, which has one bool or integer for each discrete action and is nonzero for legal actions. Without that field, all
actions are legal. There may also be the fields `player`, the number of the player to move, and `game_state`, for
searches with the game's rules. If there is a mask, networks don't receive these three fields (`visible`).
"""

from collections.abc import Mapping

import jax.numpy as jnp

from acme_ext.specs import ACTION_MASK, PLAYER, RULES
from acme_ext.types import Array, Tree

ILLEGAL = -1e9
"""The value or logit of an illegal action. It is far below all others, but finite, so that gradients and means are not
NaN in rows without legal actions (padding)."""


def legal_actions(observation: Tree) -> Array | None:
    """Returns the legal actions of an observation `[..., *shape]`, bool `[..., A]`; None if all are legal."""
    if _has_mask(observation):
        return observation[ACTION_MASK] != 0
    return None


def player_of(observation: Tree) -> Array | None:
    """Returns the number of the player to move, `[...]`; None for observations of a single player."""
    if _has_mask(observation) and PLAYER in observation:
        return observation[PLAYER]
    return None


def masked(values: Array, legal: Array | None) -> Array:
    """Returns values or logits `[..., A]` with `ILLEGAL` for illegal actions, where no gradient flows.

    If `legal` is None, they are unchanged.
    """
    return values if legal is None else jnp.where(legal, values, ILLEGAL)


def visible(observation: Tree) -> Tree:
    """Returns the part of an observation that networks receive: all fields, without the rules' if there is a mask.

    If only one field remains, returns its value, not a mapping.
    """
    if not _has_mask(observation):
        return observation
    seen = {name: value for name, value in observation.items() if name not in RULES}
    return next(iter(seen.values())) if len(seen) == 1 else seen


def _has_mask(observation: Tree) -> bool:
    return isinstance(observation, Mapping) and ACTION_MASK in observation
