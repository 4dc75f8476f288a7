"""Tables: where a replay's rows are stored, as the parts of a run use them. `replay.stores` makes them."""

import pathlib
from collections.abc import Iterator
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from acme_ext.replay.rows import OnWait, Sink


class RawBatch(NamedTuple):
    """A batch of packed rows from a table; the replay's `decode` unpacks them inside the compiled step."""

    rows: np.ndarray  # uint8 [N, nbytes], or [N, T, nbytes]
    keys: np.ndarray  # uint64 [N] the items' keys; in Reverb, all rows of a block have the same key
    probability: np.ndarray  # float32 [N] each row's probability in its table; see `Mixed` for several tables
    size: np.ndarray | None = None  # int64 [N] rows in the table at the time of sampling
    source: np.ndarray | None = None  # uint8 [N] the number of each row's source in a `Mixed`


class Counts(NamedTuple):
    """A table's counts, in rows."""

    inserted: int  # from the beginning, including those before a restore
    sampled: int  # likewise
    size: int  # rows in the table now


class LostBatchError(Exception):
    """A batch that is due will never arrive."""


class Batches(Iterator[RawBatch], Protocol):
    """Batches of a table, drawn as its order and its rate limit say."""

    def close(self, *, wake: bool = False) -> None:
        """Ends the reading; with `wake`, faster, but the table can't be used or saved any more."""


class Table(Protocol):
    """One table of a replay, as the parts of a run use it."""

    ahead: int
    """Learner calls for which batches are fetched before they are due."""
    threaded: ClassVar[bool]
    """Whether `update` may wait, so that a thread should call it instead of the learner's."""

    def sink(self) -> Sink:
        """Returns a new sink, to which a writer sends its rows."""
        ...

    def batches(self, num_batches: int = 1, *, on_wait: OnWait = lambda: None) -> Batches:
        """Returns an iterator whose items are `num_batches` batches, concatenated in one `RawBatch`.

        `on_wait` is called a few times a second while a reader waits; it may raise to end the wait. `LostBatchError`
        means that a batch will never arrive.
        """
        ...

    def update(self, keys: np.ndarray, errors: np.ndarray) -> None:
        """Sets the priorities of items `keys` `[M]` by their new |TD errors| `[M]`.

        If a key occurs twice, the later error counts. Keys of items that have left the table are ignored.
        """

    def counts(self) -> Counts:
        """Returns the table's counts."""
        ...

    def describe(self) -> str:
        """Returns in words the state of the table and of its rate limit, to explain why a run is waiting."""
        ...


class RemoteTable(Table, Protocol):
    """A table that a store in another process holds, see `stores.serve`."""

    def checkpoint(self, folder: pathlib.Path) -> None:
        """Makes the store write the table's contents to a new folder; both processes must see the same files."""


class Store(Protocol):
    """Holds a table in this process."""

    @property
    def table(self) -> Table:
        """The table."""
        ...

    def checkpoint(self, folder: pathlib.Path) -> None:
        """Writes the table's contents to a new folder."""

    def close(self) -> None:
        """Frees the table; its readers and writers fail afterwards."""
