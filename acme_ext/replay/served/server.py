"""Serves an embedded table to other processes."""

import collections
import dataclasses
import itertools
import pathlib
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np

from acme_ext.errors import RunError
from acme_ext.replay.base import Replay
from acme_ext.replay.embedded.store import EmbeddedStore
from acme_ext.replay.served.client import ServedTable, compression_of
from acme_ext.utils.calls import Call, CallServer

_FORGET_S = 3600.0  # how long a caller that has disconnected may repeat its last call; a learner may compile that long


@dataclasses.dataclass
class _Caller:
    """The latest call of a caller, and what is left to do for it."""

    call: Call
    number: int = -1
    answered: bool = False
    answer: Any = None  # kept, in case that the call is repeated
    called: float = 0.0  # when it called last
    rows: Any = None  # of an insert, those that are not in the table yet
    errors: np.ndarray | None = None
    count: int = 0  # of a sample


class ServedStore:
    """A replay's table in this process, for other processes; see `ServedTable`.

    One thread owns the table and answers all calls. It holds inserts and samples that the rate limit doesn't allow yet,
    and answers them in the order of their arrival. It does both row by row where they wait for each other, as Reverb
    does, so that a call may have any number of rows. While it saves a checkpoint, all calls wait.

    A call that is repeated, because the connection was lost, is done only once: callers number their calls, and the
    latest answer to each is kept. The rows of a sample whose reader has disconnected belong to the next reader.

    Args:
        replay: the settings.
        host: the address to listen on.
        port: the port to listen on; 0 to choose one.
        token: the secret that other processes must send.
        restore: a folder that `checkpoint` wrote.

    Attributes:
        port: the port that it listens on.
        table: the table, through a connection to this store.

    Raises:
        RunError: the port is in use, or `restore` is no whole checkpoint of this table.
    """

    def __init__(self, replay: Replay, host: str, port: int, token: bytes, *, restore: pathlib.Path | None = None):
        # Which rows are drawn depends on the order of calls anyway, so there is no fixed seed.
        store = EmbeddedStore(replay, seed=secrets.randbits(64), restore=restore, report=_warn, packed=True)
        self._replay, self._store, self._owned = replay, store, store.table
        self._compressed = compression_of(replay) is not None
        self._callers: dict[bytes, _Caller] = {}
        self._inserting: collections.deque[_Caller] = collections.deque()
        self._sampling: collections.deque[_Caller] = collections.deque()
        self._drawn: list[tuple[Any, ...]] = []  # parts of the batch of the first sample that waits
        self._ended = threading.Event()
        try:
            self._calls = CallServer(token, host, port, awake_s=0.0)
        except OSError as error:
            raise RunError(f"the replay server did not start: it can't listen on {host}:{port} ({error}).") from error
        self.port: int = self._calls.port
        self.table = ServedTable(replay, f"{host}:{self.port}", token)
        self._thread = threading.Thread(target=self._serve, name="replay", daemon=True)
        self._thread.start()

    def checkpoint(self, folder: pathlib.Path) -> None:
        """Writes the table's contents to a new folder."""
        self.table.checkpoint(folder)

    def close(self) -> None:
        """Stops serving; calls of readers and writers wait afterwards, until a store serves at the same address."""
        if not self._ended.is_set():
            self._ended.set()
            self._calls.wake()
            self._thread.join()
            self._calls.close()

    def _serve(self) -> None:
        while not self._ended.is_set():
            for call in self._calls.take(None):
                try:
                    self._receive(call)
                except Exception:
                    call.fail(traceback.format_exc())
            while self._insert() or self._sample():
                pass

    def _receive(self, call: Call) -> None:
        """Answers a call, or puts it in a line."""
        name, number, method, *arguments = call.arguments
        if method == "describe":
            call.answer(self._describe())
            return
        if method == "counts":
            call.answer(tuple(self._owned.counts()))
            return
        caller, line = self._caller(name, call), self._inserting if method == "insert" else self._sampling
        caller.call, caller.called = call, time.monotonic()
        if number == caller.number:  # repeated
            if caller.answered:
                call.answer(caller.answer)
            elif not any(each is caller for each in line):
                line.append(caller)
            return
        if method == "insert":
            caller.rows, caller.errors = self._checked(*arguments)
        elif method == "sample":
            (caller.count,) = arguments
        elif method == "update":
            self._owned.update(*arguments)
        else:
            assert method == "checkpoint", method
            self._store.checkpoint(pathlib.Path(*arguments))
        caller.number, caller.answered, caller.answer = number, False, None
        if method in ("insert", "sample"):
            line.append(caller)
        else:
            self._answer(caller, None)

    def _caller(self, name: bytes, call: Call) -> _Caller:
        if (caller := self._callers.get(name)) is None:
            last = time.monotonic() - _FORGET_S
            for other in [key for key, each in self._callers.items() if each.call.gone and each.called < last]:
                del self._callers[other]
            caller = self._callers[name] = _Caller(call)
        return caller

    def _checked(self, rows: Any, errors: np.ndarray | None) -> tuple[Any, np.ndarray | None]:
        """Returns the arguments of an insert; raises ValueError if they don't fit the table."""
        nbytes, packed = self._replay.nbytes, self._compressed
        fits = max(map(len, rows)) <= nbytes if packed else rows.dtype == np.uint8 and rows.shape[1:] == (nbytes,)
        if not fits or (errors is not None) != self._replay.prioritized:
            raise ValueError(f"the rows don't fit a {self._replay.order} table of {nbytes} bytes a row")
        return rows, errors

    def _answer(self, caller: _Caller, answer: Any) -> None:
        caller.answered, caller.answer = True, answer
        caller.rows = caller.errors = None
        caller.call.answer(answer)

    def _insert(self) -> bool:
        """Inserts what is allowed of the insert that has waited longest; returns whether that was anything."""
        allowed = self._owned.inserts_allowed
        if allowed < 1 or (caller := _first(self._inserting)) is None:
            return False
        count = int(min(allowed, len(caller.rows)))
        errors = caller.errors
        try:
            self._owned.insert(caller.rows[:count], None if errors is None else errors[:count])
        except Exception:
            self._fail(self._inserting)
            return True
        caller.rows, caller.errors = caller.rows[count:], None if errors is None else errors[count:]
        if not len(caller.rows):
            self._answer(self._inserting.popleft(), None)
        return True

    def _sample(self) -> bool:
        """Answers the sample that has waited longest, if it is allowed; returns whether anything was drawn.

        While an insert waits, it may be waiting for samples, so a part is drawn if the whole is not allowed.
        """
        if (caller := _first(self._sampling)) is None:
            return False
        missing = max(0, caller.count - sum(len(rows) for rows, *_ in self._drawn))
        allowed = self._owned.samples_allowed
        if missing and allowed < missing and (allowed < 1 or _first(self._inserting) is None):
            return False
        try:
            if missing:
                self._drawn.append(self._owned.sample(int(min(allowed, missing)))[:4])
        except Exception:
            self._fail(self._sampling)
            return True
        if not missing or allowed >= missing:
            self._answer(self._sampling.popleft(), self._take(caller.count))
        return True

    def _take(self, count: int) -> tuple[Any, ...]:
        """Takes `count` of the drawn rows."""
        drawn = self._drawn
        parts = drawn[0] if len(drawn) == 1 else tuple(_joined(each) for each in zip(*drawn, strict=True))
        self._drawn = [tuple(part[count:] for part in parts)] if len(parts[0]) > count else []
        return tuple(part[:count] for part in parts)

    def _fail(self, line: collections.deque[_Caller]) -> None:
        """Fails the first call of a line with the present exception."""
        caller = line.popleft()
        caller.number = -1  # a repeated call is tried again
        caller.call.fail(traceback.format_exc())

    def _describe(self) -> str:
        waiting = {"insert": self._inserting, "sample": self._sampling}
        counts = (f"{len(line)} {name}{'' if len(line) == 1 else 's'}" for name, line in waiting.items() if line)
        return "; ".join([self._owned.describe(), *(f"{count} waiting" for count in counts)])


def _first(line: collections.deque[_Caller]) -> _Caller | None:
    """Returns the first caller of a line that is still there; the others leave the line until they call again."""
    while line and line[0].call.gone:
        line.popleft()
    return line[0] if line else None


def _joined(parts: Sequence[Any]) -> Any:
    return list(itertools.chain(*parts)) if isinstance(parts[0], list) else np.concatenate(parts)


def _warn(text: str) -> None:
    print(f"acme-ext: {text}", file=sys.stderr, flush=True)
