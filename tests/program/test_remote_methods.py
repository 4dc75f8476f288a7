"""Calls of the methods of an object in another process, where there is no Courier."""

import contextlib
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
from concurrent import futures

import numpy as np
import pytest

from acme_ext.launch.hosts.remote_methods import Client, Server
from acme_ext.utils import ports

_TOKEN = bytes(range(32))
_PATIENCE_S = 60


class Served:
    """What is called."""

    kind = "a constant, not a method"

    def __init__(self):
        self.called = 0
        self.waiting, self.released = queue.Queue(), threading.Event()

    def add(self, a, b=0):
        self.called += 1
        return a + b

    def wait(self):
        self.waiting.put(None)
        assert self.released.wait(_PATIENCE_S)
        return threading.get_ident()

    def release(self):
        self.released.set()

    def fail(self):
        raise ArithmeticError("the arm fell off")

    def give_a_function(self):
        return lambda: None

    def _hide(self):
        raise AssertionError


@pytest.fixture
def port():
    reserved = ports.reserve()
    yield reserved.getsockname()[1]
    reserved.close()


@pytest.fixture
def served(port):
    served = Served()
    server = Server(served, _TOKEN, "localhost", port)
    yield served
    served.released.set()
    server.close()


@pytest.fixture
def client(port):
    return Client(f"localhost:{port}", _TOKEN)


def test_methods_are_called_with_arguments_of_any_kind(served, client):
    assert client.add(1) == 1
    assert client.add(1, b=2) == 3
    assert client.futures.add("a", "b").result(_PATIENCE_S) == "ab"
    large = np.arange(100_000, dtype=np.float32)
    np.testing.assert_array_equal(client.add(large, large), 2 * large)
    assert served.called == 4


def test_errors_of_a_method_reach_the_caller_with_their_traceback(served, client):
    with pytest.raises(RuntimeError, match=r"in fail\n.*\nArithmeticError: the arm fell off"):
        client.fail()
    with pytest.raises(RuntimeError, match="the arm fell off"):
        client.futures.fail().result(_PATIENCE_S)
    with pytest.raises(RuntimeError, match="Can't pickle local object"):
        client.give_a_function()
    with pytest.raises(RuntimeError, match="Served has no public method 'jump'"):
        client.jump()
    for name in ("kind", "_hide"):
        with pytest.raises(RuntimeError, match=f"Served has no public method '{name}'"):
            client.call(name)
    with pytest.raises((AttributeError, pickle.PicklingError), match="local object"):
        client.add(lambda: None)
    assert client.add(1) == 1  # the connection can still be used


def test_any_number_of_methods_can_wait_at_once(served, client):
    waiting = [client.futures.wait() for _ in range(40)]
    for _ in waiting:
        served.waiting.get(timeout=_PATIENCE_S)
    assert client.add(1) == 1
    assert not any(future.done() for future in waiting)
    client.release()
    threads = {future.result(_PATIENCE_S) for future in waiting}
    assert len(threads) == len(waiting)


def test_a_call_waits_for_its_server_and_goes_on_when_it_is_back(port, client):
    waiting = client.futures.add(1)
    with pytest.raises(futures.TimeoutError):
        waiting.result(0.3)
    first = Server(Served(), _TOKEN, "localhost", port)
    assert client.add(2) == 2
    assert waiting.result(_PATIENCE_S) == 1
    # One that is under way when its server goes is made again.
    waiting = client.futures.wait()
    first.close()
    assert not waiting.done()
    served = Served()
    served.release()
    second = Server(served, _TOKEN, "localhost", port)
    assert isinstance(waiting.result(_PATIENCE_S), int)
    assert client.add(3) == 3
    second.close()


def test_a_server_that_closes_still_answers(port, client):
    served = Served()
    server = Server(served, _TOKEN, "localhost", port)
    waiting = client.futures.wait()
    served.waiting.get(timeout=_PATIENCE_S)
    closing = threading.Thread(target=server.close)
    closing.start()
    assert client.add(1) == 1
    client.release()
    assert waiting.result(_PATIENCE_S)
    closing.join()


def test_nothing_of_a_caller_without_the_token_is_unpickled(served, port, tmp_path):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harm"),)

    stranger = Client(f"localhost:{port}", bytes(32), call_timeout=0.5)
    with pytest.raises(TimeoutError, match="has not answered in time"):
        stranger.add(Harm())
    with socket.create_connection(("localhost", port)) as other:
        other.sendall(b"\0" * 32 + pickle.dumps(Harm()))
        with contextlib.suppress(ConnectionResetError):
            assert other.recv(1) == b""
    assert not (tmp_path / "harm").exists()
    assert served.called == 0


def test_a_call_to_a_server_that_is_gone_ends_with_the_program(port):
    stopped = threading.Event()
    client = Client(f"localhost:{port}", _TOKEN, stopped=stopped)
    waiting = client.futures.add(1)
    with pytest.raises(futures.TimeoutError):
        waiting.result(0.3)
    stopped.set()
    with pytest.raises(RuntimeError, match=f"the program ends, and localhost:{port} does not answer any more"):
        waiting.result(_PATIENCE_S)
    server = Server(Served(), _TOKEN, "localhost", port)  # one that is there is asked all the same
    assert client.add(1) == 1
    server.close()


_EXITS = """
import sys
from acme_ext.launch.hosts.remote_methods import Client
Client(sys.argv[1], bytes(32)).futures.add(1)
"""


def test_a_process_that_waits_for_no_answer_can_exit(port):
    subprocess.run([sys.executable, "-c", _EXITS, f"localhost:{port}"], check=True, timeout=_PATIENCE_S)


def test_a_port_is_kept_until_its_server_listens_and_between_two_servers(port):
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("localhost", port))
    server = Server(Served(), _TOKEN, "localhost", port)
    with pytest.raises(OSError, match="in use"):
        Server(Served(), _TOKEN, "localhost", port)
    server.close()
    Server(Served(), _TOKEN, "localhost", port).close()
