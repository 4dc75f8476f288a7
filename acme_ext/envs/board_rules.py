"""The rules of board games from pgx, as pure functions, and the specs of their observations and actions."""

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs

from acme_ext.specs import ACTION_MASK, PLAYER, STATE
from acme_ext.types import Array

RANDOM = "random"
"""The opponent that is available in every game."""


class Rules:
    """The rules of a game, as pure functions of the state of one game; use `jax.vmap` for many games."""

    def __init__(self, game: str):
        import pgx

        self.game, self._env = game, pgx.make(cast(Any, game))
        example = jax.eval_shape(self._env.init, jax.random.PRNGKey(0))
        self._leaves, self._structure = jax.tree.flatten(example)
        self.planes, self.num_actions = example.observation, example.legal_action_mask.shape[0]
        self.nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in self._leaves)

    def init(self, key: Array) -> Any:
        """Returns the state at a game's start; the player who begins is random."""
        return self._env.init(key)

    def step(self, state: Any, action: Array) -> Any:
        """Returns the state after a legal action; a finished game stays unchanged."""
        return self._env.step(state, action)

    def pack(self, state: Any) -> Array:
        """Returns a state as bytes `[nbytes]`."""

        def flat(leaf: Array) -> Array:
            leaf = leaf.astype(jnp.uint8) if leaf.dtype == jnp.bool_ else leaf
            return jax.lax.bitcast_convert_type(leaf, jnp.uint8).reshape(-1)

        return jnp.concatenate([flat(leaf) for leaf in jax.tree.leaves(state)])

    def unpack(self, packed: Array) -> Any:
        """Returns the state of bytes `[nbytes]`."""
        leaves, start = [], 0
        for leaf in self._leaves:
            size = leaf.dtype.itemsize
            part = packed[start : start + leaf.size * size]
            start += leaf.size * size
            if leaf.dtype == jnp.bool_:
                leaves.append(part.reshape(leaf.shape) != 0)
            elif size == 1:
                leaves.append(jax.lax.bitcast_convert_type(part.reshape(leaf.shape), leaf.dtype))
            else:
                leaves.append(jax.lax.bitcast_convert_type(part.reshape(*leaf.shape, size), leaf.dtype))
        return jax.tree.unflatten(self._structure, leaves)


@functools.cache
def rules_of(game: str) -> Rules:
    """Returns the rules of a game; imports pgx, which starts JAX."""
    # pgx creates arrays when it is imported, and the first call of this function may be inside a traced function.
    with jax.ensure_compile_time_eval():
        return Rules(game)


def specs_of(game: str, self_play: bool, game_state: bool) -> tuple[dict[str, specs.Array], specs.DiscreteArray]:
    """Returns the specs of a game's observations and actions; the options are those of `BoardEnvironment`."""
    rules = rules_of(game)
    fields: dict[str, specs.Array] = {
        "board": specs.BoundedArray(rules.planes.shape, rules.planes.dtype, 0, 1, "board"),
        ACTION_MASK: specs.BoundedArray((rules.num_actions,), np.bool_, False, True, ACTION_MASK),
    }
    if self_play:
        fields[PLAYER] = specs.BoundedArray((), np.int32, 0, 1, PLAYER)
    if game_state:
        fields[STATE] = specs.Array((rules.nbytes,), np.uint8, f"board:{game}")
    return fields, specs.DiscreteArray(rules.num_actions, np.int32, "action")
