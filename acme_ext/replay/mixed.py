"""Several sources of experience as one: what actors write to Reverb, and recorded data beside it."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from acme_ext.errors import UsageError
from acme_ext.replay.dataset import RawBatch
from acme_ext.replay.fixed import FixedRows, restore_generator, save_generator


class Source(NamedTuple):
    """Where items come from, and the probability that one does."""

    items: Iterator[RawBatch] | FixedRows
    share: float


class Mixed(Iterator[RawBatch]):
    """Batches each item of which comes from a named source, with a fixed probability.

    ```
    Mixed({"own": Source(dataset, 0.75), "demos": Source(FixedRows(rows), 0.25)}, size, seed=0)
    ```

    The first source is a replay's dataset. A whole batch is drawn from it, and items in random places are replaced by
    the other sources' rows, which stay for ever. So the replay's rate limit counts every item that is learned from,
    wherever it comes from; and what is replaced in a batch is not learned from in it, and keeps its priority.

    A row's `probability` is N times the one with which its own source of N rows drew it, since that, and not its
    share, is what importance weights make up for.

    Args:
        sources: by name, the first of them a dataset. A batch's `source` is their number in this order.
        size: rows in a batch.
        seed: of the draws.
        first_batches: so many batches are of the recorded sources alone, for learning before anything is experienced.

    Raises:
        UsageError: a share lies outside of [0, 1], or they don't add up to 1.
    """

    def __init__(self, sources: Mapping[str, Source], size: int, *, seed: int, first_batches: int = 0):
        self._names, self._size, self._first_batches = list(sources), size, first_batches
        own, *rest = sources.values()
        assert not isinstance(own.items, FixedRows)
        self._own = own.items
        self.fixed: dict[int, FixedRows] = {}
        """The recorded sources, by their number."""
        for number, source in enumerate(rest, 1):
            assert isinstance(source.items, FixedRows)
            self.fixed[number] = source.items
        shares = np.array([source.share for source in sources.values()])
        if not (np.all((shares >= 0) & (shares <= 1)) and np.isclose(shares.sum(), 1)):
            said = ", ".join(f"{name} {share:g}" for name, share in zip(self._names, shares, strict=True))
            raise UsageError(f"the shares of sources lie in [0, 1] and add up to 1, which these don't: {said}.")
        self._ends = np.cumsum(shares)[:-1]  # of all but the last, of which a number in [0, 1) tells the source
        others = np.where(np.arange(len(shares)) > 0, shares, 0)
        self._first_ends = np.cumsum(others / max(others.sum(), 1e-9))[:-1]
        self._rng = np.random.Generator(np.random.PCG64(seed))
        self._given = 0
        self._lock = threading.Lock()
        self._drawn = np.zeros(len(shares), np.int64)

    @property
    def drawn(self) -> dict[str, int]:
        """Items that were given so far, by the name of their source."""
        with self._lock:
            return dict(zip(self._names, self._drawn.tolist(), strict=True))

    def __next__(self) -> RawBatch:
        alone = self._given < self._first_batches
        if alone:
            row = next(iter(self.fixed.values())).rows[0]
            rows = np.empty((self._size, *row.shape), row.dtype)
            keys, weight = np.empty(self._size, np.uint64), np.empty(self._size, np.float32)
        else:
            # Waits, and may raise; only what comes after counts.
            own = next(self._own)
            rows, keys = own.rows.copy(), own.keys.copy()  # Reverb's can't be written to
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
        """Returns what the draws go on from, plain JSON: the generator, the counts and the priorities."""
        errors = {str(number): fixed.save() for number, fixed in self.fixed.items()}
        return {"rng": save_generator(self._rng), "given": self._given, "drawn": self.drawn, "errors": errors}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Takes up what `save` returned, of the same sources."""
        restore_generator(self._rng, saved["rng"])
        self._given = saved["given"]
        self._drawn = np.array([saved["drawn"][name] for name in self._names], np.int64)
        for number, fixed in self.fixed.items():
            fixed.restore(saved["errors"][str(number)])
