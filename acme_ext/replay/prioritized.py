"""Sends items with individual priorities to a table."""

from typing import Any

import numpy as np

from acme_ext.replay.rows import ReverbSink


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
