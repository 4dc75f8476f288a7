"""What every kind of replay shares: one Reverb table of packed rows, and what reads it."""

import abc
import dataclasses
from typing import Any, ClassVar, Literal, TypeVar

from acme_ext.errors import UsageError
from acme_ext.replay import sinks
from acme_ext.replay.dataset import Dataset
from acme_ext.replay.layout import Layout
from acme_ext.replay.limits import RateLimit
from acme_ext.types import Array, EnvironmentSpec, Tree

Self = TypeVar("Self", bound="RowReplay")


@dataclasses.dataclass(frozen=True)
class RowReplay(abc.ABC):
    """Items in one Reverb table, each a flat row of bytes; what an item is, and its writer, is the subclass's.

    Attributes:
        spec: of the environment.
        batch_size: items in a learner's batch.
        max_size: items; the oldest leave first.
        limit: how many samples each insert pays for; a queue has its own and takes None.
        order: `uniform`; `prioritized`, p_i**priority_exponent / sum; or `queue`, each item once, in the order of
            insertion, writers waiting while it is full.
        priority_exponent: alpha of prioritized sampling (Schaul et al. 2016, eq. 1).
        priority: first priorities of new items, needed by and only by a prioritized order.
        extras: specs of the policy's extras, where the learner wants them stored.
        table: the table's name.
    """

    item: ClassVar[str]
    """What an item is called in messages."""

    spec: EnvironmentSpec
    batch_size: int
    max_size: int = 100_000
    limit: RateLimit | None = None
    order: Literal["uniform", "prioritized", "queue"] = "uniform"
    priority_exponent: float = 0.6
    priority: Any = None
    extras: Tree = ()
    table: str = "items"

    def __post_init__(self):
        self._at_least_one("batch_size", "max_size")
        if (self.order == "prioritized") != (self.priority is not None):
            raise UsageError(
                f"a prioritized replay needs the first priority of new {self.item}s, and no other takes one."
            )
        if (self.order == "queue") != (self.limit is None):
            raise UsageError(
                f"a queue has its own rate limit (each {self.item} is sampled once); every other replay needs one."
            )
        if self.limit is not None:
            self.limit.check_table(self.max_size)

    def _at_least_one(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be at least 1.")

    @property
    @abc.abstractmethod
    def _layout(self) -> Layout:
        """How an item lies in its row."""

    @abc.abstractmethod
    def writer(
        self, client: Any, num_envs: int, *, max_pending: int | None = None, on_wait: sinks.OnWait = lambda: None
    ) -> Any:
        """Returns a writer for `num_envs` environments that step together."""

    @property
    def prioritized(self) -> bool:
        """Whether the learner's priorities go back to the table."""
        return self.order == "prioritized"

    @property
    def in_order(self) -> bool:
        """Whether every item is sampled once, in the order of insertion."""
        return self.order == "queue"

    def samples_allowed(self, inserts: int) -> float:
        """The number of samples that may have been drawn in all once `inserts` items were inserted in all."""
        return inserts if self.limit is None else self.limit.samples_allowed(inserts)

    def tables(self) -> list:
        """Returns the `reverb.Table`s that a server must hold."""
        import reverb
        import tensorflow as tf

        signature = tf.TensorSpec((self._layout.nbytes,), tf.uint8)
        if self.in_order or self.limit is None:
            return [reverb.Table.queue(self.table, self.max_size, signature=signature)]
        if self.prioritized:
            sampler = reverb.selectors.Prioritized(self.priority_exponent)
        else:
            sampler = reverb.selectors.Uniform()
        return [
            reverb.Table(
                name=self.table,
                sampler=sampler,
                remover=reverb.selectors.Fifo(),
                max_size=self.max_size,
                rate_limiter=self.limit.make(),
                signature=signature,
            )
        ]

    def _sink(self, client: Any) -> sinks.Sink:
        if self.prioritized:
            return sinks.PrioritySink(client, self.table)
        return sinks.StructuredSink(client, self.table, (self._layout.nbytes,))

    def dataset(self, client: Any, num_batches: int = 1, *, on_wait: sinks.OnWait = lambda: None) -> Dataset:
        """Iterates over `num_batches` batches at a time, end to end in one RawBatch of `num_batches * batch_size`
        rows.
        """
        shape = (self._layout.nbytes,)
        size = self.batch_size * num_batches
        workers = 1 if self.in_order else 2
        return Dataset(client, self.table, shape, size, workers=workers, on_wait=on_wait)

    def split(self: Self, shards: int) -> Self:
        """Returns one of `shards` equal parts of this replay, on a server each, that act as one together."""
        if self.batch_size % shards:
            raise UsageError(f"batch_size {self.batch_size} does not divide over {shards} replay shards.")
        limit = self.limit
        if limit is not None:
            tolerance = None
            if limit.tolerance is not None:
                tolerance = max(limit.tolerance / shards, 1.0, limit.samples_per_insert or 1.0)
            limit = dataclasses.replace(limit, min_size=-(-limit.min_size // shards), tolerance=tolerance)
        return dataclasses.replace(
            self, batch_size=self.batch_size // shards, max_size=-(-self.max_size // shards), limit=limit
        )

    @abc.abstractmethod
    def decode(self, rows: Array) -> Any:
        """Takes rows of bytes `[B, nbytes]` apart; pure, for use inside a compiled step."""
