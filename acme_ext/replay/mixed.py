"""Mixes several sources of experience: a replay that actors write to, and recorded data."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.replay.fixed import FixedRows, restore_generator, save_generator
from acme_ext.replay.table import RawBatch

_SOURCES = "the first source must be a replay's dataset, and the others must be FixedRows."


class Source(NamedTuple):
    """A source of items, and the probability that an item of a batch comes from it."""

    items: Iterator[RawBatch] | FixedRows
    share: float


class Mixed(Iterator[RawBatch]):
    """Batches whose items come from named sources, with fixed probabilities.

    ```
    Mixed({"own": Source(dataset, 0.75), "demos": Source(FixedRows(rows), 0.25)}, size, seed=0)
    ```

    The first source is a replay's dataset. Each batch is sampled from it, and then items at random places are replaced
    by rows of the other sources, which are fixed. So the replay's rate limit counts all items that are learned from,
    whatever their source. Replaced items are not used in that batch, and keep their priorities.

    A row's `probability` is N times the probability with which its own source of N rows sampled it. Importance weights
    correct for this probability, and not for the source's share.

    Args:
        sources: sources by name; the first is a dataset. A batch's `source` holds their numbers in this order.
        size: rows in a batch.
        seed: random seed.
        first_batches: number of batches at the start that contain only recorded data, for pretraining.

    Raises:
        UsageError: a share is outside [0, 1], or the shares don't add up to 1; or the first source is not a dataset, or
            another one is not a `FixedRows`.
    """

    def __init__(self, sources: Mapping[str, Source], size: int, *, seed: int, first_batches: int = 0):
        self._names, self._size, self._first_batches = list(sources), size, first_batches
        own, *rest = sources.values()
        if isinstance(own.items, FixedRows):
            raise UsageError(_SOURCES)
        self._own = own.items
        self.fixed: dict[int, FixedRows] = {}
        """The recorded sources, by their number."""
        for number, source in enumerate(rest, 1):
            if not isinstance(source.items, FixedRows):
                raise UsageError(_SOURCES)
            self.fixed[number] = source.items
        shares = np.array([source.share for source in sources.values()])
        if not (np.all((shares >= 0) & (shares <= 1)) and np.isclose(shares.sum(), 1)):
            said = ", ".join(f"{name} {share:g}" for name, share in zip(self._names, shares, strict=True))
            raise UsageError(f"the shares of sources lie in [0, 1] and add up to 1, which these don't: {said}.")
        self._ends = np.cumsum(shares)[:-1]  # cumulative shares; a random number in [0, 1) selects the source
        others = np.where(np.arange(len(shares)) > 0, shares, 0)
        self._first_ends = np.cumsum(others / max(others.sum(), 1e-9))[:-1]
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._given = 0
        self._lock = threading.Lock()
        self._drawn = np.zeros(len(shares), np.int64)

    @property
    def drawn(self) -> dict[str, int]:
        """The number of items so far from each source, by name."""
        with self._lock:
            return dict(zip(self._names, self._drawn.tolist(), strict=True))

    def __next__(self) -> RawBatch:
        alone = self._given < self._first_batches
        if alone:
            row = next(iter(self.fixed.values())).rows[0]
            rows = np.empty((self._size, *row.shape), row.dtype)
            keys, weight = np.empty(self._size, np.uint64), np.empty(self._size, np.float32)
        else:
            # This waits, and may raise; nothing is counted before it returns.
            own = next(self._own)
            rows, keys = own.rows.copy(), own.keys.copy()  # Reverb's arrays are read-only
            weight = (own.probability * (1 if own.size is None else own.size)).astype(np.float32)
        ends = self._first_ends if alone else self._ends
        source = np.searchsorted(ends, self._rng.random(self._size), side="right").astype(np.uint8)
        for number, fixed in self.fixed.items():
            places = np.flatnonzero(source == number)
            index, weight[places] = fixed.draw(self._rng, len(places))
            rows[places], keys[places] = fixed.rows[index], index
        self._given += 1
        with self._lock:
            self._drawn += np.bincount(source, minlength=len(self._drawn))
        return RawBatch(rows, keys, weight, source=source)

    def save(self) -> dict[str, Any]:
        """Returns the random generator, the counts and the priorities, as plain JSON."""
        errors = {str(number): fixed.save() for number, fixed in self.fixed.items()}
        return {"rng": save_generator(self._rng), "given": self._given, "drawn": self.drawn, "errors": errors}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Restores what `save` returned, for the same sources."""
        restore_generator(self._rng, saved["rng"])
        self._given = saved["given"]
        self._drawn = np.array([saved["drawn"][name] for name in self._names], np.int64)
        for number, fixed in self.fixed.items():
            fixed.restore(saved["errors"][str(number)])
