"""The table that another process serves."""

import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from acme_ext.replay.base import Replay
from acme_ext.replay.embedded.compressed import Compression
from acme_ext.replay.rows import OnWait
from acme_ext.replay.table import Counts, RawBatch
from acme_ext.utils.calls import PolledCall, RemoteCall

_LOOK_S = 0.2
_PUSH_S = 0.03
_INFO_S = 2.0  # for the store's answer about its state
_AWAY_S = 60.0  # without a connection, until a call that nobody else can end is given up


def compression_of(replay: Replay) -> Compression | None:
    """Returns how the rows of a replay are compressed on their way; None if they are not.

    Those of a queue are not: they are read once, and soon.
    """
    return None if replay.fifo else Compression.of(replay.nbytes)


class NoAnswerError(RuntimeError):
    """A store has not answered in time."""


class ServedTable:
    """The table of a `ServedStore` at an address, which may start later.

    If the store is away, batches and sinks wait until it is back at the same address. `update` and `checkpoint` wait
    for a minute, and then raise `NoAnswerError`; `counts` after two seconds, also if the store is only busy. All
    methods are thread-safe; each object that they return is for one thread.

    Args:
        replay: the settings.
        address: `host:port`.
        token: the store's secret.
    """

    threaded: ClassVar[bool] = True

    def __init__(self, replay: Replay, address: str, token: bytes):
        self.ahead = 1
        self._replay, self._token = replay, token
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._pusher = _Pusher()
        self._updating = threading.Lock()
        self._update = self._call(self._unless_away(lambda: self._update))
        self._updates = 0

    def sink(self) -> "ServedSink":
        call = PolledCall(self._address, token=self._token, first=(os.urandom(8),))
        return ServedSink(call, compression_of(self._replay), self._pusher)

    def batches(self, num_batches: int = 1, *, on_wait: OnWait = lambda: None) -> "ServedBatches":
        size = self._replay.batch_size * num_batches
        return ServedBatches(self._call(on_wait), size, compression_of(self._replay))

    def update(self, keys: np.ndarray, errors: np.ndarray) -> None:
        with self._updating:
            self._updates += 1
            self._update.begin(self._updates, "update", keys, errors)
            self._update.end()

    def counts(self) -> Counts:
        return Counts(*self._ask("counts"))

    def describe(self) -> str:
        try:
            return self._ask("describe")
        except Exception as error:
            return f"the replay does not answer ({type(error).__name__})"

    def checkpoint(self, folder: pathlib.Path) -> None:
        call: RemoteCall = self._call(self._unless_away(lambda: call))
        self._ended(call, "checkpoint", str(folder.absolute()))

    def _call(self, on_wait: OnWait, **options: Any) -> RemoteCall:
        first = (os.urandom(8),)
        return RemoteCall(lambda: self._address, on_wait, token=self._token, first=first, awake_s=0.0, **options)

    def _ask(self, method: str) -> Any:
        end = time.monotonic() + _INFO_S

        def on_wait() -> None:
            if time.monotonic() > end:
                self._give_up()

        return self._ended(self._call(on_wait, connect_s=_INFO_S), method)

    def _ended(self, call: RemoteCall, *arguments: Any) -> Any:
        try:
            call.begin(0, *arguments)
            return call.end()
        finally:
            call.close()

    def _unless_away(self, call: Callable[[], RemoteCall]) -> OnWait:
        """Returns an `on_wait` that raises when a call has not had a connection for `_AWAY_S`."""
        away: list[float] = []

        def on_wait() -> None:
            if call().is_connected:
                away.clear()
            elif not away:
                away.append(time.monotonic())
            elif time.monotonic() > away[0] + _AWAY_S:
                self._give_up()

        return on_wait

    def _give_up(self) -> None:
        host, port = self._address
        raise NoAnswerError(f"the replay at {host}:{port} does not answer")


class ServedSink:
    """Sends rows in bursts, one at a time: the rows that come during a call are sent by the next one.

    Args:
        call: a connection to the store.
        compression: of the rows; None to send them as they are.
        pusher: sends rows while the sink isn't used.
    """

    def __init__(self, call: PolledCall, compression: Compression | None, pusher: "_Pusher"):
        self._call, self._compression, self._pusher = call, compression, pusher
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._rows: list[Any] = []
        self._errors: list[np.ndarray] = []
        self._under_way = self._waiting = self._number = 0  # rows in the call, rows that wait for the next, its number
        pusher.add(self)

    def append(self, rows: np.ndarray, errors: np.ndarray | None) -> int:
        packed = [rows] if self._compression is None else self._compression.pack(rows)
        with self._lock:
            self._rows += packed
            if errors is not None:
                self._errors.append(np.array(errors, np.float32))
            self._waiting += len(rows)
            self._go_on()
        return len(rows)

    def flush(self, pending: int, on_wait: OnWait) -> None:
        looked = time.monotonic()
        while not self.has_sent(pending):
            with self._lock:
                self._call.wait(_LOOK_S)
            if time.monotonic() >= looked + _LOOK_S:
                on_wait()
                looked = time.monotonic()

    def has_sent(self, pending: int) -> bool:
        with self._lock:
            self._go_on()
            return self._under_way + self._waiting <= pending

    def push(self) -> None:
        """Sends rows if possible, unless the sink is in use; the next call of another method raises any error."""
        if self._lock.acquire(blocking=False):
            try:
                if (self._under_way or self._waiting) and self._error is None:
                    self._go_on()
            except Exception as error:
                self._error = error
            finally:
                self._lock.release()

    def close(self) -> None:
        self._pusher.remove(self)
        with self._lock:
            self._under_way = self._waiting = 0
            self._call.close()

    def _go_on(self) -> None:
        if self._error is not None:
            raise self._error
        if self._under_way and self._call.poll() is not None:
            self._under_way = 0
        if self._under_way or not self._waiting:
            return
        errors = np.concatenate(self._errors) if self._errors else None
        rows = self._rows if self._compression is not None else np.concatenate(self._rows)
        self._under_way, self._waiting, self._rows, self._errors = self._waiting, 0, [], []
        self._number += 1
        self._call.begin(self._number, "insert", rows, errors)


class _Pusher:
    """A thread that lets sinks send what they hold while nobody uses them, as between the steps of a slow environment.

    It runs while there are sinks, and only looks now and then: usually, a sink is used again before that.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._sinks: list[ServedSink] = []
        self._runs = False

    def add(self, sink: ServedSink) -> None:
        with self._lock:
            self._sinks = [*self._sinks, sink]
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="rows", daemon=True).start()

    def remove(self, sink: ServedSink) -> None:
        with self._lock:
            self._sinks = [each for each in self._sinks if each is not sink]

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._sinks:
                    self._runs = False
                    return
                sinks = self._sinks
            for sink in sinks:
                sink.push()
            del sinks
            time.sleep(_PUSH_S)


class ServedBatches:
    """Batches of a store's table; the next one is requested before a batch is returned.

    Args:
        call: a connection to the store.
        size: rows in a batch.
        compression: of the rows, or None.
    """

    def __init__(self, call: RemoteCall, size: int, compression: Compression | None):
        self._call, self._size, self._compression = call, size, compression
        self._number = 0

    def __iter__(self) -> "ServedBatches":
        return self

    def __next__(self) -> RawBatch:
        if self._number == 0:
            self._request()
        rows, *rest = self._call.end()
        self._request()
        return RawBatch(rows if self._compression is None else self._compression.unpack(rows), *rest)

    def close(self, *, wake: bool = False) -> None:
        del wake  # there is nothing to wait for
        self._call.close()

    def _request(self) -> None:
        self._number += 1
        self._call.begin(self._number, "sample", self._size)
