"""Remote calls between processes, over TCP connections that stay open; one thread answers all callers.

Courier is used for infrequent calls. A call with this module takes a quarter of the time of a Courier call: a small
message needs one system call to send and one to read, and is not passed between threads. A connection starts with the
server's token. Nothing is unpickled before the token has arrived, and a caller without it is disconnected. Connections
are not encrypted.
"""

import collections
import contextlib
import copyreg
import errno
import hmac
import io
import pickle
import queue
import select
import selectors
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np

from acme_ext.utils import system

_Result = TypeVar("_Result")

_ALONE = 1 << 16  # bytes; buffers of this size or more are sent without copying
_FIRST_READ = 1 << 16  # bytes; smaller messages are read at once
_LOOK_S = 0.2
_AWAKE_S = 0.0003  # how long a wait polls before it sleeps
_SLOW_S = 20  # timeout for connecting, and for a host that doesn't respond
_AWAITED_S = 20.0  # how long a server waits for a caller's token, or for it to read a part of an answer
_CHECK_S = 0.25  # between a server's checks of callers that it waits for
_FULL_S = 1.0  # delay before accepting callers again, after this process or its host ran out of resources
_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

TOKEN_BYTES = 32
"""Length of the token that a connection starts with."""

_DTYPES: dict[np.dtype, str] = {}  # cached names, because making a name is slow


def _reduced(array: np.ndarray) -> Any:
    dtype = array.dtype
    if (name := _DTYPES.get(dtype)) is None:
        if dtype.kind in "OVMm":
            return array.__reduce_ex__(5)
        name = _DTYPES[dtype] = dtype.str
    if array.nbytes < _ALONE:
        return _array, (array.shape, name, array.tobytes())
    whole = array if array.flags.c_contiguous else array.copy()
    return _array, (array.shape, name, pickle.PickleBuffer(whole))  # type: ignore[arg-type]


def _array(shape: tuple[int, ...], dtype: str, buffer: Any) -> np.ndarray:
    return np.ndarray(shape, dtype, buffer)


class _Pickler(pickle.Pickler):
    """Pickles arrays in less than half of the time that NumPy takes; small arrays are read-only when unpickled."""

    dispatch_table: ClassVar[dict[type, Callable]] = {**copyreg.dispatch_table, np.ndarray: _reduced}  # type: ignore


def _pickled(message: Any) -> tuple[bytes, list[memoryview]]:
    """Returns a message's pickle, and its large buffers, which are not in the pickle."""
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
    """A socket, with a partly received message and the data that must still be sent.

    Args:
        connection: the socket.
        token: the token that the other side must send first; empty on the calling side.
    """

    def __init__(self, connection: socket.socket, token: bytes = b""):
        self.socket = connection
        self._token, self._shown = token, b""
        self.trusted = not token
        """Whether the other side has sent the token."""
        self._out: collections.deque[memoryview] = collections.deque()
        self.moved = time.monotonic()
        """When the other side last sent or read something that this side waited for."""
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Without keep-alive, the failure of the other host would go unnoticed.
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
        """Whether this side waits for the other: for its token, or for it to read the data."""
        return bool(self._out) or not self.trusted

    def post(self, message: Any, *, before: bytes = b"") -> bool:
        """Sends a message, as far as possible without waiting; returns whether all of it was sent.

        The format is: the number of parts, the length of each part, and the parts. These are the pickle and the large
        buffers, which must not be changed until they are sent.

        Args:
            message: a message that can be pickled.
            before: bytes to send first.
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
        """Sends as much of the remaining data as possible without waiting; returns whether all was sent."""
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
        """Reads the available data; returns the message if it is complete, or None.

        Raises:
            OSError: the other side has disconnected, there is no data, or the token is wrong.
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
            whole = memoryview(np.empty(size, np.uint8).data)  # not initialized, to save time
            whole[: self._had] = self._view[: self._had]
            self._view = whole
        if self._had < size:
            return None
        parts = []
        for length in self._lengths:
            parts.append(self._view[start : start + length])
            start += length
        message = pickle.loads(parts[0], buffers=parts[1:])
        # The message owns a separate buffer, if there is one; the small buffer is reused.
        self._view, self._had, self._lengths = self._small, 0, None
        return (message,)


def _select(selector: selectors.BaseSelector, timeout_s: float | None, awake_s: float) -> list:
    """Waits for events of a selector; polls for `awake_s` seconds before it sleeps.

    In a virtual machine, a sleeping core takes long to wake up, and has cold caches. Two actors with 32 CartPoles each
    and a server made 48k steps/s when they slept at once, and 75 to 100k steps/s with this. While polling, other
    threads may run first.
    """
    end = time.perf_counter() + (awake_s if timeout_s is None else min(timeout_s, awake_s))
    while not (ready := selector.select(0)):
        if time.perf_counter() > end:
            return selector.select(timeout_s)
        system.give_way()
    return ready


class Call:
    """A received call, which must be answered once."""

    def __init__(self, connection: _Connection, unsent: set[_Connection], arguments: tuple):
        self._connection, self._unsent = connection, unsent
        self.arguments = arguments

    @property
    def gone(self) -> bool:
        """Whether the caller has disconnected, as far as `CallServer.take` has noticed; it may call again."""
        return self._connection.socket.fileno() < 0

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
    """Receives calls from many callers. One thread must take and answer them; any thread may call `wake`.

    A caller that is slow to read its answer doesn't delay other callers. A caller that reads nothing for 20 s is
    disconnected.

    Args:
        token: the token that every caller must send first, with `TOKEN_BYTES` bytes.
        host: the address to listen on. If none of this host's interfaces has it, as behind a NAT router, the server
            listens on all of them.
        port: the port to listen on, which `utils.ports` can reserve; 0 for a free one.
        awake_s: seconds that a wait polls before it sleeps; 0 if latency doesn't matter.

    Attributes:
        port: the port that it listens on.
        problem: why no callers can be accepted at the moment, in words, or None.
    """

    def __init__(self, token: bytes, host: str = "localhost", port: int = 0, *, awake_s: float = _AWAKE_S):
        if len(token) != TOKEN_BYTES:
            raise ValueError(f"a token has {TOKEN_BYTES} bytes, not {len(token)}")
        self._token, self._awake_s = token, awake_s
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            self._listener = socket.create_server(("", port), family=family, backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.problem: str | None = None
        self._listen_at: float | None = None  # when to listen again, after it has stopped
        self._woken, self._waker = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._waiting: set[_Connection] = set()  # connections that this side waits for
        self._unsent: set[_Connection] = set()  # connections with data to send that are not watched yet

    def take(self, timeout_s: float | None) -> list[Call]:
        """Returns the received calls, possibly none; waits up to `timeout_s` (None: forever), or until `wake`."""
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
        """The number of callers that have not read all of their answers."""
        return len({each for each in self._waiting if each.trusted} | self._unsent)

    def wake(self) -> None:
        """Ends the wait of the current or the next `take`."""
        self._waker.send(b"!")

    def close(self) -> None:
        """Stops receiving calls and closes all connections."""
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
            if error.errno in _FULL:  # otherwise the same caller would fail again and again
                self._selector.unregister(self._listener)
                self._listen_at = time.monotonic() + _FULL_S
                if self.problem is None:
                    self.problem = f"can't accept more callers: {error.strerror} (see `ulimit -n`)"
                    print(f"acme-ext: the server {self.problem}.", file=sys.stderr, flush=True)
            return  # otherwise the caller has disconnected
        self.problem = None
        self._waiting.add(connection)
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _look_after(self) -> None:
        """Listens again if possible, watches connections with unsent data, and drops callers that are too slow."""
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
        except Exception:  # it has disconnected, has a wrong token, or has sent an invalid message
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

    If the server disconnects, the call waits until it is back and is then repeated, so the server may receive a call
    twice.

    Args:
        find: returns the server's host and port; waits for the server if necessary.
        token: the server's token.
        on_wait: called a few times a second while waiting for an answer; it may raise to end the wait and the call.
        first: arguments that are put before those of every call.
        awake_s: see `CallServer`.
        connect_s: timeout for connecting to a host that doesn't respond.
    """

    def __init__(
        self,
        find: Callable[[], tuple[str, int]],
        on_wait: Callable[[], None] = lambda: None,
        *,
        token: bytes,
        first: tuple = (),
        awake_s: float = _AWAKE_S,
        connect_s: float = _SLOW_S,
    ):
        self._find, self._on_wait, self._token, self._first = find, on_wait, token, first
        self._awake_s, self._connect_s = awake_s, connect_s
        self._connection: _Connection | None = None
        self._selector = selectors.DefaultSelector()
        self._arguments: tuple | None = None  # of the call that has begun

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the server, as far as the last attempt to use it has shown."""
        return self._connection is not None

    def begin(self, *arguments: Any) -> None:
        """Begins a call; its arguments must not be changed until it ends."""
        self._arguments = (*self._first, *arguments)
        self._unless_gone(self._send)

    def end(self) -> Any:
        """Waits for the answer.

        Raises:
            RuntimeError: the server answered with an error.
        """
        assert self._arguments is not None
        answer = None
        while answer is None:
            answer = self._unless_gone(self._look)
        self._arguments = None
        return _result(*answer[0])

    def close(self) -> None:
        """Closes the connection, which also ends a call that has begun; the next call connects again."""
        if self._connection is not None:
            self._selector.unregister(self._connection.socket)
            self._connection.socket.close()
            self._connection = None

    def _send(self) -> None:
        token = b""
        if self._connection is None:
            self._connection = _Connection(socket.create_connection(self._find(), timeout=self._connect_s))
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
        """Waits a short time for the answer; returns it if it is complete, or None."""
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
        """Returns the result of a step; closes the connection on any error. A lost connection gives None."""
        try:
            return step()
        except OSError:
            self.close()
            time.sleep(_LOOK_S)
            self._on_wait()
            return None
        except BaseException:
            self.close()  # otherwise a late answer could be taken for the next one
            raise


class PolledCall:
    """Calls a `CallServer` without ever waiting, one call at a time: `begin`, and `poll` until the answer has arrived.

    If the server disconnects, the call is repeated as soon as it is back, as by `RemoteCall`. A daemon thread connects,
    because that may take long.

    Args:
        address: the server's host and port.
        token: the server's token.
        first: arguments that are put before those of every call.
    """

    def __init__(self, address: tuple[str, int], *, token: bytes, first: tuple = ()):
        self._address, self._token, self._first = address, token, first
        self._connection: _Connection | None = None
        self._dialled: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        self._dials = self._closed = False
        self._pause_s = 0.0  # before the next attempt to connect
        self._arguments: tuple | None = None  # of the call that has begun

    def begin(self, *arguments: Any) -> None:
        """Begins a call; its arguments must not be changed until it ends."""
        self._arguments = (*self._first, *arguments)
        if self._connection is None:
            self._connect()
        else:
            self._unless_gone(self._connection, lambda connection: connection.post(self._arguments))

    def poll(self) -> tuple[Any] | None:
        """Goes on with the call that has begun; returns the answer, which ends the call, or None.

        Raises:
            RuntimeError: the server answered with an error.
        """
        if self._connection is None:
            self._connect()
        if self._connection is None or (answer := self._unless_gone(self._connection, self._look)) is None:
            return None
        self._arguments = None
        return (_result(*answer[0]),)

    def wait(self, timeout_s: float) -> None:
        """Waits until `poll` can go on, for at most `timeout_s`."""
        if self._connection is None:
            self._connect(timeout_s)
            return
        ready = select.poll()  # as `select.select`, of any descriptor
        ready.register(self._connection.socket, select.POLLIN | (select.POLLOUT if self._connection.waits else 0))
        ready.poll(1000 * timeout_s)

    def close(self) -> None:
        """Closes the connection for good, which also ends a call that has begun."""
        self._closed = True
        self._disconnect()
        with contextlib.suppress(queue.Empty):
            self._dialled.get_nowait().close()

    @staticmethod
    def _look(connection: _Connection) -> tuple[Any] | None:
        with contextlib.suppress(BlockingIOError):
            return connection.read() if connection.push() else None
        return None

    def _unless_gone(self, connection: _Connection, step: Callable[[_Connection], _Result]) -> _Result | None:
        """Returns the result of a step; closes the connection on any error. A lost connection gives None."""
        try:
            return step(connection)
        except OSError:
            self._disconnect()
            return None
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def _connect(self, timeout_s: float = 0.0) -> None:
        """Sends the call through a connection that a thread makes, if it is there within `timeout_s`."""
        if not self._dials:
            self._dials = True
            threading.Thread(target=self._dial, args=(self._pause_s,), name="connect", daemon=True).start()
            self._pause_s = _LOOK_S
        try:
            dialled = self._dialled.get(timeout=timeout_s) if timeout_s else self._dialled.get_nowait()
        except queue.Empty:
            return
        self._dials = False
        try:
            self._connection = _Connection(dialled)
        except OSError:  # it is lost already
            dialled.close()
            return
        self._unless_gone(self._connection, lambda connection: connection.post(self._arguments, before=self._token))

    def _dial(self, pause_s: float) -> None:
        while not self._closed:
            time.sleep(pause_s)
            pause_s = _LOOK_S
            with contextlib.suppress(OSError):
                self._dialled.put(socket.create_connection(self._address, timeout=_SLOW_S))
                break
        if self._closed:
            with contextlib.suppress(queue.Empty):
                self._dialled.get_nowait().close()


def _result(good: bool, result: Any) -> Any:
    if not good:
        raise RuntimeError(f"a call was answered by an error:\n{result}")
    return result
