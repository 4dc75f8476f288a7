"""Calls the methods of an object in another process, as Courier does, over the connections of `utils.calls`.

A call waits while its server is away, and goes on when it is back at the same address. If the connection is lost before
the answer has arrived, the call is repeated: a method may be called twice.
"""

import contextlib
import functools
import math
import queue
import threading
import time
import traceback
from collections.abc import Callable
from concurrent import futures
from typing import Any

from acme_ext.utils.calls import Call, CallServer, RemoteCall

_LOOK_S = 0.02  # between a closing server's checks
_QUIET_S = 0.1  # without a call, before a closing server ends
_LAST_S = 1.0  # longest time for the last answers of a closing server


class Server:
    """Lets other processes call the public methods of an object.

    Each call has a thread, because a method may wait. If it raises an error, the caller gets the traceback.

    Args:
        instance: the object.
        token: the secret that callers must send, see `utils.calls.CallServer`.
        host: the address to listen on, see `utils.calls.CallServer`.
        port: the port to listen on.
    """

    def __init__(self, instance: Any, token: bytes, host: str, port: int):
        self._instance = instance
        self._calls = CallServer(token, host, port, awake_s=0.0)
        self._results: queue.SimpleQueue[tuple[Call, bool, Any]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="remote methods", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answers the calls that still arrive within 0.1 s of one another, for a second at most, and then closes.

        So callers that are just being told to stop don't wait in vain.
        """
        self._closing.set()
        self._calls.wake()
        self._thread.join()

    def _serve(self) -> None:
        running, quiet_since, end = 0, 0.0, math.inf
        while True:
            for call in self._calls.take(_LOOK_S if self._closing.is_set() else None):
                quiet_since = time.monotonic()
                threading.Thread(target=self._run, args=(call,), name="remote method", daemon=True).start()
                running += 1
            with contextlib.suppress(queue.Empty):
                while True:
                    _answer(*self._results.get_nowait())
                    running -= 1
            if self._closing.is_set():
                now = time.monotonic()
                if end == math.inf:
                    quiet_since, end = now, now + _LAST_S
                if now > end or (now - quiet_since > _QUIET_S and not running and not self._calls.unsent):
                    break
        self._calls.close()

    def _run(self, call: Call) -> None:
        try:
            name, arguments, named = call.arguments
            if name.startswith("_") or not callable(method := getattr(self._instance, name, None)):
                raise AttributeError(f"{type(self._instance).__name__} has no public method {name!r}")
            self._results.put((call, True, method(*arguments, **named)))
        except BaseException:
            self._results.put((call, False, traceback.format_exc()))
        with contextlib.suppress(OSError):  # the server has closed
            self._calls.wake()


def _answer(call: Call, good: bool, result: Any) -> None:
    try:
        call.answer(result) if good else call.fail(result)
    except Exception:  # the result can't be pickled
        call.fail(traceback.format_exc())


class Client:
    """Calls the methods of the object behind a `Server`; any number of threads may call at the same time.

    `client.method(...)` returns the result. It raises RuntimeError with the server's traceback if the method raised an
    error. `client.futures.method(...)` returns a future at once.

    Args:
        address: the server's address, `host:port`.
        token: the server's token.
        call_timeout: seconds after which a call raises TimeoutError; None for no limit.
        stopped: an event after which a call raises RuntimeError if its server is away, and doesn't wait for it.
    """

    def __init__(
        self, address: str, token: bytes, call_timeout: float | None = None, stopped: threading.Event | None = None
    ):
        self.address = address
        self.futures = _Futures(self.call)
        self._token, self._call_timeout, self._stopped = token, call_timeout, stopped
        self._free: list[_Line] = []

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Calls a method by its name."""
        try:
            line = self._free.pop()
        except IndexError:
            line = _Line(self.address, self._token, self._stopped)
        try:
            line.until = math.inf if self._call_timeout is None else time.monotonic() + self._call_timeout
            line.begin(method, arguments, named)
            return line.end()
        finally:
            self._free.append(line)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self.call, name)


class _Line(RemoteCall):
    """A connection to a server."""

    def __init__(self, address: str, token: bytes, stopped: threading.Event | None):
        host, _, port = address.rpartition(":")
        super().__init__(lambda: (host, int(port)), self._check, token=token, awake_s=0.0)
        self._address, self._stopped = address, stopped
        self.until = math.inf
        """When to give up, on the clock of `time.monotonic`."""

    def _check(self) -> None:
        if time.monotonic() > self.until:
            raise TimeoutError(f"{self._address} has not answered in time")
        if not self.is_connected and self._stopped is not None and self._stopped.is_set():
            raise RuntimeError(f"the program ends, and {self._address} does not answer any more")


class _Futures:
    """Calls methods in threads of their own.

    The threads are daemons: a process that exits waits for those of a `ThreadPoolExecutor`, also if a server is gone.
    """

    def __init__(self, call: Callable[..., Any]):
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., "futures.Future[Any]"]:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self._begin, name)

    def _begin(self, *arguments: Any, **named: Any) -> "futures.Future[Any]":
        future: futures.Future[Any] = futures.Future()

        def run() -> None:
            try:
                future.set_result(self._call(*arguments, **named))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="remote call", daemon=True).start()
        return future
