"""Packs several small arrays into one, because each returned array adds about 6 us to a compiled call on the CPU."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.types import Tree


class _Leaf(NamedTuple):
    """An array of a nest that is packed."""

    shape: tuple[int, ...]
    dtype: Any
    offset: int | None  # offset of its first byte in the packed words; None if it is not packed


class Packing:
    """Packs and unpacks nests that differ only in their number of rows."""

    def __init__(self):
        self._structure: Any = None
        self._leaves: dict[int, list[_Leaf]] = {}  # by the number of words
        self._far = jax.default_backend() != "cpu"

    def pack(self, arrays: Tree) -> list[jax.Array]:
        """Packs a nest of arrays `[K, ...]` into fewer arrays.

        If there are several arrays of 32-bit numbers, they become one array `[N]`, which comes first. Call this inside
        a compiled function; it stores the packing when the function is traced.
        """
        found, self._structure = jax.tree.flatten(jax.tree.map(jnp.asarray, arrays))
        fits = [array.dtype.itemsize == 4 and array.size > 0 for array in found]
        if sum(fits) < 2:
            return found
        leaves, words, others, size = [], [], [], 0
        for array, is_packed in zip(found, fits, strict=True):
            leaves.append(_Leaf(array.shape, array.dtype, 4 * size if is_packed else None))
            if is_packed:
                words.append(jax.lax.bitcast_convert_type(array, jnp.int32).ravel())
                size += array.size
            else:
                others.append(array)
        self._leaves[size] = leaves
        return [jnp.concatenate(words), *others]

    def unpack(self, packed: list[jax.Array], count: int | None = None) -> Tree:
        """Returns the nest as read-only NumPy arrays; with `count`, only their first `count` rows."""
        if self._far:
            for array in packed:
                array.copy_to_host_async()
        found = [np.asarray(array) for array in packed]
        if self._leaves:
            words, others = found[0], iter(found[1:])
            found = [
                next(others) if offset is None else np.ndarray(shape, dtype, words, offset)
                for shape, dtype, offset in self._leaves[words.size]
            ]
        return jax.tree.unflatten(self._structure, found if count is None else [array[:count] for array in found])
