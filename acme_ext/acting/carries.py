"""What policies carry, as text and as numbers of JSON; see `acting.policy.Carry`."""

import base64
import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.types import Tree


def first(carry: Tree, rows: int) -> Tree:
    """Returns the first rows of arrays `[B, ...]`, in NumPy."""
    return jax.tree.map(lambda leaf: leaf[:rows], jax.device_get(carry))


def pack(carry: Tree) -> str:
    """Returns arrays `[B, ...]` as text."""
    file = io.BytesIO()
    np.savez_compressed(file, *map(np.asarray, jax.tree.leaves(carry)))
    return base64.b64encode(file.getvalue()).decode()


def unpack(text: str, like: Tree) -> Tree:
    """Returns arrays `[B, ...]` of a text that `pack` made. Where it has fewer or more rows than `like`, those
    that both have are taken, and the others are those of `like`.
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
    """Returns the sum of several actors' standings; None if there is none."""
    if not standings:
        return None
    return [np.sum([np.asarray(leaf) for leaf in leaves], axis=0).tolist() for leaves in zip(*standings, strict=True)]


def of_each(standing: list[list] | None, like: Tree) -> Tree:
    """Returns a standing for each of B environments `[B, ...]`, in the shapes of `like`; zeros if there is none."""
    if standing is None:
        return jax.tree.map(jnp.zeros_like, like)
    leaves, structure = jax.tree.flatten(like)
    each = [
        jnp.array(jnp.broadcast_to(jnp.asarray(new, old.dtype), old.shape))
        for old, new in zip(leaves, standing, strict=True)
    ]
    return jax.tree.unflatten(structure, each)
