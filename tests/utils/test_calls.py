"""Calls from the test's threads to a server in another."""

import contextlib
import os
import pickle
import resource
import socket
import threading
import time

import numpy as np
import pytest

from acme_ext.utils import calls
from acme_ext.utils.calls import TOKEN_BYTES, CallServer, PolledCall, RemoteCall

WAIT_S = 10
TOKEN = bytes(range(TOKEN_BYTES))


class StoppedError(Exception):
    pass


class Serving:
    """A server in a thread of its own, that answers with `function`."""

    def __init__(self, function, port=0):
        self.server, self.function, self.heard = CallServer(TOKEN, port=port), function, []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended.is_set():
            for call in self.server.take(None):
                self.heard.append(call.arguments)
                try:
                    call.answer(self.function(*call.arguments))
                except ValueError as error:
                    call.fail(str(error))

    def end(self):
        self.ended.set()
        self.server.wake()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        self.server.close()


@pytest.fixture
def serve(request):
    def serve(function):
        serving = Serving(function)
        request.addfinalizer(serving.end)
        return serving

    return serve


def call(serving, **options):
    return RemoteCall(lambda: ("localhost", serving.server.port), token=TOKEN, **options)


def asked(remote, *arguments):
    remote.begin(*arguments)
    return remote.end()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.int64).reshape(2, 3).T,  # not in C's order
        np.arange(20)[::3],  # not contiguous
        np.zeros((3, 0), np.uint8),
        np.array(True),
        np.array(["one", "two"]),
        np.array([{"an": "object"}, None], dtype=object),
        np.zeros(2, np.dtype([("x", np.int8), ("y", np.float64)])),
        np.arange(20_000).astype("datetime64[s]"),
        np.random.default_rng(0).integers(0, 256, (32, 84, 84, 4), dtype=np.uint8),  # larger than what is read at once
        np.random.default_rng(0).normal(size=(3, 50_000))[:, ::2],
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_come_as_they_went(serve, array):
    remote = call(serve(lambda *arguments: arguments))
    for _ in range(2):
        name, there = asked(remote, "name", {"nested": [array, 3]})
        assert name == "name"
        back, three = there["nested"]
        assert three == 3
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
    remote.close()


def test_an_answer_may_be_asked_for_and_fetched_later(serve):
    serving = serve(lambda who, x: (who, x + 1))
    one, other = call(serving, first=("one",)), call(serving, first=("other",))
    for x in range(50):
        one.begin(x)
        other.begin(-x)
        assert one.end() == ("one", x + 1)
        assert other.end() == ("other", 1 - x)
    one.close()
    other.close()


def test_an_error_is_raised_at_its_caller_alone_who_can_call_again(serve):
    def function(x):
        if x < 0:
            raise ValueError(f"{x} is too little")
        return x

    serving = serve(function)
    one, other = call(serving), call(serving)
    one.begin(-1)
    other.begin(1)
    with pytest.raises(RuntimeError, match="answered by an error:\n-1 is too little"):
        one.end()
    assert other.end() == 1
    assert asked(one, 2) == 2
    one.close()
    other.close()


def test_many_callers_are_each_answered_what_they_asked(serve):
    remotes = []
    wrong = []
    serving = serve(lambda name, x: (name, x))

    def ask(name):
        remote = call(serving, first=(name,))
        for n in range(200):
            if asked(remote, n) != (name, n):
                wrong.append((name, n))
        remotes.append(remote)

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(remotes) == 8
    assert not wrong
    assert len(serving.heard) == 8 * 200
    for remote in remotes:
        remote.close()


def test_a_server_that_comes_back_elsewhere_is_called_anew():
    there = [Serving(lambda x: ("first", x))]
    remote = RemoteCall(lambda: ("localhost", there[-1].server.port), token=TOKEN)
    assert asked(remote, 1) == ("first", 1)
    there[0].end()
    there.append(Serving(lambda x: ("second", x)))
    assert asked(remote, 2) == ("second", 2)
    # One that dies with a call in its hands never answers it: another hears it again.
    taken, gate = threading.Event(), threading.Event()
    there[1].function = lambda x: taken.set() or gate.wait(WAIT_S)
    remote.begin(3)
    assert taken.wait(WAIT_S)
    there.append(Serving(lambda x: ("third", x)))
    there[1].ended.set()
    there[1].server.close()
    assert remote.end() == ("third", 3)
    assert there[2].heard == [(3,)]
    gate.set()
    there[1].thread.join(WAIT_S)
    remote.close()
    there[2].end()


def test_a_wait_can_be_given_up_and_its_answer_is_not_the_next_ones(serve, monkeypatch):
    gate = threading.Event()
    serving = serve(lambda x: gate.wait(WAIT_S) and x)
    looks, waits, select = [], [], calls._select
    monkeypatch.setattr(calls, "_select", lambda *given: looks.append(given[1]) or select(*given))

    def on_wait():
        waits.append(None)
        if len(waits) == 2:
            raise StoppedError

    remote = call(serving, on_wait=on_wait)
    remote.begin("slow")
    with pytest.raises(StoppedError):
        remote.end()
    assert looks.count(calls._LOOK_S) == 2  # so long it waited each time; the server waits as long as it takes
    assert 2 <= 1 / calls._LOOK_S <= 10  # times a second
    gate.set()
    assert asked(remote, "next") == "next"
    remote.close()


def test_a_server_that_is_not_there_is_looked_for_until_it_is_or_the_wait_ends():
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        address = unused.getsockname()  # nobody listens there
        waits = []

        def on_wait():
            waits.append(None)
            if len(waits) == 3:
                raise StoppedError

        remote = RemoteCall(lambda: address, on_wait, token=TOKEN)
        with pytest.raises(StoppedError):
            asked(remote, 1)


def polled(remote):
    """The answer to a polled call."""
    deadline = time.monotonic() + WAIT_S
    while (answer := remote.poll()) is None:
        assert time.monotonic() < deadline
        remote.wait(0.1)
    return answer[0]


def test_a_polled_call_waits_neither_for_its_server_nor_for_its_answer(serve):
    with socket.socket() as listener:
        listener.bind(("localhost", 0))  # nobody listens there yet
        remote = PolledCall(listener.getsockname(), token=TOKEN, first=("who",))
        remote.begin(1)
        assert [remote.poll() for _ in range(100)] == [None] * 100
        remote.close()
    gate = threading.Event()
    serving = serve(lambda who, x: gate.wait(WAIT_S) and x)
    remote = PolledCall(("localhost", serving.server.port), token=TOKEN, first=("who",))
    for x in (LARGE, 2):  # a large message takes several steps
        gate.clear()
        remote.begin(x)
        remote.wait(0.05)
        assert remote.poll() is None
        gate.set()
        np.testing.assert_array_equal(polled(remote), x)
    assert len(serving.heard) == 2
    remote.close()


def test_a_polled_call_is_repeated_where_its_server_comes_back_and_raises_its_error():
    def fail(x):
        raise ValueError(f"{x} is too little")

    first = Serving(lambda x: x)
    remote = PolledCall(("localhost", first.server.port), token=TOKEN)
    remote.begin(1)
    assert polled(remote) == 1
    first.end()
    remote.begin(2)
    assert remote.poll() is None
    second = Serving(fail, first.server.port)
    with pytest.raises(RuntimeError, match="answered by an error:\n2 is too little"):
        polled(remote)
    second.function = lambda x: x
    remote.begin(3)
    assert polled(remote) == 3
    assert second.heard == [(2,), (3,)]
    remote.close()
    second.end()


def test_a_server_notices_that_a_caller_whom_it_has_not_answered_is_gone():
    server = CallServer(TOKEN)
    remote = RemoteCall(lambda: ("localhost", server.port), token=TOKEN)
    remote.begin(1)
    calls, deadline = [], time.monotonic() + WAIT_S
    while not calls:
        assert time.monotonic() < deadline
        calls = server.take(0.1)
    assert not calls[0].gone
    remote.close()
    while not calls[0].gone:
        assert time.monotonic() < deadline
        server.take(0.1)
    calls[0].answer(1)  # nobody hears it
    server.close()


def test_strangers_and_half_a_message_hurt_nobody(serve):
    serving = serve(lambda x: x)
    address = ("localhost", serving.server.port)
    with socket.create_connection(address) as stranger, socket.create_connection(address) as slow:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        data = pickle.dumps(("half of it",))
        slow.sendall(TOKEN[:5])
        slow.sendall(TOKEN[5:])
        slow.sendall((1).to_bytes(8, "little") + len(data).to_bytes(8, "little") + data[:5])
        remote = call(serving)
        assert asked(remote, 1) == 1
        slow.sendall(data[5:])
        slow.settimeout(WAIT_S)
        assert b"half of it" in slow.recv(1000)
    assert asked(remote, 2) == 2
    assert serving.heard == [(1,), ("half of it",), (2,)]
    remote.close()


def test_taking_ends_when_it_is_woken_or_in_time():
    server = CallServer(TOKEN)
    assert server.take(0.05) == []
    waking = threading.Thread(target=server.wake)
    waking.start()
    assert server.take(None) == []
    waking.join()
    server.wake()
    assert server.take(None) == []
    server.close()


class Mine:
    """What tells that somebody has unpickled it."""

    def __reduce__(self):
        return os.mkdir, (Mine.folder,)


def test_nothing_is_unpickled_before_the_token_has_come(serve, tmp_path):
    serving = serve(lambda x: x)
    Mine.folder = str(tmp_path / "made")
    data = pickle.dumps((Mine(),))
    message = (1).to_bytes(8, "little") + len(data).to_bytes(8, "little") + data
    for shown in (b"", bytes(TOKEN_BYTES), TOKEN[:-1] + b"!"):
        with socket.create_connection(("localhost", serving.server.port)) as stranger:
            stranger.sendall(shown + message)
            stranger.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""  # it is cut off
    wrong = RemoteCall(lambda: ("localhost", serving.server.port), _stop, token=bytes(TOKEN_BYTES))
    with pytest.raises(StoppedError):
        asked(wrong, 1)
    assert not os.path.exists(Mine.folder)
    assert serving.heard == []


def _stop():
    raise StoppedError


def test_a_token_of_another_length_is_refused():
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        CallServer(b"abc")


def test_a_server_listens_at_one_address_alone():
    server = CallServer(TOKEN, "127.0.0.1")
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", server.port), timeout=WAIT_S)
        socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S).close()
    finally:
        server.close()


LARGE = np.zeros(16 * 2**20, np.uint8)


def test_a_caller_that_does_not_read_holds_up_nobody(serve):
    serving = serve(lambda x: LARGE if x == "large" else x)
    sleeping, other = call(serving), call(serving)
    sleeping.begin("large")
    for n in range(20):
        assert asked(other, n) == n
    np.testing.assert_array_equal(sleeping.end(), LARGE)
    assert asked(sleeping, 1) == 1
    sleeping.close()
    other.close()


def test_a_caller_that_takes_nothing_is_cut_off_and_asks_again(serve, monkeypatch):
    monkeypatch.setattr(calls, "_AWAITED_S", 0.5)
    serving = serve(lambda x: LARGE)
    sleeping = call(serving)
    sleeping.begin("large")
    deadline = time.monotonic() + WAIT_S
    while len(serving.server._selector.get_map()) > 2 or not serving.heard:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    np.testing.assert_array_equal(sleeping.end(), LARGE)
    assert len(serving.heard) == 2
    sleeping.close()


def test_who_shows_no_token_is_cut_off_in_time(serve, monkeypatch):
    monkeypatch.setattr(calls, "_AWAITED_S", 0.5)
    serving = serve(lambda x: x)
    with socket.create_connection(("localhost", serving.server.port)) as stranger:
        stranger.sendall(TOKEN[:3])
        stranger.settimeout(WAIT_S)
        assert stranger.recv(1) == b""


@contextlib.contextmanager
def open_files(most):
    """Allows this process no descriptor of a number from `most` on."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_server_without_descriptors_rests_says_so_and_accepts_again(serve, monkeypatch, capfd):
    looks, selected = [], calls._select
    serving = serve(lambda x: x)
    remote = call(serving)
    assert asked(remote, 1) == 1
    with socket.socket() as late:
        lowest = os.dup(0)
        os.close(lowest)
        with open_files(lowest):  # none that is free may be used
            late.connect(("127.0.0.1", serving.server.port))
            deadline = time.monotonic() + WAIT_S
            while serving.server.problem is None:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            monkeypatch.setattr(calls, "_select", lambda *given: looks.append(given) or selected(*given))
            looks.clear()
            time.sleep(0.5)
            assert len(looks) < 10  # it doesn't ask again and again
            assert asked(remote, 2) == 2  # those who are there are served
        late.sendall(TOKEN)
        other = call(serving)
        assert asked(other, 3) == 3
    assert serving.server.problem is None
    assert "acme-ext: the server can't accept more callers: Too many open files" in capfd.readouterr().err
    remote.close()
    other.close()


def test_descriptors_of_any_number_are_good(serve):
    """`select.select` takes none from 1,024 on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1_200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1_200), hard))
    held = []
    try:
        while not held or held[-1] < 1_030:
            held.append(os.dup(0))
        serving = serve(lambda x: LARGE)
        remote = call(serving)
        assert asked(remote, LARGE).nbytes == LARGE.nbytes
        remote.close()
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
