"""Sinks that send rows to a Reverb table."""

import abc
import ctypes
from typing import Any

import numpy as np

from acme_ext.replay.rows import OnWait

_WAIT_MS = 200


class ReverbSink(abc.ABC):
    """A sink that sends each row as an item, with one of Reverb's writers."""

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

    def has_sent(self, pending: int, *, timeout_ms: int = 1) -> bool:
        from reverb import errors  # with a timeout of 0, TrajectoryWriter waits without limit

        try:
            self._writer.flush(pending, timeout_ms=timeout_ms)
        except errors.DeadlineExceededError:
            return False
        return True


class StructuredSink(ReverbSink):
    """A sink for items of equal priority.

    It uses Reverb's cheapest writer, StructuredWriter, which takes about 15 us of CPU per item.
    """

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
            # Deleting Reverb's writer blocks all Python threads until every row is confirmed, which a rate limit can
            # delay forever. So a writer with unconfirmed rows is never deleted.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._writer))
        self._writer = None


class PrioritySink(ReverbSink):
    """A sink for rows with individual priorities, |TD error| + `offset`.

    It uses Reverb's TrajectoryWriter, because a StructuredWriter has a fixed priority.
    """

    def __init__(self, client: Any, table: str, offset: float):
        super().__init__(client.trajectory_writer(num_keep_alive_refs=1))
        self._table, self._offset = table, offset

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        assert errors is not None
        # A priority of NaN ends the table's thread in the server. The learner reports such errors.
        errors = np.where(np.isfinite(errors), errors, 0)
        writer, table = self._writer, self._table
        for row, priority in zip(rows, (errors + self._offset).tolist(), strict=True):
            writer.append(row)
            writer.create_item(table, priority, writer.history[-1])
        return len(rows)

    def close(self) -> None:
        self._writer.close()
