"""Calls between processes, over TCP connections that stay open, answered by one thread for all callers.

Courier serves whoever calls now and then. A call here takes a quarter of the time of one of Courier's: a small message
is sent by one system call and read by one, and no thread hands it to another. Like Courier's, a server unpickles what
it is sent: its port must be out of strangers' reach.
"""

import contextlib
import copyreg
import io
import os
import pickle
import select
import selectors
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

_Result = TypeVar("_Result")

_ALONE = 1 << 16  # bytes of a buffer that is not worth a copy: it is sent from where it lies
_FIRST_READ = 1 << 16  # bytes; a smaller message is read at once
_LOOK_S = 0.2
_AWAKE_S = 0.0003  # for which a wait looks again and again, before it sleeps
_SLOW_S = 20  # for the other side to take, or to give, what it has begun to; and without a sign of its host


_DTYPES: dict[np.dtype, str] = {}  # those met, whose names take longer to make than to find


def _reduced(array: np.ndarray) -> Any:
    dtype = array.dtype
    if (name := _DTYPES.get(dtype)) is None:
        if dtype.kind in "OV":
            return array.__reduce_ex__(5)
        name = _DTYPES[dtype] = dtype.str
    if array.nbytes < _ALONE:
        return _array, (array.shape, name, array.tobytes())
    whole = array if array.flags.c_contiguous else array.copy()
    return _array, (array.shape, name, pickle.PickleBuffer(whole))  # type: ignore[arg-type]


def _array(shape: tuple[int, ...], dtype: str, buffer: Any) -> np.ndarray:
    return np.ndarray(shape, dtype, buffer)


class _Pickler(pickle.Pickler):
    """Describes an array in less than half of the time that NumPy takes for it; a small one comes out read-only."""

    dispatch_table: ClassVar[dict[type, Callable]] = {**copyreg.dispatch_table, np.ndarray: _reduced}


def _pickled(message: Any) -> tuple[bytes, list[memoryview]]:
    """Returns a message's pickle, and the large buffers that it doesn't contain."""
    alone: list[memoryview] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _ALONE:
            alone.append(raw)
        return raw.nbytes < _ALONE

    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=is_small).dump(message)
    return file.getvalue(), alone


class _Connection:
    """A socket, and the message that is coming in."""

    def __init__(self, connection: socket.socket):
        self.socket = connection
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that falls silent never says that it is gone.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", _SLOW_S // 2),
            ("TCP_KEEPINTVL", _SLOW_S // 4),
            ("TCP_KEEPCNT", 2),
            ("TCP_USER_TIMEOUT", 1000 * _SLOW_S),
        ):
            if (option := getattr(socket, name, None)) is not None:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self._small = memoryview(bytearray(_FIRST_READ))
        self._view, self._had = self._small, 0
        self._lengths: tuple[int, ...] | None = None

    def send(self, message: Any, on_wait: Callable[[], None]) -> None:
        """Sends a message: how many parts it has, the length of each, and the parts: the pickle, and the large buffers
        that it doesn't contain.

        Args:
            message: can be pickled.
            on_wait: called a few times a second while the other side takes nothing; may raise.
        """
        data, alone = _pickled(message)
        lengths = [len(data), *(raw.nbytes for raw in alone)]
        head = struct.pack(f"<{1 + len(lengths)}Q", len(lengths), *lengths) + data
        for part in (head, *alone):
            left = memoryview(part)
            while left:
                try:
                    left = left[self.socket.send(left) :]
                except BlockingIOError:
                    if not select.select((), (self.socket,), (), _LOOK_S)[1]:
                        on_wait()

    def read(self) -> tuple[Any] | None:
        """Reads what there is; returns the message if it is there as a whole.

        Raises:
            OSError: the other side has gone, or nothing has come.
        """
        count = self.socket.recv_into(self._view[self._had :])
        if count == 0:
            raise ConnectionResetError("the other side has closed the connection")
        self._had += count
        if self._lengths is None:
            if self._had < 8 or self._had < 8 * (1 + struct.unpack_from("<Q", self._view)[0]):
                return None
            (parts,) = struct.unpack_from("<Q", self._view)
            self._lengths = struct.unpack_from(f"<{parts}Q", self._view, 8)
        start = 8 * (1 + len(self._lengths))
        size = start + sum(self._lengths)
        if size > len(self._view):
            whole = memoryview(np.empty(size, np.uint8).data)  # no time is spent on zeros
            whole[: self._had] = self._view[: self._had]
            self._view = whole
        if self._had < size:
            return None
        parts = []
        for length in self._lengths:
            parts.append(self._view[start : start + length])
            start += length
        message = pickle.loads(parts[0], buffers=parts[1:])
        # What lies in a view of its own is the message's; the small one is used again.
        self._view, self._had, self._lengths = self._small, 0, None
        return (message,)


def _select(selector: selectors.BaseSelector, timeout_s: float | None) -> list:
    """Waits for what a selector knows, awake at first.

    A core that sleeps takes long to wake in a virtual machine, and comes back with cold caches: two actors of 32
    CartPoles with a server made 48k steps/s where everybody slept at once, and 75 to 100k with this. Whoever has
    something to do is let before.
    """
    end = time.perf_counter() + (_AWAKE_S if timeout_s is None else min(timeout_s, _AWAKE_S))
    while not (ready := selector.select(0)):
        if time.perf_counter() > end:
            return selector.select(timeout_s)
        os.sched_yield()
    return ready


class Call:
    """A call that has come in, to be answered once."""

    def __init__(self, connection: _Connection, arguments: tuple):
        self._connection = connection
        self.arguments = arguments

    def answer(self, result: Any) -> None:
        """Answers with a result, which can be pickled."""
        self._send((True, result))

    def fail(self, why: str) -> None:
        """Answers with an error: the call raises RuntimeError with this text."""
        self._send((False, why))

    def _send(self, message: tuple[bool, Any]) -> None:
        started = time.monotonic()

        def on_wait() -> None:
            if time.monotonic() - started > _SLOW_S:
                raise ConnectionAbortedError("the caller takes no answer")

        try:
            self._connection.send(message, on_wait)
        except OSError:  # the caller is gone, or will call again
            with contextlib.suppress(OSError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)


class CallServer:
    """Receives the calls of many others. One thread takes and answers them; `wake` is for any.

    Attributes:
        port: at which it listens, on every interface.
    """

    def __init__(self):
        self._listener = socket.create_server(("", 0), backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._woken, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def take(self, timeout_s: float | None) -> list[Call]:
        """Returns what calls there are; waits for one, so long at most (None: for ever), or until `wake`."""
        calls = []
        for key, _ in _select(self._selector, timeout_s):
            if key.fileobj is self._listener:
                with contextlib.suppress(OSError):  # it has changed its mind
                    accepted, _ = self._listener.accept()
                    self._selector.register(accepted, selectors.EVENT_READ, _Connection(accepted))
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            elif (message := self._read(key.data)) is not None:
                calls.append(Call(key.data, *message))
        return calls

    def wake(self) -> None:
        """Ends a `take` that waits, or the next one."""
        self._waker.send(b"!")

    def close(self) -> None:
        """Takes no more calls."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        self._waker.close()

    def _read(self, connection: _Connection) -> tuple[Any] | None:
        try:
            return connection.read()
        except Exception:  # it is gone, or sends what is no message
            self._selector.unregister(connection.socket)
            connection.socket.close()
            return None


class RemoteCall:
    """Calls a `CallServer`, one call at a time: `begin`, and later `end`, which returns the answer.

    A server that goes away is looked for until it is back, and then called anew: it may so hear a call twice.

    Args:
        find: returns host and port of the server; waits for it if need be.
        on_wait: called a few times a second while an answer is awaited; may raise to end the wait, and the call.
        first: arguments of every call, before its own.
    """

    def __init__(
        self, find: Callable[[], tuple[str, int]], on_wait: Callable[[], None] = lambda: None, *, first: tuple = ()
    ):
        self._find, self._on_wait, self._first = find, on_wait, first
        self._connection: _Connection | None = None
        self._selector = selectors.DefaultSelector()
        self._arguments: tuple | None = None  # of the call that has begun

    def begin(self, *arguments: Any) -> None:
        """Begins a call; the arguments must stay as they are until its end."""
        self._arguments = (*self._first, *arguments)
        self._unless_gone(self._send)

    def end(self) -> Any:
        """Waits for the answer.

        Raises:
            RuntimeError: the server gave an error for it.
        """
        assert self._arguments is not None
        answer = None
        while answer is None:
            answer = self._unless_gone(self._look)
        self._arguments = None
        good, result = answer[0]
        if not good:
            raise RuntimeError(f"a call was answered by an error:\n{result}")
        return result

    def close(self) -> None:
        """Ends the connection, and with it a call that has begun; the next call makes another."""
        if self._connection is not None:
            self._selector.unregister(self._connection.socket)
            self._connection.socket.close()
            self._connection = None

    def _send(self) -> None:
        if self._connection is None:
            self._connection = _Connection(socket.create_connection(self._find(), timeout=_SLOW_S))
            self._selector.register(self._connection.socket, selectors.EVENT_READ)
        self._connection.send(self._arguments, self._on_wait)

    def _look(self) -> tuple[Any] | None:
        """Waits some time for the answer; returns it if it is there as a whole."""
        if self._connection is None:
            self._send()
        assert self._connection is not None
        with contextlib.suppress(BlockingIOError):
            return self._connection.read()
        if _select(self._selector, _LOOK_S):
            return self._connection.read()
        self._on_wait()
        return None

    def _unless_gone(self, step: Callable[[], _Result]) -> _Result | None:
        """Returns what a step comes to. Drops the connection if anything goes wrong; a server that is gone is no
        error.
        """
        try:
            return step()
        except OSError:
            self.close()
            time.sleep(_LOOK_S)
            self._on_wait()
            return None
        except BaseException:
            self.close()  # what is still under way on it would be taken for the next answer
            raise
