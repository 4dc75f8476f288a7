"""Functions for nests of JAX arrays."""

import math

import jax
import jax.numpy as jnp

from acme_ext.types import Array, Tree


def select(rows: Array | bool, new: Tree, old: Tree) -> Tree:
    """Returns `new` where `rows` is true and `old` elsewhere; `rows` applies to the first axes of every array."""

    def one(a: Array, b: Array) -> Array:
        shape = jnp.shape(rows)
        return jnp.where(jnp.reshape(rows, shape + (1,) * (max(jnp.ndim(a), jnp.ndim(b)) - len(shape))), a, b)

    return jax.tree.map(one, new, old)


def merge_axes(nest: Tree, count: int = 2) -> Tree:
    """Returns a nest of arrays with their first `count` axes merged into one, `[T, B, ...]` -> `[T * B, ...]`.

    Unlike `reshape(-1, ...)`, it also works for arrays without elements, such as an observation's field of size 0.
    """
    return jax.tree.map(lambda x: x.reshape(math.prod(x.shape[:count]), *x.shape[count:]), nest)
