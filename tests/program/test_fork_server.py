"""What a fork server does in processes of its own, and how it tells how nodes ended."""

import os
import signal
import threading

import courier
import portpicker
import pytest

from acme_ext.launch.hosts import description, fork_server, launchpad, node_process, process_tree
from acme_ext.launch.hosts.remote_methods import Server

_TOKEN = bytes(32)


class _Port(launchpad.AbstractAddressBuilder):
    def __init__(self, port):
        self._port = port

    def build(self):
        return f"localhost:{self._port}"


class _Slow:
    def __init__(self, request_stop):
        self.request_stop = request_stop


def _by_courier(port, request_stop):
    """Returns a coordinator's handle, and a function that ends the coordinator's server."""
    server = courier.Server("slow", port=port)
    server.Bind("request_stop", request_stop)
    server.Start()

    def close():
        server.Stop()
        server.Join()

    return _courier_handle(port), close


def _by_own_calls(port, request_stop):
    address = description.Address()
    address.bind(_Port(port))
    server = Server(_Slow(request_stop), _TOKEN, "localhost", port)
    return description.CourierHandle(address, _TOKEN), server.close


def _courier_handle(port):
    address = launchpad.Address("courier")
    address.bind(_Port(port))
    return launchpad.CourierHandle(address)


@pytest.mark.parametrize("serve", [_by_courier, _by_own_calls])
def test_a_coordinator_that_takes_its_time_is_asked_until_it_answers(serve, monkeypatch):
    monkeypatch.setattr(fork_server, "_TRY_S", 0.2)
    asked, awake = [], threading.Event()

    def request_stop(died):
        awake.wait(30)
        asked.append(died)

    handle, close = serve(portpicker.pick_unused_port(), request_stop)
    try:
        said, words = os.pipe()
        terminal = os.dup(2)
        os.dup2(words, 2)
        pid = fork_server.ask_to_stop(handle, ["actor-1"])
        os.dup2(terminal, 2)
        assert b"the coordinator does not answer yet" in os.read(said, 1000)
        awake.set()
        assert os.waitpid(pid, 0)[1] == 0
        assert asked[0] == ["actor-1"]
    finally:
        awake.set()
        close()


def test_a_coordinator_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(fork_server, "_TRY_S", 0.1)
    monkeypatch.setattr(fork_server, "_ANSWER_S", 0.3)
    pid = fork_server.ask_to_stop(_courier_handle(portpicker.pick_unused_port()), [])
    assert os.waitpid(pid, 0)[1] != 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended before the program did"),
        (fork_server.EXITED, "ended its process with exit code 0, as a library's exit() does"),
        (3, "failed with exit code 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-(signal.SIGRTMIN + 4), f"was killed by signal {signal.SIGRTMIN + 4}"),
    ],
)
def test_the_end_of_a_node_is_described_for_every_signal(code, words):
    assert fork_server.describe_exit(code) == words


def test_the_tail_of_a_log_is_of_the_last_start_or_empty(tmp_path, monkeypatch):
    log = tmp_path / "actor.log"
    assert fork_server.log_tail(log, 0) == "."  # where the disk was full before the node could open it
    log.write_text("of an earlier part\nof this one\n")
    assert fork_server.log_tail(log, 19) == ":\nof this one"
    monkeypatch.setattr(fork_server, "_LAST_BYTES", 100)
    log.write_text("gone\n" + 200 * "." + "\n" + f"{node_process.FAILED}\nArithmeticError: the arm fell off\n")
    assert fork_server.log_tail(log, 0) == ":\nArithmeticError: the arm fell off"


def test_a_process_that_fails_before_its_node_has_a_log_says_why(capfd):
    def fail():
        raise OSError("no space left")

    assert os.waitstatus_to_exitcode(os.waitpid(process_tree.fork(fail), 0)[1]) == 1
    assert "OSError: no space left" in capfd.readouterr().err


def test_any_number_of_processes_that_a_node_left_can_end_at_once(monkeypatch):
    ended = iter([*((pid, 0) for pid in range(1, 5_000)), (0, 0)])
    monkeypatch.setattr(fork_server.os, "waitpid", lambda pid, options: next(ended))
    assert fork_server.ForkServer().reap() == []
    assert next(ended, None) is None
