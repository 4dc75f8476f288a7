"""What a fork server does in processes of its own, and how it tells how nodes ended."""

import os
import signal
import threading

import courier
import portpicker
import pytest

from acme_ext.launch.hosts import fork_server, node_process, process_tree


def test_a_coordinator_that_takes_its_time_is_asked_until_it_answers(monkeypatch):
    monkeypatch.setattr(fork_server, "_TRY_S", 0.2)
    asked, awake = [], threading.Event()

    def request_stop(died):
        awake.wait(30)
        asked.append(died)

    server = courier.Server("slow", port=portpicker.pick_unused_port())
    server.Bind("request_stop", request_stop)
    server.Start()
    try:
        said, words = os.pipe()
        terminal = os.dup(2)
        os.dup2(words, 2)
        pid = fork_server.ask_to_stop(f"localhost:{server.port}", ["actor-1"])
        os.dup2(terminal, 2)
        assert b"the coordinator does not answer yet" in os.read(said, 1000)
        awake.set()
        assert os.waitpid(pid, 0)[1] == 0
        assert asked[0] == ["actor-1"]
    finally:
        awake.set()
        server.Stop()
        server.Join()


def test_a_coordinator_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr(fork_server, "_TRY_S", 0.1)
    monkeypatch.setattr(fork_server, "_ANSWER_S", 0.3)
    pid = fork_server.ask_to_stop(f"localhost:{portpicker.pick_unused_port()}", [])
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
