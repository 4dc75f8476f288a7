"""Items as flat rows of bytes: the layout of an item's fields in a row, and the writers that send rows to a table.

Reverb's cost is per column and per item, not per byte. An item whose fields are packed into a single column is written
and sampled several times faster than one with a column per field. Only a `Layout` knows the positions of the fields:
writers pack rows with it (NumPy), and learners unpack them with it (JAX, inside the compiled step).
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import tree

from acme_ext.types import Array, Tree

OnWait = Callable[[], None]


class Layout:
    """The layout of a row that holds a nest of fields, each with a shape and a dtype.

    Args:
        spec: a nest of objects with `shape` and `dtype` (dm_env specs, arrays).
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
        """Unpacks rows of bytes, uint8 `[..., nbytes]`, into a nest of `[..., *shape]`; for NumPy and JAX arrays."""
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
            # This means `flat != 0`. With large rows, LLVM takes half a minute to compile that, because of XLA's loop
            # over single bytes. It would simplify a comparison of integers, or of floats without the product, to the
            # same loop.
            return (0.5 * flat.astype(np.float32) > 0.25).reshape(batch + shape)
        if dtype.itemsize > 1:
            flat = flat.reshape(*batch, -1, dtype.itemsize)
        return lax.bitcast_convert_type(flat, dtype).reshape(batch + shape)


class Sink(Protocol):
    """Sends rows of bytes to one table in the background."""

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        """Sends rows, uint8 `[M, ...]`, with |TD errors| `[M]` if the table is prioritized.

        Doesn't wait for the server. Returns the number of rows that were sent.
        """
        ...

    def flush(self, pending: int, on_wait: OnWait) -> None:
        """Waits until at most `pending` rows are not confirmed by the server, whose rate limit may delay this.

        Meanwhile, `on_wait` is called a few times a second; it may raise to end the wait.
        """

    def has_sent(self, pending: int) -> bool:
        """Whether at most `pending` rows are not confirmed by the server; returns at once."""
        ...

    def close(self) -> None:
        """Closes the connection at once."""


class DirectSink:
    """A sink whose rows are taken at once, in this process.

    Args:
        take: a function `(rows, errors)` that takes the rows of a call of `append`.
    """

    def __init__(self, take: Callable[[np.ndarray, np.ndarray | None], None]):
        self._take = take

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        self._take(rows, errors)
        return len(rows)

    def flush(self, pending: int, on_wait: OnWait) -> None:
        pass

    def has_sent(self, pending: int) -> bool:
        return True

    def close(self) -> None:
        pass


class RowWriter:
    """The base class of writers, which packs items into rows and passes them to a sink.

    Args:
        layout: layout of a row.
        sink: receives the rows.
        max_pending: number of unconfirmed rows at which the writer blocks. None: it never blocks, for runs in which the
            same process must learn to make room.
        on_wait: called a few times a second while the writer waits for the server; it may raise to end the wait.
    """

    def __init__(self, layout: Layout, sink: Sink, max_pending: int | None, on_wait: OnWait):
        self._layout, self._sink, self._max_pending, self._on_wait = layout, sink, max_pending, on_wait
        self.inserted = 0
        """Rows sent to the table so far, in complete items."""

    def wait(self) -> None:
        """Blocks until the server has confirmed all rows."""
        self._sink.flush(0, self._on_wait)

    def has_sent(self, pending: int) -> bool:
        """Whether at most `pending` rows are not confirmed by the server; returns at once."""
        return self._sink.has_sent(pending)

    def close(self) -> None:
        """Closes the connection; unconfirmed rows are dropped."""
        self._sink.close()

    def _send(self, leaves: list[np.ndarray], errors: np.ndarray | None) -> None:
        self.inserted += self._sink.append(self._layout.pack(leaves), errors)
        if self._max_pending is not None:
            self._sink.flush(self._max_pending, self._on_wait)
