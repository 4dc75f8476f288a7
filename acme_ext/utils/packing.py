"""Several small arrays as one: each array that a compiled call returns makes it take about 6 us more, on the CPU."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.types import Tree


class _Leaf(NamedTuple):
    """An array of a nest that is packed."""

    shape: tuple[int, ...]
    dtype: Any
    offset: int | None  # of its first byte in the words; None where it is not among them


class Packing:
    """How nests are packed that differ in their number of rows alone."""

    def __init__(self):
        self._structure: Any = None
        self._leaves: dict[int, list[_Leaf]] = {}  # by the number of words
        self._far = jax.default_backend() != "cpu"

    def pack(self, arrays: Tree) -> list[jax.Array]:
        """Returns in fewer arrays what a nest of arrays `[K, ...]` holds: those of 32-bit numbers are one `[N]`, the
        first, if there are several of them. It is called in a compiled function, and keeps how it packed when that is
        traced.
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
        """Returns the nest in NumPy, read-only, or so many rows of its arrays."""
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
