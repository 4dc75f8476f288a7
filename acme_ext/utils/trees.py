"""Functions for nests of JAX arrays."""

import jax
import jax.numpy as jnp

from acme_ext.types import Array, Tree


def select(rows: Array | bool, new: Tree, old: Tree) -> Tree:
    """Returns `new` where `rows` is true and `old` elsewhere; `rows` applies to the first axes of every array."""

    def one(a: Array, b: Array) -> Array:
        shape = jnp.shape(rows)
        return jnp.where(jnp.reshape(rows, shape + (1,) * (max(jnp.ndim(a), jnp.ndim(b)) - len(shape))), a, b)

    return jax.tree.map(one, new, old)
