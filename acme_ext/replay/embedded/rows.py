"""Stores rows of bytes in memory: small ones in one growing array, large ones compressed."""

import json
import pathlib
import zlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from acme_ext.utils.memory import free_memory

_LARGE = 4096  # bytes of a row from which on rows are compressed
_LEVEL = 1  # zlib's fastest: a row of Atari frames shrinks from 35 kB to 1 or 2 kB
_LEAST = 0.9  # a row that doesn't shrink below this share is stored as it is
_RETRY = 16  # after such a row, every 16th is tried again
_FIRST = 1024  # rows that there is room for at first


class Rows(Protocol):
    """Stores rows by their slot, an index from 0; a new slot is the one after the largest so far."""

    def write(self, slots: np.ndarray, rows: np.ndarray) -> None:
        """Stores rows, uint8 `[M, nbytes]`, in slots `[M]`."""

    def read(self, slots: np.ndarray) -> np.ndarray:
        """Returns the rows of slots `[M]`, uint8 `[M, nbytes]`."""
        ...

    def save(self, folder: pathlib.Path) -> None:
        """Writes all rows into a folder."""

    def load(self, folder: pathlib.Path) -> None:
        """Reads the rows that `save` wrote."""


def make_rows(nbytes: int, most: int, report: Callable[[str], Any]) -> Rows:
    """Returns a store of up to `most` rows of `nbytes` bytes; `report` is called with a warning about memory."""
    return CompressedRows(nbytes, most, report) if nbytes >= _LARGE else ArrayRows(nbytes, most, report)


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
        self._array = np.empty((min(most, _FIRST), nbytes), np.uint8)
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


class CompressedRows:
    """Rows that are compressed one by one, where that makes them smaller."""

    def __init__(self, nbytes: int, most: int, report: Callable[[str], Any] = print):
        self._nbytes, self._most, self._report = nbytes, most, report
        self._rows: list[bytes] = []
        self._skip = 0  # rows until the next attempt to compress one
        self._check_at = _FIRST

    def write(self, slots: np.ndarray, rows: np.ndarray) -> None:
        for slot, row in zip(slots.tolist(), rows, strict=True):
            packed = self._pack(row.tobytes())
            if slot == len(self._rows):
                self._rows.append(packed)
            else:
                self._rows[slot] = packed
        if len(self._rows) >= self._check_at:
            self._check_memory()

    def read(self, slots: np.ndarray) -> np.ndarray:
        out = np.empty((len(slots), self._nbytes), np.uint8)
        for row, slot in zip(out, slots.tolist(), strict=True):
            packed = self._rows[slot]
            row[:] = np.frombuffer(packed if len(packed) == self._nbytes else zlib.decompress(packed), np.uint8)
        return out

    def save(self, folder: pathlib.Path) -> None:
        np.save(folder / "sizes.npy", np.array([len(row) for row in self._rows], np.int64))
        with open(folder / "rows.bin", "wb") as file:
            file.writelines(self._rows)
        (folder / "compression.json").write_text(json.dumps({"skip": self._skip}), encoding="utf-8")

    def load(self, folder: pathlib.Path) -> None:
        with open(folder / "rows.bin", "rb") as file:
            self._rows = [file.read(size) for size in np.load(folder / "sizes.npy").tolist()]
        self._skip = json.loads((folder / "compression.json").read_text(encoding="utf-8"))["skip"]

    def _pack(self, row: bytes) -> bytes:
        if self._skip:
            self._skip -= 1
            return row
        packed = zlib.compress(row, _LEVEL)
        if len(packed) < _LEAST * len(row):
            return packed
        self._skip = _RETRY - 1
        return row

    def _check_memory(self) -> None:
        """Estimates what the table will need from the rows so far; repeated whenever their number has doubled."""
        left = self._most - len(self._rows)
        mean = sum(map(len, self._rows)) / len(self._rows)
        warned = warn_of_memory(left * mean, self._report)
        self._check_at = 2**62 if warned else 2 * len(self._rows)
