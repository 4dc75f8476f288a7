"""Tables in memory: what they share, and the ring of rows that are drawn at random; see `queue` for the other kind."""

import json
import math
import pathlib
from typing import Any, ClassVar

import numpy as np

from acme_ext.replay.base import Replay
from acme_ext.replay.embedded.rows import Rows
from acme_ext.replay.fixed import restore_generator, save_generator
from acme_ext.replay.rows import DirectSink, OnWait
from acme_ext.replay.sum_tree import SumTree
from acme_ext.replay.table import Counts, RawBatch


class OtherTableError(Exception):
    """A folder holds a table with other settings; the message says which."""


class EmbeddedTable:
    """What the tables of this package share: counts, the rate limit, and the interface of `replay.table.Table`.

    A row's key is the number of rows that were inserted before it. Not thread-safe.

    Args:
        replay: the settings.
    """

    threaded: ClassVar[bool] = False

    def __init__(self, replay: Replay):
        self._replay = replay
        self.ahead = 0
        self._inserted = self._sampled = 0

    def insert(self, rows: np.ndarray, errors: np.ndarray | None) -> None:
        """Inserts rows, uint8 `[M, nbytes]`, with |TD errors| `[M]` if the table is prioritized.

        It ignores the rate limit: in one process, nobody else could make room. See `inserts_allowed`.
        """
        raise NotImplementedError

    def sample(self, count: int) -> RawBatch:
        """Draws `count` rows; the rate limit must allow them, see `samples_allowed`."""
        raise NotImplementedError

    def update(self, keys: np.ndarray, errors: np.ndarray) -> None:
        """See `Table.update`."""
        raise NotImplementedError

    @property
    def samples_allowed(self) -> float:
        """How many more rows the rate limit allows to be sampled now."""
        return self._replay.samples_allowed(self._inserted) - self._sampled

    @property
    def inserts_allowed(self) -> float:
        """How many more rows the rate limit allows to be inserted now."""
        return self._replay.inserts_allowed(self._sampled) - self._inserted

    @property
    def size(self) -> int:
        """Rows in the table."""
        raise NotImplementedError

    def sink(self) -> DirectSink:
        return DirectSink(self.insert)

    def batches(self, num_batches: int = 1, *, on_wait: OnWait = lambda: None) -> "EmbeddedBatches":
        del on_wait  # nothing waits here
        return EmbeddedBatches(self, self._replay.batch_size * num_batches)

    def counts(self) -> Counts:
        return Counts(self._inserted, self._sampled, self.size)

    def describe(self) -> str:
        replay, (inserted, sampled, held) = self._replay, self.counts()
        size = f"{held} of {replay.max_size} items"
        text = f"table {replay.table!r} holds {size}, {inserted} inserted and {sampled} sampled"
        if replay.limit is not None and inserted < replay.limit.min_size:
            return f"{text}, sampling waits for {replay.limit.min_size} items"
        left = [("samples", self.samples_allowed), ("inserts", self.inserts_allowed)]
        limits = (f"{'any number of' if math.isinf(count) else f'{count:g}'} {name}" for name, count in left)
        return f"{text}; allowed now: {' and '.join(limits)}"

    def save(self, folder: pathlib.Path) -> None:
        """Writes the table into a folder; `load` reads it."""
        state = {"inserted": self._inserted, "sampled": self._sampled, **self._describe_contents()}
        (folder / "table.json").write_text(json.dumps(state), encoding="utf-8")

    def load(self, folder: pathlib.Path) -> None:
        """Reads what `save` wrote.

        Raises:
            OtherTableError: it has rows of another size, or another order or size.
        """
        state = json.loads((folder / "table.json").read_text(encoding="utf-8"))
        mine = self._describe_contents()
        if changed := [name for name in ("nbytes", "order", "max_size") if state[name] != mine[name]]:
            raise OtherTableError(f"{changed[0]} is {state[changed[0]]} there and {mine[changed[0]]} here")
        self._inserted, self._sampled = state["inserted"], state["sampled"]
        self._load_contents(folder, state)

    def _load_contents(self, folder: pathlib.Path, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def _describe_contents(self) -> dict[str, Any]:
        replay = self._replay
        return {"nbytes": replay.nbytes, "order": replay.order, "max_size": replay.max_size}


class Ring(EmbeddedTable):
    """Rows that are drawn at random, uniformly or by priority; a full table's oldest rows are overwritten.

    Args:
        replay: the settings.
        seed: seeds the draws.
        rows: stores the rows; `compressed.PackedRows` if they are inserted and drawn in compressed form.
    """

    def __init__(self, replay: Replay, seed: int, rows: Rows):
        super().__init__(replay)
        self._rows = rows
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._weights = SumTree(replay.max_size) if replay.prioritized else None

    @property
    def size(self) -> int:
        return min(self._inserted, self._replay.max_size)

    def insert(self, rows: np.ndarray, errors: np.ndarray | None) -> None:
        most = self._replay.max_size
        if len(rows) > most:  # a slot must not occur twice
            self.insert(rows[:most], None if errors is None else errors[:most])
            self.insert(rows[most:], None if errors is None else errors[most:])
            return
        slots = np.arange(self._inserted, self._inserted + len(rows)) % most
        self._rows.write(slots, rows)
        if self._weights is not None:
            assert errors is not None
            self._weights.set(slots, self._weight(np.where(np.isfinite(errors), errors, 0)))
        self._inserted += len(rows)

    def sample(self, count: int) -> RawBatch:
        size, weights = self.size, self._weights
        if weights is None or weights.total == 0:
            slots = self._rng.integers(0, size, count)
            probability = np.full(count, 1 / size, np.float32)
        else:
            slots = weights.draw(self._rng, count)
            probability = (weights[slots] / weights.total).astype(np.float32)
        self._sampled += count
        start = self._inserted - size  # the oldest row's key
        keys = start + (slots - start) % self._replay.max_size
        return RawBatch(self._rows.read(slots), keys.astype(np.uint64), probability, np.full(count, size))

    def update(self, keys: np.ndarray, errors: np.ndarray) -> None:
        if self._weights is None:
            return
        keys = keys.astype(np.int64)
        held = (keys >= self._inserted - self.size) & (keys < self._inserted) & np.isfinite(errors)
        if not held.all():
            keys, errors = keys[held], errors[held]
        self._weights.set(keys % self._replay.max_size, self._weight(errors))

    def _weight(self, errors: np.ndarray) -> np.ndarray:
        priority = np.asarray(errors, np.float32) + np.float32(self._replay.priority_offset)
        return priority.astype(np.float64) ** self._replay.priority_exponent

    def save(self, folder: pathlib.Path) -> None:
        super().save(folder)
        self._rows.save(folder)
        if self._weights is not None:
            np.save(folder / "weights.npy", self._weights[: self.size])

    def _load_contents(self, folder: pathlib.Path, state: dict[str, Any]) -> None:
        self._rows.load(folder)
        restore_generator(self._rng, state["rng"])
        if self._weights is not None:
            weights = np.load(folder / "weights.npy")
            self._weights.set(np.arange(len(weights)), weights)

    def _describe_contents(self) -> dict[str, Any]:
        return {**super()._describe_contents(), "rng": save_generator(self._rng)}


class EmbeddedBatches:
    """Batches of a table of this process, drawn when they are asked for."""

    def __init__(self, table: EmbeddedTable, size: int):
        self._table, self._size = table, size

    def __iter__(self) -> "EmbeddedBatches":
        return self

    def __next__(self) -> RawBatch:
        if self._table.samples_allowed < self._size:
            raise RuntimeError(
                f"the rate limit doesn't allow a batch of {self._size} rows yet, and nobody else in this process could "
                f"insert more: {self._table.describe()}"
            )
        return self._table.sample(self._size)

    def close(self, *, wake: bool = False) -> None:
        pass
