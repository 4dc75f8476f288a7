"""Fetches batches of packed rows from a Reverb table."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from acme_ext.replay.reverb import server
from acme_ext.replay.table import LostBatchError, RawBatch

_WAIT_S = 0.2
_WAITS_A_LOOK = 50  # waits without a batch between checks of whether the server still answers
_FIELDS = ("data", "key", "probability", "table_size")  # the fields of a sample that a batch needs


class Dataset:
    """Iterates over batches of a table's items, which a thread prefetches as soon as this object is created.

    One batch is kept ready, and each of Reverb's workers holds samples for up to one more: three batches in total with
    two workers. The thread always fetches until a batch is ready, so a reader that waits for a batch gets it as soon as
    the table's rate limit allows.

    Args:
        client: a Reverb client.
        table: the table's name.
        shape: shape of an item's only column, uint8: `(nbytes,)` for a row, or `(K, nbytes)` for a block of K rows,
            which become K rows of the batch.
        size: items in a batch.
        workers: Reverb's threads that fetch samples; with more than one, a queue's order is not preserved.
        on_wait: called a few times a second while a reader waits for a batch; it may raise to end the wait.
        lost: whether all samples that the rate limit allows have been taken; asked after a long wait for a batch.

    Reverb may lose samples. According to its source, a reader in the server's own process cancels a request after 3
    seconds, and drops the items that were sampled for it at that moment. The rate limiter counts them as sampled. If
    nothing is inserted in the meantime, the reader would wait forever for the rest of its batch; with `lost`,
    `LostBatchError` ends the wait.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        shape: tuple[int, ...],
        size: int,
        *,
        workers: int = 1,
        on_wait: Callable[[], None] = lambda: None,
        lost: Callable[[], bool] = lambda: False,
    ):
        from tensorflow.python.eager import cancellation

        self._client, self._table, self._shape, self._size = client, table, shape, size
        self._on_wait, self._lost, self._workers = on_wait, lost, workers
        self._queue: queue.SimpleQueue[RawBatch | Exception] = queue.SimpleQueue()
        self._wanted = threading.Semaphore(1)  # number of batches that the thread must fetch
        self._closed = False
        self._cancellation = cancellation.CancellationManager()
        self._thread = threading.Thread(target=self._fetch, name=f"dataset-{table}", daemon=True)
        self._thread.start()

    def __iter__(self) -> "Dataset":
        return self

    def __next__(self) -> RawBatch:
        looks, batch = 0, None
        while batch is None:
            try:
                batch = self._queue.get(timeout=_WAIT_S)
            except queue.Empty:
                looks += 1
                self._on_wait()
                if looks % _WAITS_A_LOOK == 0:
                    server.check_answers(self._client, self._table)
                    if self._lost():
                        raise LostBatchError from None
        self._wanted.release()
        if isinstance(batch, Exception):
            self._queue.put(batch)
            raise RuntimeError(f"table {self._table!r} could not be sampled") from batch
        return batch

    def close(self, *, wake: bool = False) -> None:
        """Ends the thread.

        Args:
            wake: whether to end the thread faster by inserting items of zeros. A reader in the server's own process
                can only be cancelled every 3 seconds, or when a sample arrives. Use this only if the table will not be
                used or saved again.
        """
        self._closed = True
        asleep = wake and self._thread.is_alive()
        writer = server.pay_for_samples(self._client, self._table, self._shape) if asleep else None
        self._cancellation.start_cancel()  # returns when the reader has noticed it; holds the GIL until then
        self._wanted.release()
        self._thread.join()
        if writer is not None:
            writer.close()

    def _batch(self, data: np.ndarray, keys: np.ndarray, probability: np.ndarray, size: np.ndarray) -> RawBatch:
        probability = probability.astype(np.float32)
        if len(self._shape) == 1:
            return RawBatch(data, keys, probability, size)
        block, nbytes = self._shape
        repeated = (array.repeat(block) for array in (keys, probability / block, size * block))
        return RawBatch(data.reshape(-1, nbytes), *repeated)

    def _fetch(self) -> None:
        import reverb
        import tensorflow as tf
        from tensorflow.python.eager import context, execute

        try:
            dataset = reverb.TrajectoryDataset(
                server_address=self._client.server_address,
                table=self._table,
                dtypes=tf.uint8,
                shapes=tf.TensorShape(self._shape),
                # With less, the workers wait for each other. With more, a worker would sample more than one batch from
                # the same state of the table.
                max_in_flight_samples_per_worker=self._size,
                num_workers_per_iterator=self._workers,
            )
            options = tf.data.Options()
            options.threading.private_threadpool_size = 1
            options.experimental_optimization.apply_default_optimizations = False
            # Autotuning is of no use here, and its thread can take seconds to end.
            options.autotune.enabled = False
            dataset = dataset.batch(self._size, drop_remainder=True).with_options(options)
            iterator, specs = iter(dataset), tf.nest.flatten(dataset.element_spec)
            fields = (*reverb.SampleInfo._fields, "data")  # of a flattened ReplaySample
            while self._wanted.acquire() and not self._closed:
                # The same as next(iterator), but it can be cancelled while it waits. A tf.function could be cancelled
                # too, but would take 0.2 ms longer per call.
                leaves = execute.execute_with_cancellation(
                    "IteratorGetNext",
                    num_outputs=len(specs),
                    inputs=[iterator._iterator_resource],
                    attrs=(
                        "output_types",
                        [spec.dtype.as_datatype_enum for spec in specs],
                        "output_shapes",
                        [spec.shape for spec in specs],
                    ),
                    ctx=context.context(),
                    cancellation_manager=self._cancellation,
                )
                sample = dict(zip(fields, leaves, strict=True))
                self._queue.put(self._batch(*(np.asarray(memoryview(sample[name])) for name in _FIELDS)))
        except Exception as error:
            if not self._closed:
                self._queue.put(error)
