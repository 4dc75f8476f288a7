"""How one item's fields lie in one flat row of bytes.

Reverb's cost is per column and per item, not per byte: an item whose fields are packed into a single column is written
and sampled several times faster than one with a column a field. A `Layout` is the one place that knows where a field
lies: writers fill rows through it (NumPy), learners take them apart with it (JAX, inside the compiled step).
"""

from collections.abc import Sequence

import numpy as np
import tree

from acme_ext.types import Array, Tree


class Layout:
    """The row that holds a nest of fields, each with a shape and a dtype.

    Args:
        spec: a nest of anything with `shape` and `dtype` (dm_env specs, arrays).
    """

    def __init__(self, spec: Tree):
        self._spec = spec
        leaves = tree.flatten(spec)
        self._shapes = [tuple(leaf.shape) for leaf in leaves]
        self._dtypes = [np.dtype(leaf.dtype) for leaf in leaves]
        names = [f"f{i}" for i in range(len(leaves))]
        formats = list(zip(names, self._dtypes, self._shapes, strict=True))
        self.dtype = np.dtype(formats, align=True)
        """NumPy's structured dtype of a row; its fields are `f0, f1, ...` in the order of `tree.flatten`."""
        self._offsets = [self.dtype.fields[name][1] for name in names] if self.dtype.fields else []

    @property
    def nbytes(self) -> int:
        """Bytes in a row."""
        return self.dtype.itemsize

    def pack(self, leaves: Sequence[np.ndarray]) -> np.ndarray:
        """Packs leaves `[M, ...]`, in the order of `tree.flatten(spec)`, into rows of bytes, uint8 `[M, nbytes]`."""
        rows = np.zeros(len(leaves[0]), self.dtype)
        for name, leaf in zip(self.dtype.names or (), leaves, strict=True):
            rows[name] = leaf
        return rows.view(np.uint8).reshape(len(rows), self.nbytes)

    def unpack(self, rows: Array) -> Tree:
        """Takes rows of bytes, uint8 `[..., nbytes]`, apart into a nest of `[..., *shape]`; NumPy rows or JAX
        arrays.
        """
        leaves = [
            self._leaf(rows[..., offset : offset + dtype.itemsize * int(np.prod(shape))], shape, dtype)
            for offset, shape, dtype in zip(self._offsets, self._shapes, self._dtypes, strict=True)
        ]
        return tree.unflatten_as(self._spec, leaves)

    @staticmethod
    def _leaf(flat: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
        batch = flat.shape[:-1]
        if isinstance(flat, np.ndarray):
            return np.ascontiguousarray(flat).view(dtype).reshape(batch + shape)
        from jax import lax

        if dtype == np.bool_:
            return (flat != 0).reshape(batch + shape)
        if dtype.itemsize > 1:
            flat = flat.reshape(*batch, -1, dtype.itemsize)
        return lax.bitcast_convert_type(flat, dtype).reshape(batch + shape)
