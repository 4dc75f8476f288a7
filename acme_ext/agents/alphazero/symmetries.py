"""Symmetries of boards: rotated or mirrored positions have the same value (Silver et al. 2017, methods)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.envs.board_rules import rules_of
from acme_ext.specs import ACTION_MASK
from acme_ext.types import Array, Tree

SQUARE = ("tic_tac_toe", "othello", "go_9x9")
"""Games with the eight symmetries of the square; the actions are the fields, row by row, and in some games a pass."""

MIRRORED = ("connect_four",)
"""Games that can be mirrored left to right; the actions are the columns."""


class Symmetries(NamedTuple):
    """S symmetries of a game; the first one is the identity."""

    fields: np.ndarray  # [S, H * W] index of the original field at each position
    actions: np.ndarray  # [S, A] index of the original action for each action


@functools.cache
def of_game(game: str) -> Symmetries:
    """Returns a game's symmetries; only the identity if no others are known."""
    rules = rules_of(game)
    height, width = rules.planes.shape[:2]
    fields, actions = np.arange(height * width).reshape(height, width), np.arange(rules.num_actions)
    if game in SQUARE:
        turned = [np.rot90(f, k).reshape(-1) for f in (fields, fields[:, ::-1]) for k in range(4)]
        return Symmetries(np.stack(turned), np.stack([np.append(t, actions[t.size :]) for t in turned]))
    if game in MIRRORED:
        mirrored = fields[:, ::-1].reshape(-1)
        return Symmetries(np.stack([fields.reshape(-1), mirrored]), np.stack([actions, actions[::-1]]))
    return Symmetries(fields.reshape(1, -1), actions[None])


def drawn(key: Array, game: str, observation: Tree, policy: Array) -> tuple[Tree, Array]:
    """Returns positions and their policies, each with a random symmetry applied.

    Args:
        key: random key.
        game: name of the game.
        observation: the positions `[N, ...]`, with the fields `board` and `action_mask`.
        policy: `[N, A]` action probabilities.
    """
    known, board = of_game(game), observation["board"]
    which = jax.random.randint(key, board.shape[:1], 0, len(known.fields))
    fields, actions = (jnp.asarray(x)[which] for x in known)
    flat = board.reshape(len(board), -1, board.shape[-1])
    seen = {
        **observation,
        "board": jnp.take_along_axis(flat, fields[..., None], axis=1).reshape(board.shape),
        ACTION_MASK: jnp.take_along_axis(observation[ACTION_MASK], actions, axis=1),
    }
    return seen, jnp.take_along_axis(policy, actions, axis=1)
