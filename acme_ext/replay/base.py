"""The base class of all replays: what an item is, how rows are made of steps, and how batches are made of rows."""

import abc
import dataclasses
import functools
from typing import Any, ClassVar, TypeVar

from acme_ext.config.types import PositiveInt
from acme_ext.errors import UsageError
from acme_ext.replay import blocks
from acme_ext.replay.config import Order, Sampling
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.rows import Layout, OnWait, Sink
from acme_ext.types import Array, EnvironmentSpec, Tree

Self = TypeVar("Self", bound="Replay")

_UNCONFIRMED = 16  # rows, plus one step of all its environments, that a writer may be ahead of the server


@dataclasses.dataclass(frozen=True)
class Replay(Sampling, abc.ABC):
    """A replay of items in one table, each a flat row of bytes. Subclasses define what an item is.

    Where the rows are stored is the table's matter, see `replay.table`. In Reverb, an item of the table may be a block
    of several rows (`block`). Users of a replay don't see blocks: sizes, limits, counts and batches are in rows.

    Attributes:
        spec: the environment's spec.
        batch_size: items in a learner's batch.
        max_size: maximum number of items; the oldest are removed first.
        limit: how many samples are allowed per insert. None: sampling is allowed from the first item on, without a
            limit. A queue has its own limit, so this must be None.
        order: how items are sampled. `uniform`; `prioritized`, with probability p_i**priority_exponent / sum; or
            `queue`: each item once, first in, first out, and writers wait while the queue is full.
        priority_exponent: alpha of prioritized sampling (Schaul et al. 2016, eq. 1).
        priority_offset: added to every |TD error|, so that no priority is zero (Schaul et al. 2016, section 3.3).
        importance_exponent: initial beta of the importance weights (Schaul et al. 2016, section 3.4).
        importance_exponent_end: final beta.
        importance_anneal_steps: learner steps over which beta changes linearly from its initial to its final value.
        demo_ratio: the probability that an item of a batch is a demonstration, in a run that has some (see `Mixed`).
        priority: computes the |TD errors| for the initial priorities of new items. None: new items get the largest
            |TD error| that the learner has seen so far (Schaul et al. 2016, algorithm 1, line 6).
        extras: specs of the policy's extras, if they are stored with the items; empty to store none.
        table: the table's name.
    """

    item: ClassVar[str]
    """The name of an item in messages."""

    spec: EnvironmentSpec
    batch_size: PositiveInt
    limit: RateLimit | None = None
    order: Order = "uniform"
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
        """Returns the replay that a config describes (see `replay.config`), with further fields as given.

        `priority` is ignored if the replay is not prioritized.
        """
        given = {**config.arguments(), **fields}
        return cls(spec=spec, priority=priority if given["order"] == "prioritized" else None, **given)

    @property
    @abc.abstractmethod
    def _layout(self) -> Layout:
        """The layout of an item in its row."""

    @property
    def nbytes(self) -> int:
        """Bytes in a row."""
        return self._layout.nbytes

    @abc.abstractmethod
    def writer(
        self, sink: Sink, num_envs: int, *, max_pending: int | None = None, on_wait: OnWait = lambda: None
    ) -> Any:
        """Returns a writer for `num_envs` environments that step in parallel.

        Args:
            sink: receives the rows; see `Table.sink`.
            num_envs: number of environments.
            max_pending: number of unconfirmed rows at which the writer blocks; None to never block.
            on_wait: called a few times a second while the writer waits; it may raise to end the wait.
        """

    @functools.cached_property
    def block(self) -> int:
        """Rows in one item of a Reverb table, which are written and sampled together."""
        return 1

    @property
    def waiting(self) -> int:
        """Rows that a writer holds back in order to shuffle them, see `blocks.pool`."""
        return 0

    def unconfirmed(self, num_envs: int) -> int:
        """Returns the number of unconfirmed rows at which the writer of an actor in a program blocks.

        With a queue, these are the rows of one step of its environments: more of them would wait outside the full queue
        and grow old, although `max_size` bounds the age of rows.
        """
        return num_envs if self.fifo else _UNCONFIRMED + num_envs

    def for_envs(self: Self, num_envs: int) -> Self:
        """Returns the replay for writers of `num_envs` environments each; settings of the user stay unchanged."""
        del num_envs
        return self

    @property
    def prioritized(self) -> bool:
        """Whether items are sampled by priority, and the learner updates the priorities."""
        return self.order == "prioritized"

    @property
    def fifo(self) -> bool:
        """Whether every item is sampled once, first in, first out."""
        return self.order == "queue"

    @property
    def needs_largest_error(self) -> bool:
        """Whether new items get the largest |TD error| so far, which the policy must then return in its extras."""
        return self.prioritized and self.priority is None

    def importance_exponent_at(self, learner_steps: Array) -> Array:
        """Returns beta of the importance weights after `learner_steps`; a pure function."""
        import jax.numpy as jnp

        share = jnp.minimum(learner_steps / self.importance_anneal_steps, 1.0)
        return self.importance_exponent + share * (self.importance_exponent_end - self.importance_exponent)

    def samples_allowed(self, inserts: int) -> float:
        """Returns the total number of samples that the rate limit allows after a total of `inserts` inserted rows.

        A run in one process learns only as often as this allows, so that a learner call never blocks.
        """
        if self.fifo:
            return inserts
        return self.block * self._table_limit.samples_allowed(inserts // self.block)

    def inserts_allowed(self, samples: int) -> float:
        """Returns the total number of rows that may be inserted after a total of `samples` sampled rows."""
        if self.fifo:
            return samples + self.max_size
        return self.block * self._table_limit.inserts_allowed(samples // self.block)

    @functools.cached_property
    def _table_limit(self) -> RateLimit:
        """The rate limit in units of the table's items."""
        return blocks.limit_of(self.limit, self.block)

    def split(self: Self, shards: int) -> Self:
        """Returns the settings for one of `shards` equal parts of this replay, each on its own server.

        Each part has an equal share of the size, the rate limit and every batch. Together they act as one replay.

        Raises:
            UsageError: `batch_size` is not a multiple of `shards`.
        """
        if self.batch_size % shards:
            raise UsageError(f"batch_size {self.batch_size} does not divide over {shards} replay shards.")
        limit = self.limit and self.limit.divided(shards)
        return dataclasses.replace(
            self, batch_size=self.batch_size // shards, max_size=-(-self.max_size // shards), limit=limit
        )

    def example(self, size: int) -> Any:
        """Returns items `[size, ...]` as from `decode`, with shapes and dtypes as leaves."""
        import jax
        import jax.numpy as jnp

        rows = jax.ShapeDtypeStruct((size, self._layout.nbytes), jnp.uint8)
        return jax.eval_shape(self.decode, rows)

    @abc.abstractmethod
    def decode(self, rows: Array) -> Any:
        """Returns the items in rows of bytes `[B, nbytes]`; a pure function, for use inside a compiled step."""
