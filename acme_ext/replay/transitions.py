"""Replay of n-step transitions: table, writer and dataset that agree."""

import dataclasses
from typing import Literal

from acme_ext.errors import UsageError
from acme_ext.replay import nstep, sinks
from acme_ext.replay.dataset import Dataset
from acme_ext.replay.layout import Layout
from acme_ext.replay.limits import RateLimit
from acme_ext.types import Array, EnvironmentSpec, Transition, Tree


@dataclasses.dataclass(frozen=True)
class TransitionReplay:
    """n-step transitions in one Reverb table, each a flat row of bytes.

    Attributes:
        spec: of the environment.
        batch_size: transitions in a learner's batch.
        n_step: steps a transition spans; fewer at an episode's end.
        discount: gamma of one step; `batch.discount` arrives complete.
        max_size: transitions; the oldest leave first.
        limit: how many samples each insert pays for; a queue has its own and takes None.
        order: `uniform`; `prioritized`, p_i**priority_exponent / sum; or `queue`, each transition once, in the order of
            insertion, writers waiting while it is full.
        priority_exponent: alpha of prioritized sampling (Schaul et al. 2016, eq. 1).
        priority: first priorities of new transitions, needed by and only by a prioritized order.
        extras: specs of the policy's extras, where the learner wants them stored.
        max_abs_reward: clips each reward before the n-step sum; None leaves it.
        burst: transitions that are built and sent together, about.
        table: the table's name.
    """

    spec: EnvironmentSpec
    batch_size: int
    n_step: int = 1
    discount: float = 0.99
    max_size: int = 100_000
    limit: RateLimit | None = None
    order: Literal["uniform", "prioritized", "queue"] = "uniform"
    priority_exponent: float = 0.6
    priority: nstep.PriorityFn | None = None
    extras: Tree = ()
    max_abs_reward: float | None = None
    burst: int = 16
    table: str = "transitions"

    def __post_init__(self):
        for name in ("batch_size", "n_step", "max_size", "burst"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be at least 1.")
        if not 0 <= self.discount <= 1:
            raise UsageError(f"discount is {self.discount}: it must lie in [0, 1].")
        if (self.order == "prioritized") != (self.priority is not None):
            raise UsageError(
                "a prioritized replay needs the first priority of new transitions, and no other takes one."
            )
        if (self.order == "queue") != (self.limit is None):
            raise UsageError(
                "a queue has its own rate limit (each transition is sampled once); every other replay needs one."
            )
        if self.limit is not None:
            self.limit.check_table(self.max_size)

    @property
    def _layout(self) -> Layout:
        return Layout(nstep.transition_spec(self.spec, self.extras))

    @property
    def prioritized(self) -> bool:
        """Whether the learner's priorities go back to the table."""
        return self.order == "prioritized"

    @property
    def in_order(self) -> bool:
        """Whether every item is sampled once, in the order of insertion."""
        return self.order == "queue"

    def samples_allowed(self, inserts: int) -> float:
        """The number of samples that may have been drawn in all once `inserts` transitions were inserted in all."""
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

    def writer(
        self, client, num_envs: int, *, max_pending: int | None = None, on_wait: sinks.OnWait = lambda: None
    ) -> nstep.NStepWriter:
        """Returns a writer for `num_envs` environments that step together; see NStepWriter for the rest."""
        layout = self._layout
        if self.prioritized:
            sink: sinks.Sink = sinks.PrioritySink(client, self.table)
        else:
            sink = sinks.StructuredSink(client, self.table, (layout.nbytes,))
        return nstep.NStepWriter(
            layout,
            sink,
            num_envs=num_envs,
            n_step=self.n_step,
            discount=self.discount,
            burst=self.burst,
            max_abs_reward=self.max_abs_reward,
            priority=self.priority,
            keep_extras=bool(self.extras),
            max_pending=max_pending,
            on_wait=on_wait,
        )

    def dataset(self, client, num_batches: int = 1, *, on_wait: sinks.OnWait = lambda: None) -> Dataset:
        """Iterates over `num_batches` batches at a time, end to end in one RawBatch of `num_batches * batch_size`
        rows.
        """
        shape = (self._layout.nbytes,)
        size = self.batch_size * num_batches
        workers = 1 if self.in_order else 2
        return Dataset(client, self.table, shape, size, workers=workers, on_wait=on_wait)

    def split(self, shards: int) -> "TransitionReplay":
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

    def decode(self, rows: Array) -> Transition:
        """Takes rows of bytes `[B, nbytes]` apart; pure, for use inside a compiled step."""
        return self._layout.unpack(rows)
