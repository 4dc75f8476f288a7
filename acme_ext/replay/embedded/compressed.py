"""Stores large rows compressed, one by one, so that each can be read alone."""

import pathlib
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from acme_ext.replay.embedded.rows import FIRST_ROWS, ArrayRows, Rows, warn_of_memory

_LARGE = 4096  # bytes of a row from which on rows are compressed
_LEVEL = 1  # zlib's fastest: a row of Atari frames shrinks from 35 kB to 1 or 2 kB
_RAW = -zlib.MAX_WBITS  # without a checksum, which would take as long as the rest of decompressing
_LEAST = 0.9  # a row that doesn't shrink below this share is stored as it is
_RETRY = 16  # after such a row, every 16th is tried again


class Compression:
    """Compresses rows of `nbytes` bytes one by one, where that makes them smaller."""

    def __init__(self, nbytes: int):
        self._nbytes = nbytes
        self._skip = 0  # rows until the next attempt to compress one

    @classmethod
    def of(cls, nbytes: int) -> "Compression | None":
        """Returns the compression of a table's rows; None if they are small and stored as they are."""
        return cls(nbytes) if nbytes >= _LARGE else None

    def pack(self, rows: np.ndarray) -> list[bytes]:
        """Returns rows, uint8 `[M, nbytes]`, as M compressed rows."""
        return [self._pack(row.tobytes()) for row in rows]

    def unpack(self, packed: list[bytes]) -> np.ndarray:
        """Returns what was packed."""
        rows = np.empty((len(packed), self._nbytes), np.uint8)
        for row, each in zip(rows, packed, strict=True):
            whole = each if len(each) == self._nbytes else zlib.decompress(each, _RAW, self._nbytes)
            row[:] = np.frombuffer(whole, np.uint8)
        return rows

    def _pack(self, row: bytes) -> bytes:
        if self._skip:
            self._skip -= 1
            return row
        compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW)
        packed = compressor.compress(row) + compressor.flush()
        if len(packed) < _LEAST * len(row):
            return packed
        self._skip = _RETRY - 1
        return row


def make_rows(nbytes: int, most: int, report: Callable[[str], Any], *, packed: bool = False) -> Rows:
    """Returns a store of up to `most` rows of `nbytes` bytes; `report` is called with a warning about memory.

    With `packed`, if the rows are to be compressed, the store's user does it.
    """
    if (compression := Compression.of(nbytes)) is None:
        return ArrayRows(nbytes, most, report)
    return PackedRows(most, report) if packed else CompressedRows(compression, most, report)


class PackedRows:
    """Compressed rows, bytes of any length."""

    def __init__(self, most: int, report: Callable[[str], Any] = print):
        self._most, self._report = most, report
        self._rows: list[bytes] = []
        self._check_at = FIRST_ROWS

    def write(self, slots: np.ndarray, rows: Any) -> None:
        for slot, row in zip(slots.tolist(), rows, strict=True):
            if slot == len(self._rows):
                self._rows.append(row)
            else:
                self._rows[slot] = row
        if len(self._rows) >= self._check_at:
            self._check_memory()

    def read(self, slots: np.ndarray) -> Any:
        return [self._rows[slot] for slot in slots.tolist()]

    def save(self, folder: pathlib.Path) -> None:
        np.save(folder / "sizes.npy", np.array([len(row) for row in self._rows], np.int64))
        with open(folder / "rows.bin", "wb") as file:
            file.writelines(self._rows)

    def load(self, folder: pathlib.Path) -> None:
        with open(folder / "rows.bin", "rb") as file:
            self._rows = [file.read(size) for size in np.load(folder / "sizes.npy").tolist()]

    def _check_memory(self) -> None:
        """Estimates what the table will need from the rows so far; repeated whenever their number has doubled."""
        left = self._most - len(self._rows)
        mean = sum(map(len, self._rows)) / len(self._rows)
        warned = warn_of_memory(left * mean, self._report)
        self._check_at = 2**62 if warned else 2 * len(self._rows)


class CompressedRows(PackedRows):
    """Rows that this object compresses."""

    def __init__(self, compression: Compression, most: int, report: Callable[[str], Any] = print):
        super().__init__(most, report)
        self._compression = compression

    def write(self, slots: np.ndarray, rows: Any) -> None:
        super().write(slots, self._compression.pack(rows))

    def read(self, slots: np.ndarray) -> Any:
        return self._compression.unpack(super().read(slots))
