"""Stores rows of bytes in memory; see `compressed` for large ones."""

import pathlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from acme_ext.utils.system import free_memory

FIRST_ROWS = 1024
"""Rows that there is room for at first."""


class Rows(Protocol):
    """Stores rows by their slot, an index from 0; a new slot is the one after the largest so far.

    The rows are uint8 `[M, nbytes]`; in `compressed.PackedRows`, they are compressed ones.
    """

    def write(self, slots: np.ndarray, rows: Any) -> None:
        """Stores M rows in slots `[M]`."""

    def read(self, slots: np.ndarray) -> Any:
        """Returns the rows of slots `[M]`."""
        ...

    def save(self, folder: pathlib.Path) -> None:
        """Writes all rows into a folder."""

    def load(self, folder: pathlib.Path) -> None:
        """Reads the rows that `save` wrote."""


def warn_of_memory(needed: float, report: Callable[[str], Any]) -> bool:
    """Warns if the full table needs more memory than is free; returns whether it did."""
    if needed <= (free := free_memory()):
        return False
    report(
        f"warning: the replay needs about {needed / 1e9:.1f} GB more memory until it is full, and {free / 1e9:.1f} GB "
        "are free: choose a smaller replay.max_size."
    )
    return True


class ArrayRows:
    """Rows in one array, which grows up to its largest size."""

    def __init__(self, nbytes: int, most: int, report: Callable[[str], Any] = print):
        self._most, self._used = most, 0
        self._array = np.empty((min(most, FIRST_ROWS), nbytes), np.uint8)
        warn_of_memory(most * nbytes, report)

    def write(self, slots: np.ndarray, rows: np.ndarray) -> None:
        self._grow(int(slots.max()) + 1)
        self._array[slots] = rows

    def read(self, slots: np.ndarray) -> np.ndarray:
        return self._array.take(slots, axis=0)

    def save(self, folder: pathlib.Path) -> None:
        np.save(folder / "rows.npy", self._array[: self._used])

    def load(self, folder: pathlib.Path) -> None:
        rows = np.load(folder / "rows.npy", mmap_mode="r")
        self._grow(len(rows))
        self._array[: len(rows)] = rows

    def _grow(self, used: int) -> None:
        self._used = max(self._used, used)
        if used > len(self._array):
            size = min(self._most, max(used, 2 * len(self._array)))
            self._array.resize((size, self._array.shape[1]), refcheck=False)  # the system moves the pages, if it can
