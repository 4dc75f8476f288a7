"""A replay's table in a Reverb server."""

import pathlib
import shutil
from typing import Any, ClassVar

import numpy as np

from acme_ext.replay import blocks
from acme_ext.replay.base import Replay
from acme_ext.replay.limits import RateLimit
from acme_ext.replay.reverb import server
from acme_ext.replay.reverb.dataset import Dataset
from acme_ext.replay.reverb.sinks import PrioritySink, StructuredSink
from acme_ext.replay.rows import OnWait, Sink
from acme_ext.replay.table import Counts

_INFO_S = 2  # for a server's answer about its counts


def reverb_table(replay: Replay) -> Any:
    """Returns the `reverb.Table` of a replay."""
    import reverb
    import tensorflow as tf

    signature = tf.TensorSpec(item_shape(replay), tf.uint8)
    if replay.fifo:
        return reverb.Table.queue(replay.table, replay.max_size, signature=signature)
    selectors, size = reverb.selectors, -(-replay.max_size // replay.block)
    sampler = selectors.Prioritized(replay.priority_exponent) if replay.prioritized else selectors.Uniform()
    limiter = rate_limiter(blocks.limit_of(replay.limit, replay.block))
    return reverb.Table(replay.table, sampler, selectors.Fifo(), size, limiter, signature=signature)


def rate_limiter(limit: RateLimit) -> Any:
    """Returns the `reverb.rate_limiters.RateLimiter` of a limit in items."""
    import reverb

    if (ratio := limit.samples_per_insert) is None:
        return reverb.rate_limiters.MinSize(limit.min_size)
    return reverb.rate_limiters.SampleToInsertRatio(ratio, limit.min_size, limit.bounds(ratio))


def item_shape(replay: Replay) -> tuple[int, ...]:
    """Returns the shape of a table's item in bytes: a row, or a block of rows."""
    return (replay.nbytes,) if replay.block == 1 else (replay.block, replay.nbytes)


class ReverbTable:
    """The table of a replay, through a client of its server.

    Args:
        replay: the settings.
        client: a `reverb.Client`.
        timeout_s: seconds for the server to answer a request of the table's counts; None to wait.
        may_lose: whether batches may be lost, because the server is in this process and nobody else inserts; see
            `Dataset`.
    """

    threaded: ClassVar[bool] = True

    def __init__(self, replay: Replay, client: Any, *, timeout_s: float | None = None, may_lose: bool = False):
        self._replay, self._timeout_s, self._may_lose = replay, timeout_s, may_lose
        self.client = client
        """The `reverb.Client`."""
        self.ahead = 0 if replay.fifo else 1  # readers have room for one batch besides the next

    def sink(self) -> Sink:
        replay = self._replay
        if replay.prioritized:
            return PrioritySink(self.client, replay.table, replay.priority_offset)
        sink = StructuredSink(self.client, replay.table, item_shape(replay))
        return sink if replay.block == 1 else blocks.BlockSink(sink, replay.block, replay.waiting)

    def batches(self, num_batches: int = 1, *, on_wait: OnWait = lambda: None) -> Dataset:
        replay = self._replay
        return Dataset(
            self.client,
            replay.table,
            item_shape(replay),
            replay.batch_size * num_batches // replay.block,
            workers=1 if replay.fifo else 2,
            on_wait=on_wait,
            lost=self._is_lost if self._may_lose else lambda: False,
        )

    def update(self, keys: np.ndarray, errors: np.ndarray) -> None:
        priorities = np.asarray(errors, np.float32) + np.float32(self._replay.priority_offset)
        self.client.mutate_priorities(self._replay.table, dict(zip(keys.tolist(), priorities.tolist(), strict=True)))

    def counts(self) -> Counts:
        info = self.client.server_info(timeout=self._timeout_s)[self._replay.table]
        limiter, block = info.rate_limiter_info, self._replay.block
        inserted, sampled = limiter.insert_stats.completed, limiter.sample_stats.completed
        return Counts(block * inserted, block * sampled, block * info.current_size)

    def describe(self) -> str:
        return server.describe_tables(self.client)

    def _is_lost(self) -> bool:
        counts = self.counts()
        return counts.sampled >= self._replay.samples_allowed(counts.inserted)


class RemoteReverbTable(ReverbTable):
    """The table of a replay in a Reverb server at an address."""

    def __init__(self, replay: Replay, address: str):
        import reverb

        super().__init__(replay, reverb.Client(address), timeout_s=_INFO_S)

    def checkpoint(self, folder: pathlib.Path) -> None:
        shutil.move(self.client.checkpoint(), folder)


class ReverbStore(server.ReverbServer):
    """A Reverb server in this process with a replay's table.

    Args:
        replay: the settings.
        options: see `ReverbServer`.
    """

    def __init__(self, replay: Replay, **options: Any):
        super().__init__([reverb_table(replay)], **options)
        self.table = ReverbTable(replay, self.client, may_lose=True)
