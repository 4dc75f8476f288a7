"""Holds, saves and restores the memories of policies; see `acting.policy.PolicyMemory`."""

import base64
import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Policy, PolicyMemory
from acme_ext.types import Tree


class MemoryHolder:
    """Holds a policy's memory for environments, each of which has a slot.

    Args:
        policy: the policy.
        slots: number of environments' slots.
        rows: number of rows in the memory: the slots, plus spare rows after them.
    """

    def __init__(self, policy: Policy, slots: int, rows: int):
        self._slots, self._statistics, self._init_policy_memory = (
            slots,
            policy.shared_statistics,
            policy.init_policy_memory,
        )
        memory = policy.init_policy_memory(rows)
        self._memory: PolicyMemory | tuple[()] = jax.tree.map(jnp.array, memory)  # copies: they are donated
        self.has_memory = bool(jax.tree.leaves(self._memory))
        """Whether the policy has a memory."""

    def save_memory(self) -> str | None:
        """Returns the `run` part of the memory, which outlives episodes, as text; None if the policy has none."""
        return pack(self._memory.run) if isinstance(self._memory, PolicyMemory) and self.has_memory else None

    def restore_memory(self, text: str | None) -> None:
        """Restores what `save_memory` returned; slots that are not in it stay unchanged."""
        if text is not None and isinstance(self._memory, PolicyMemory):
            self._memory = self._memory._replace(run=unpack(text, self._memory.run))

    def forget_episodes(self, slots: np.ndarray) -> None:
        """Resets the `episode` part of the memory in some slots `[K]`, whose episodes will not be continued."""
        if isinstance(self._memory, PolicyMemory):
            fresh = self._init_policy_memory(len(slots)).episode
            episode = jax.tree.map(lambda all_, new: all_.at[slots].set(new), self._memory.episode, fresh)
            self._memory = self._memory._replace(episode=episode)

    def shared_statistics(self) -> list[list] | None:
        """Returns the policy's shared statistics as JSON types; None for a policy without any."""
        if self._statistics is None or not isinstance(self._memory, PolicyMemory):
            return None
        held = jax.tree.map(lambda leaf: leaf[: self._slots], jax.device_get(self._memory.run))
        return to_json(self._statistics(held))

    def brief(self, statistics: list[list] | None) -> None:
        """Sets the `memory.run` of every environment to shared statistics; to zeros if they are None."""
        if isinstance(self._memory, PolicyMemory):
            self._memory = self._memory._replace(run=of_each(statistics, self._memory.run))


def pack(memory: Tree) -> str:
    """Encodes arrays `[B, ...]` as text."""
    file = io.BytesIO()
    np.savez_compressed(file, *map(np.asarray, jax.tree.leaves(memory)))
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


def to_json(statistics: Tree) -> list[list]:
    """Returns the arrays of shared statistics as lists."""
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(statistics)]


def added(statistics: list[list[list]]) -> list[list] | None:
    """Returns the sum of several actors' statistics; None for an empty list."""
    if not statistics:
        return None
    return [np.sum([np.asarray(leaf) for leaf in leaves], axis=0).tolist() for leaves in zip(*statistics, strict=True)]


def of_each(statistics: list[list] | None, like: Tree) -> Tree:
    """Returns shared statistics for each of B environments, `[B, ...]`, shaped as `like`; zeros if they are None."""
    if statistics is None:
        return jax.tree.map(jnp.zeros_like, like)
    leaves, structure = jax.tree.flatten(like)
    each = [
        jnp.array(jnp.broadcast_to(jnp.asarray(new, old.dtype), old.shape))
        for old, new in zip(leaves, statistics, strict=True)
    ]
    return jax.tree.unflatten(structure, each)
