"""Calls between processes, over TCP connections that stay open, answered by one thread for all callers.

Courier serves whoever calls now and then. A call here takes a quarter of the time of one of Courier's: a small message
is sent by one system call and read by one, and no thread hands it to another. A connection begins with the server's
token; before it has come nothing is unpickled, and who sends something else is cut off. What follows isn't encrypted.
"""

import collections
import contextlib
import copyreg
import errno
import hmac
import io
import os
import pickle
import select
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

_Result = TypeVar("_Result")

_ALONE = 1 << 16  # bytes of a buffer that is not worth a copy: it is sent from where it lies
_FIRST_READ = 1 << 16  # bytes; a smaller message is read at once
_LOOK_S = 0.2
_AWAKE_S = 0.0003  # for which a wait looks again and again, before it sleeps
_SLOW_S = 20  # to connect in, and without a sign of the other side's host
_AWAITED_S = 20.0  # that a server waits for a caller's token, or for it to take some of an answer
_CHECK_S = 0.25  # between a server's looks at those of whom it awaits something
_FULL_S = 1.0  # until who calls is accepted again, where this process or its host had no room for one more
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

TOKEN_BYTES = 32
"""Of the token that a connection begins with."""

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

    dispatch_table: ClassVar[dict[type, Callable]] = {**copyreg.dispatch_table, np.ndarray: _reduced}  # type: ignore


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
    """A socket, the message that is coming in, and what is still to go out.

    Args:
        connection: the socket.
        token: that the other side must send first; nothing for a side that calls.
    """

    def __init__(self, connection: socket.socket, token: bytes = b""):
        self.socket = connection
        self._token, self._shown = token, b""
        self.trusted = not token
        """Whether the other side has shown the token."""
        self._out: collections.deque[memoryview] = collections.deque()
        self.moved = time.monotonic()
        """When the other side last gave or took something that was awaited of it."""
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

    @property
    def waits(self) -> bool:
        """Whether something is awaited of the other side: its token, or that it takes what is to go out."""
        return bool(self._out) or not self.trusted

    def post(self, message: Any, *, before: bytes = b"") -> bool:
        """Has a message go out: how many parts it has, the length of each, and the parts: the pickle, and the large
        buffers that it doesn't contain, which must stay as they are. Returns as `push` does.

        Args:
            message: can be pickled.
            before: bytes that go out before.
        """
        data, alone = _pickled(message)
        lengths = [len(data), *(raw.nbytes for raw in alone)]
        head = before + struct.pack(f"<{1 + len(lengths)}Q", len(lengths), *lengths) + data
        if not self._out:
            sent = 0
            with contextlib.suppress(BlockingIOError):
                sent = self.socket.send(head)
            if sent == len(head) and not alone:
                return True
            head = memoryview(head)[sent:]
        self._out.extend(part for part in (memoryview(head), *alone) if part.nbytes)
        self.moved = time.monotonic()
        return self.push()

    def push(self) -> bool:
        """Sends what the other side takes now of what is to go out; returns whether that was all."""
        while self._out:
            try:
                sent = self.socket.send(self._out[0])
            except BlockingIOError:
                return False
            self.moved = time.monotonic()
            if sent == self._out[0].nbytes:
                self._out.popleft()
            else:
                self._out[0] = self._out[0][sent:]
        return True

    def read(self) -> tuple[Any] | None:
        """Reads what there is; returns the message if it is there as a whole.

        Raises:
            OSError: the other side has gone, or nothing has come, or it has no right to be heard.
        """
        if not self.trusted:
            if not (shown := self.socket.recv(len(self._token) - len(self._shown))):
                raise ConnectionResetError("the other side has closed the connection")
            self._shown += shown
            if len(self._shown) == len(self._token):
                if not hmac.compare_digest(self._shown, self._token):
                    raise PermissionError("the caller doesn't know the token")
                self.trusted = True
            return None
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


def _select(selector: selectors.BaseSelector, timeout_s: float | None, awake_s: float) -> list:
    """Waits for what a selector knows, for `awake_s` awake.

    A core that sleeps takes long to wake in a virtual machine, and comes back with cold caches: two actors of 32
    CartPoles with a server made 48k steps/s where everybody slept at once, and 75 to 100k with this. Whoever has
    something to do is let before.
    """
    end = time.perf_counter() + (awake_s if timeout_s is None else min(timeout_s, awake_s))
    while not (ready := selector.select(0)):
        if time.perf_counter() > end:
            return selector.select(timeout_s)
        os.sched_yield()
    return ready


class Call:
    """A call that has come in, to be answered once."""

    def __init__(self, connection: _Connection, unsent: set[_Connection], arguments: tuple):
        self._connection, self._unsent = connection, unsent
        self.arguments = arguments

    def answer(self, result: Any) -> None:
        """Answers with a result, which can be pickled."""
        self._send((True, result))

    def fail(self, why: str) -> None:
        """Answers with an error: the call raises RuntimeError with this text."""
        self._send((False, why))

    def _send(self, message: tuple[bool, Any]) -> None:
        try:
            if not self._connection.post(message):
                self._unsent.add(self._connection)
        except OSError:  # the caller is gone, or will call again
            with contextlib.suppress(OSError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)


class CallServer:
    """Receives the calls of many others. One thread takes and answers them; `wake` is for any.

    An answer that its caller doesn't take at once waits for that caller alone; one who takes nothing for 20 s is cut
    off.

    Args:
        token: that every caller must send first, `TOKEN_BYTES` of them.
        host: the address at which it listens. One that none of this host's interfaces has, as behind a router that
            translates addresses, has it listen on all of them.
        awake_s: for which a wait looks again and again, before it sleeps; 0 where answers may come late.

    Attributes:
        port: at which it listens.
        problem: why nobody is accepted at the moment, in words; or None.
    """

    def __init__(self, token: bytes, host: str = "localhost", *, awake_s: float = _AWAKE_S):
        if len(token) != TOKEN_BYTES:
            raise ValueError(f"a token has {TOKEN_BYTES} bytes, not {len(token)}")
        self._token, self._awake_s = token, awake_s
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            self._listener = socket.create_server(("", 0), family=family, backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.problem: str | None = None
        self._listen_at: float | None = None  # where it doesn't
        self._woken, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._waiting: set[_Connection] = set()  # those of which something is awaited
        self._unsent: set[_Connection] = set()  # of these, those that are to be looked at for what is to go out

    def take(self, timeout_s: float | None) -> list[Call]:
        """Returns what calls there are, maybe none; waits for one, so long at most (None: for ever), or until
        `wake`.
        """
        calls = []
        if self._waiting or self._unsent or self._listen_at is not None:
            self._look_after()
            timeout_s = _CHECK_S if timeout_s is None else min(timeout_s, _CHECK_S)
        for key, events in _select(self._selector, timeout_s, self._awake_s):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._woken:
                self._woken.recv(4096)
            else:
                if events & selectors.EVENT_WRITE:
                    self._push(key.data)
                if events & selectors.EVENT_READ and (message := self._read(key.data)) is not None:
                    calls.append(Call(key.data, self._unsent, *message))
        return calls

    @property
    def unsent(self) -> int:
        """How many callers have answers that they have not taken as a whole."""
        return len({each for each in self._waiting if each.trusted} | self._unsent)

    def wake(self) -> None:
        """Ends a `take` that waits, or the next one."""
        self._waker.send(b"!")

    def close(self) -> None:
        """Takes no more calls."""
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._listener.close()
        self._selector.close()
        self._waker.close()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
            connection = _Connection(accepted, self._token)
        except OSError as error:
            if error.errno in _FULL:  # who calls would be there again at once, and again
                self._selector.unregister(self._listener)
                self._listen_at = time.monotonic() + _FULL_S
                if self.problem is None:
                    self.problem = f"can't accept more callers: {error.strerror} (see `ulimit -n`)"
                    print(f"acme-ext: the server {self.problem}.", file=sys.stderr, flush=True)
            return  # otherwise it has changed its mind
        self.problem = None
        self._waiting.add(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _look_after(self) -> None:
        """Listens again where it may, has what is unsent sent, and cuts off those who have let it wait."""
        if self._listen_at is not None and time.monotonic() >= self._listen_at:
            self._listen_at = None
            self._selector.register(self._listener, selectors.EVENT_READ)
        for connection in self._unsent:
            with contextlib.suppress(KeyError, ValueError):  # it is gone
                self._selector.modify(connection.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, connection)
                self._waiting.add(connection)
        self._unsent.clear()
        for connection in [each for each in self._waiting if time.monotonic() - each.moved > _AWAITED_S]:
            self._drop(connection)

    def _push(self, connection: _Connection) -> None:
        try:
            if connection.push():
                self._waiting.discard(connection)
                self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        except OSError:
            self._drop(connection)

    def _read(self, connection: _Connection) -> tuple[Any] | None:
        try:
            message = connection.read()
        except BlockingIOError:
            return None
        except Exception:  # it is gone, or has no right to call, or sends what is no message
            self._drop(connection)
            return None
        if self._waiting and not connection.waits:
            self._waiting.discard(connection)
        return message

    def _drop(self, connection: _Connection) -> None:
        self._waiting.discard(connection)
        with contextlib.suppress(KeyError, ValueError):  # it was dropped before
            self._selector.unregister(connection.socket)
        connection.socket.close()


class RemoteCall:
    """Calls a `CallServer`, one call at a time: `begin`, and later `end`, which returns the answer.

    A server that goes away is looked for until it is back, and then called anew: it may so hear a call twice.

    Args:
        find: returns host and port of the server; waits for it if need be.
        token: the server's.
        on_wait: called a few times a second while an answer is awaited; may raise to end the wait, and the call.
        first: arguments of every call, before its own.
        awake_s: see `CallServer`.
    """

    def __init__(
        self,
        find: Callable[[], tuple[str, int]],
        on_wait: Callable[[], None] = lambda: None,
        *,
        token: bytes,
        first: tuple = (),
        awake_s: float = _AWAKE_S,
    ):
        self._find, self._on_wait, self._token, self._first = find, on_wait, token, first
        self._awake_s = awake_s
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
        token = b""
        if self._connection is None:
            self._connection = _Connection(socket.create_connection(self._find(), timeout=_SLOW_S))
            self._selector.register(self._connection.socket, selectors.EVENT_READ)
            token = self._token
        sent = self._connection.post(self._arguments, before=token)
        while not sent:
            ready = select.poll()  # as `select.select`, of any descriptor
            ready.register(self._connection.socket, select.POLLOUT)
            if not ready.poll(1000 * _LOOK_S):
                self._on_wait()
            sent = self._connection.push()

    def _look(self) -> tuple[Any] | None:
        """Waits some time for the answer; returns it if it is there as a whole."""
        if self._connection is None:
            self._send()
        assert self._connection is not None
        with contextlib.suppress(BlockingIOError):
            return self._connection.read()
        if _select(self._selector, _LOOK_S, self._awake_s):
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
