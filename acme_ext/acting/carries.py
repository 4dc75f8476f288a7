"""Holds, saves and restores the carries of policies; see `acting.policy.Carry`."""

import base64
import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Carry, Policy
from acme_ext.types import Tree


class CarryHolder:
    """Holds a policy's carry for environments, each of which has a slot.

    Args:
        policy: the policy.
        slots: number of environments' slots.
        rows: number of rows in the carry: the slots, plus spare rows after them.
    """

    def __init__(self, policy: Policy, slots: int, rows: int):
        self._slots, self._standing, self._init_carry = slots, policy.standing, policy.init_carry
        self._carry: Carry | tuple[()] = jax.tree.map(jnp.array, policy.init_carry(rows))  # copies: they are donated
        self.has_carry = bool(jax.tree.leaves(self._carry))
        """Whether the policy has a carry."""

    def save_carry(self) -> str | None:
        """Returns the `run` part of the carry, which outlives episodes, as text; None for a policy without a carry."""
        return pack(self._carry.run) if isinstance(self._carry, Carry) and self.has_carry else None

    def restore_carry(self, text: str | None) -> None:
        """Restores what `save_carry` returned; slots that are not in it stay unchanged."""
        if text is not None and isinstance(self._carry, Carry):
            self._carry = self._carry._replace(run=unpack(text, self._carry.run))

    def forget_episodes(self, slots: np.ndarray) -> None:
        """Resets the `episode` part of the carry in some slots `[K]`, whose episodes will not be continued."""
        if isinstance(self._carry, Carry):
            fresh = self._init_carry(len(slots)).episode
            episode = jax.tree.map(lambda all_, new: all_.at[slots].set(new), self._carry.episode, fresh)
            self._carry = self._carry._replace(episode=episode)

    def standing(self) -> list[list] | None:
        """Returns the policy's standing as JSON types, see `Policy.standing`; None for a policy without one."""
        if self._standing is None or not isinstance(self._carry, Carry):
            return None
        held = jax.tree.map(lambda leaf: leaf[: self._slots], jax.device_get(self._carry.run))
        return to_json(self._standing(held))

    def brief(self, standing: list[list] | None) -> None:
        """Sets the `carry.run` of every environment to a standing; to zeros if it is None."""
        if isinstance(self._carry, Carry):
            self._carry = self._carry._replace(run=of_each(standing, self._carry.run))


def pack(carry: Tree) -> str:
    """Encodes arrays `[B, ...]` as text."""
    file = io.BytesIO()
    np.savez_compressed(file, *map(np.asarray, jax.tree.leaves(carry)))
    return base64.b64encode(file.getvalue()).decode()


def unpack(text: str, like: Tree) -> Tree:
    """Decodes arrays `[B, ...]` from a text that `pack` made.

    If the text has fewer rows than `like`, the other rows are taken from `like`; if it has more, they are dropped.
    """
    file = np.load(io.BytesIO(base64.b64decode(text)))
    leaves, structure = jax.tree.flatten(like)

    def fit(old: Any, new: np.ndarray) -> Any:
        rows = min(len(old), len(new))
        return jnp.asarray(old).at[:rows].set(new[:rows])

    return jax.tree.unflatten(structure, [fit(old, new) for old, new in zip(leaves, file.values(), strict=True)])


def to_json(standing: Tree) -> list[list]:
    """Returns a standing's arrays as lists."""
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(standing)]


def added(standings: list[list[list]]) -> list[list] | None:
    """Returns the sum of several actors' standings; None for an empty list."""
    if not standings:
        return None
    return [np.sum([np.asarray(leaf) for leaf in leaves], axis=0).tolist() for leaves in zip(*standings, strict=True)]


def of_each(standing: list[list] | None, like: Tree) -> Tree:
    """Returns a standing repeated for B environments, `[B, ...]`, in the shapes of `like`; zeros if it is None."""
    if standing is None:
        return jax.tree.map(jnp.zeros_like, like)
    leaves, structure = jax.tree.flatten(like)
    each = [
        jnp.array(jnp.broadcast_to(jnp.asarray(new, old.dtype), old.shape))
        for old, new in zip(leaves, standing, strict=True)
    ]
    return jax.tree.unflatten(structure, each)
