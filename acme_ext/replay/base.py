"""What every kind of replay shares: one Reverb table of packed rows, its writers and its readers."""

import abc
import dataclasses
import functools
import math
from typing import Any, ClassVar, Literal, TypeVar

from acme_ext.errors import UsageError
from acme_ext.replay import blocks
from acme_ext.replay.dataset import Dataset
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.prioritized import PrioritySink
from acme_ext.replay.rows import Layout, OnWait, Sink, StructuredSink
from acme_ext.types import Array, EnvironmentSpec, Tree
from acme_ext.utils.checks import Checked, PositiveInt, Share

Self = TypeVar("Self", bound="Replay")


@dataclasses.dataclass(frozen=True)
class Replay(Checked, abc.ABC):
    """Items in one Reverb table, each a flat row of bytes. The subclass says what an item is and how it is written.

    A subclass may put a block of rows into one item of Reverb's table (`block`). Whoever uses a replay need not know:
    sizes, limits, counts and batches are of rows.

    Attributes:
        spec: of the environment.
        batch_size: items in a learner's batch.
        max_size: items; the oldest are removed first.
        limit: how many samples each insert pays for; None allows sampling from the first item on, without a limit. A
            queue has a limit of its own and takes none.
        order: `uniform`; `prioritized`, with probability p_i**priority_exponent / sum; or `queue`, each item once,
            first in, first out, writers waiting while it is full.
        priority_exponent: alpha of prioritized sampling (Schaul et al. 2016, eq. 1).
        priority_offset: added to every |TD error|, so that no priority is zero (Schaul et al. 2016, section 3.3).
        importance_exponent: beta of the importance weights at first (Schaul et al. 2016, section 3.4).
        importance_exponent_end: beta in the end.
        importance_anneal_steps: learner steps over which beta goes linearly from the first to the last.
        demo_ratio: the probability that an item of a batch is a demonstration, in a run that has some (see `Mixed`).
        priority: gives the |TD errors| that new items are first given priorities by. None takes the largest that the
            learner has seen so far (Schaul et al. 2016, algorithm 1, line 6).
        extras: specs of the policy's extras, to store them with the items; nothing to store none.
        table: the table's name.
    """

    item: ClassVar[str]
    """What an item is called in messages."""

    spec: EnvironmentSpec
    batch_size: PositiveInt
    max_size: PositiveInt = 100_000
    limit: RateLimit | None = None
    order: Literal["uniform", "prioritized", "queue"] = "uniform"
    priority_exponent: float = 0.6
    priority_offset: float = 1e-3
    importance_exponent: float = 0.4
    importance_exponent_end: float = 1.0
    importance_anneal_steps: int = 10_000
    demo_ratio: Share = 0.25
    priority: Any = None
    extras: Tree = ()
    table: str = "items"

    def __post_init__(self):
        super().__post_init__()
        if self.priority is not None and not self.prioritized:
            raise UsageError(f"only a prioritized replay takes first priorities of new {self.item}s.")
        if self.fifo and self.limit is not None:
            raise UsageError(f"a queue has its own rate limit (each {self.item} is sampled once) and takes no other.")
        if self.limit is not None:
            self.limit.check_table(self.max_size)

    @classmethod
    def of(cls: type[Self], spec: EnvironmentSpec, config: Any, *, priority: Any = None, **fields: Any) -> Self:
        """Returns the replay that a config describes (see `replay.config`), with other fields as they are given;
        `priority` is left out where the replay is not prioritized.
        """
        given = {**config.arguments(), **fields}
        return cls(spec=spec, priority=priority if given["order"] == "prioritized" else None, **given)

    @property
    @abc.abstractmethod
    def _layout(self) -> Layout:
        """How an item lies in its row."""

    @abc.abstractmethod
    def writer(
        self, client: Any, num_envs: int, *, max_pending: int | None = None, on_wait: OnWait = lambda: None
    ) -> Any:
        """Returns a writer for `num_envs` environments that step together.

        Args:
            client: a Reverb client of the table's server, or a sink that takes the rows.
            num_envs: environments.
            max_pending: rows that may wait for the server before the writer blocks; None never blocks.
            on_wait: called a few times a second while the writer waits; may raise to end the wait.
        """

    @functools.cached_property
    def block(self) -> int:
        """Rows in one item of Reverb's table, which are written and drawn together."""
        return 1

    @property
    def waiting(self) -> int:
        """Rows that a writer keeps back to shuffle them, see `blocks.pool`."""
        return 0

    def for_envs(self: Self, num_envs: int) -> Self:
        """Returns the replay that suits writers of `num_envs` environments each; what the user has set stays."""
        del num_envs
        return self

    @property
    def prioritized(self) -> bool:
        """Whether items are drawn by priorities, which the learner sends back to the table."""
        return self.order == "prioritized"

    @property
    def fifo(self) -> bool:
        """Whether every item is sampled once, first in, first out."""
        return self.order == "queue"

    @property
    def needs_largest_error(self) -> bool:
        """Whether new items are first given the largest |TD error| so far, which the policy then has to pass on."""
        return self.prioritized and self.priority is None

    def importance_exponent_at(self, learner_steps: Array) -> Array:
        """Returns beta of the importance weights after so many learner steps; pure."""
        import jax.numpy as jnp

        share = jnp.minimum(learner_steps / self.importance_anneal_steps, 1.0)
        return self.importance_exponent + share * (self.importance_exponent_end - self.importance_exponent)

    def samples_allowed(self, inserts: int) -> float:
        """Returns the total number of samples that the rate limit allows once `inserts` rows were inserted in total.

        A single process learns as often as this grows, so that a call of the learner never blocks.
        """
        if self.fifo:
            return inserts
        return math.inf if self.limit is None else self.block * self._table_limit.samples_allowed(inserts // self.block)

    def tables(self) -> list:
        """Returns the `reverb.Table`s that a server must hold."""
        import reverb
        import tensorflow as tf

        signature = tf.TensorSpec(self._item_shape, tf.uint8)
        if self.fifo:
            return [reverb.Table.queue(self.table, self.max_size, signature=signature)]
        selectors = reverb.selectors
        sampler = selectors.Prioritized(self.priority_exponent) if self.prioritized else selectors.Uniform()
        return [
            reverb.Table(
                name=self.table,
                sampler=sampler,
                remover=selectors.Fifo(),
                max_size=-(-self.max_size // self.block),
                rate_limiter=self._table_limit.make(),
                signature=signature,
            )
        ]

    def _sink(self, client: Any) -> Sink:
        if isinstance(client, Sink):
            sink = client
        elif self.prioritized:
            sink = PrioritySink(client, self.table, self.priority_offset)
        else:
            sink = StructuredSink(client, self.table, self._item_shape)
        return sink if self.block == 1 else blocks.BlockSink(sink, self.block, self.waiting)

    @property
    def _item_shape(self) -> tuple[int, ...]:
        """The shape of an item in bytes: of a row, or of a block of them."""
        return (self._layout.nbytes,) if self.block == 1 else (self.block, self._layout.nbytes)

    @functools.cached_property
    def _table_limit(self) -> RateLimit:
        """The rate limit counted in items of the table."""
        return blocks.limit_of(self.limit, self.block)

    def dataset(self, client: Any, num_batches: int = 1, *, on_wait: OnWait = lambda: None) -> Dataset:
        """Returns an iterator over `num_batches` batches at a time, one after the other in one `RawBatch` of
        `num_batches * batch_size` rows; `on_wait` as for `writer`.
        """
        size = self.batch_size * num_batches // self.block
        workers = 1 if self.fifo else 2
        return Dataset(client, self.table, self._item_shape, size, workers=workers, on_wait=on_wait)

    def split(self: Self, shards: int) -> Self:
        """Returns one of `shards` equal parts of this replay, each on a server of its own, that act as one together.

        Each part has an equal share of the size, the rate limit and every batch.

        Raises:
            UsageError: the batch does not divide.
        """
        if self.batch_size % shards:
            raise UsageError(f"batch_size {self.batch_size} does not divide over {shards} replay shards.")
        limit = self.limit and self.limit.divided(shards)
        return dataclasses.replace(
            self, batch_size=self.batch_size // shards, max_size=-(-self.max_size // shards), limit=limit
        )

    def example(self, size: int) -> Any:
        """Returns items `[size, ...]` as `decode` gives them, with shapes and dtypes for leaves."""
        import jax
        import jax.numpy as jnp

        rows = jax.ShapeDtypeStruct((size, self._layout.nbytes), jnp.uint8)
        return jax.eval_shape(self.decode, rows)

    @abc.abstractmethod
    def decode(self, rows: Array) -> Any:
        """Returns the items in rows of bytes `[B, nbytes]`; pure, for use inside a compiled step."""
