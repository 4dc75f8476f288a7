"""Items as flat rows of bytes: how an item's fields lie in one, and how rows leave for a Reverb table.

Reverb's cost is per column and per item, not per byte: an item whose fields are packed into a single column is written
and sampled several times faster than one with a column a field. A `Layout` is the one place that knows where a field
lies: writers fill rows through it (NumPy), learners take them apart with it (JAX, inside the compiled step).
"""

import abc
import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tree

from acme_ext.types import Array, Tree

OnWait = Callable[[], None]
_WAIT_MS = 200


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
            # `flat != 0`, for which LLVM takes half a minute where rows are large: it compiles XLA's loop over single
            # bytes slowly. It would simplify a comparison of integers, or of floats without the product, to that again.
            return (0.5 * flat.astype(np.float32) > 0.25).reshape(batch + shape)
        if dtype.itemsize > 1:
            flat = flat.reshape(*batch, -1, dtype.itemsize)
        return lax.bitcast_convert_type(flat, dtype).reshape(batch + shape)


@runtime_checkable
class Sink(Protocol):
    """Sends rows of bytes to one table in the background."""

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        """Sends rows, uint8 `[M, ...]`, with |TD errors| `[M]` where the table is prioritized; doesn't wait for the
        server. Returns how many rows have been handed on so.
        """
        ...

    def flush(self, pending: int, on_wait: OnWait) -> None:
        """Waits until at most `pending` rows are not yet confirmed by the server, which its rate limit may delay;
        `on_wait` is called a few times a second meanwhile, and may raise to end the wait.
        """

    def has_sent(self, pending: int) -> bool:
        """Whether at most `pending` rows are not yet confirmed by the server; doesn't wait for them."""
        ...

    def close(self) -> None:
        """Ends the connection at once."""


class ReverbSink(abc.ABC):
    """A sink that sends an item for each row, by one of Reverb's writers."""

    def __init__(self, writer: Any):
        self._writer: Any = writer

    @abc.abstractmethod
    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        """See `Sink`."""

    @abc.abstractmethod
    def close(self) -> None:
        """See `Sink`."""

    def flush(self, pending: int, on_wait: OnWait) -> None:
        while not self.has_sent(pending, timeout_ms=_WAIT_MS):
            on_wait()

    def has_sent(self, pending: int, *, timeout_ms: int = 0) -> bool:
        from reverb import errors

        try:
            self._writer.flush(pending, timeout_ms=timeout_ms)
        except errors.DeadlineExceededError:
            return False
        return True


class StructuredSink(ReverbSink):
    """Items of equal priority: Reverb's StructuredWriter, the cheapest there is (about 15 us of CPU an item)."""

    def __init__(self, client: Any, table: str, shape: tuple[int, ...]):
        import tensorflow as tf
        from reverb import structured_writer

        pattern = structured_writer.pattern_from_transform(tf.TensorSpec(shape, tf.uint8), lambda column: column[-1])
        config = structured_writer.create_config(pattern=pattern, table=table)
        super().__init__(client.structured_writer([config]))

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        assert errors is None
        append = self._writer.append
        for row in rows:
            append(row)
        return len(rows)

    def close(self) -> None:
        try:
            self._writer.flush(0, timeout_ms=_WAIT_MS)
        except Exception:
            # Reverb's writer ends with its last reference, and then lets no Python run until every row is confirmed,
            # which a limit can delay for ever. So one that is held back never ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._writer))
        self._writer = None


class RowWriter:
    """The end of every writer: packs what it has made into rows, and hands them to a sink.

    Args:
        layout: of a row.
        sink: where rows go.
        max_pending: rows that may wait for the server before the writer blocks; None never blocks, for a process whose
            own learner has to make room.
        on_wait: called a few times a second while the writer waits for the server; may raise to end the wait.
    """

    def __init__(self, layout: Layout, sink: Sink, max_pending: int | None, on_wait: OnWait):
        self._layout, self._sink, self._max_pending, self._on_wait = layout, sink, max_pending, on_wait
        self.inserted = 0
        """Rows handed to the table so far, in whole items."""

    def wait(self) -> None:
        """Blocks until the server has confirmed every row sent."""
        self._sink.flush(0, self._on_wait)

    def has_sent(self, pending: int) -> bool:
        """Whether at most `pending` rows are not yet confirmed by the server; doesn't wait for them."""
        return self._sink.has_sent(pending)

    def close(self) -> None:
        """Ends the connection; what the server hasn't confirmed is dropped."""
        self._sink.close()

    def _send(self, leaves: list[np.ndarray], errors: np.ndarray | None) -> None:
        self.inserted += self._sink.append(self._layout.pack(leaves), errors)
        if self._max_pending is not None:
            self._sink.flush(self._max_pending, self._on_wait)
