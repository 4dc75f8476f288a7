"""Where packed rows leave for a Reverb table."""

import ctypes
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

OnWait = Callable[[], None]
_WAIT_MS = 200


@runtime_checkable
class Sink(Protocol):
    """Sends items of bytes, each a row or a block of rows, to one table in the background."""

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> None:
        """Sends items, uint8 `[M, ...]`, with |TD errors| `[M]` where the table is prioritized; doesn't wait for the
        server.
        """

    def flush(self, pending: int, on_wait: OnWait) -> None:
        """Waits until at most `pending` items are not yet confirmed by the server, which its rate limit may delay;
        `on_wait` is called a few times a second meanwhile, and may raise to end the wait.
        """

    def has_sent(self, pending: int) -> bool:
        """Whether at most `pending` items are not yet confirmed by the server; doesn't wait for them."""
        ...

    def close(self) -> None:
        """Ends the connection at once."""


class StructuredSink:
    """Items of equal priority: Reverb's StructuredWriter, the cheapest there is (about 15 us of CPU an item)."""

    def __init__(self, client, table: str, shape: tuple[int, ...]):
        import tensorflow as tf
        from reverb import structured_writer

        pattern = structured_writer.pattern_from_transform(tf.TensorSpec(shape, tf.uint8), lambda column: column[-1])
        self._writer: Any = client.structured_writer([structured_writer.create_config(pattern=pattern, table=table)])

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> None:
        assert errors is None
        append = self._writer.append
        for row in rows:
            append(row)

    def flush(self, pending: int, on_wait: OnWait) -> None:
        while not _flush(self._writer, pending, _WAIT_MS):
            on_wait()

    def has_sent(self, pending: int) -> bool:
        return _flush(self._writer, pending, 0)

    def close(self) -> None:
        try:
            self._writer.flush(0, timeout_ms=_WAIT_MS)
        except Exception:
            # Reverb's writer ends with its last reference, and then lets no Python run until every row is confirmed,
            # which a limit can delay for ever. So one that is held back never ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._writer))
        self._writer = None


class PrioritySink:
    """Rows that carry a priority each, |TD error| + `offset`: Reverb's TrajectoryWriter (a StructuredWriter's priority
    is fixed).
    """

    def __init__(self, client, table: str, offset: float):
        self._table, self._offset = table, offset
        self._writer = client.trajectory_writer(num_keep_alive_refs=1)

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> None:
        assert errors is not None
        writer, table = self._writer, self._table
        for row, priority in zip(rows, (errors + self._offset).tolist(), strict=True):
            writer.append(row)
            writer.create_item(table, priority, writer.history[-1])

    def flush(self, pending: int, on_wait: OnWait) -> None:
        while not _flush(self._writer, pending, _WAIT_MS):
            on_wait()

    def has_sent(self, pending: int) -> bool:
        return _flush(self._writer, pending, 0)

    def close(self) -> None:
        self._writer.close()


def _flush(writer: Any, pending: int, timeout_ms: int) -> bool:
    """Waits until at most `pending` items are not yet confirmed; returns whether it is so."""
    from reverb import errors

    try:
        writer.flush(pending, timeout_ms=timeout_ms)
    except errors.DeadlineExceededError:
        return False
    return True
