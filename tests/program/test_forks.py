"""What the supervisor does in processes of its own."""

import os
import signal
import threading

import courier
import portpicker
import pytest

from acme_ext.launch.processes import forks, supervisor


def test_a_coordinator_that_takes_its_time_is_asked_until_it_answers(monkeypatch):
    monkeypatch.setattr(forks, "_TRY_S", 0.2)
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
        pid = forks.ask_to_stop(f"localhost:{server.port}", ["actor-1"])
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
    monkeypatch.setattr(forks, "_TRY_S", 0.1)
    monkeypatch.setattr(forks, "_ANSWER_S", 0.3)
    pid = forks.ask_to_stop(f"localhost:{portpicker.pick_unused_port()}", [])
    assert os.waitpid(pid, 0)[1] != 0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "ended before the program did"),
        (forks.EXITED, "ended its process with exit code 0, as a library's exit() does"),
        (3, "failed with exit code 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-(signal.SIGRTMIN + 4), f"was killed by signal {signal.SIGRTMIN + 4}"),
    ],
)
def test_how_a_node_has_ended_is_said_for_every_signal(code, words):
    assert forks.how(code) == words


def test_the_last_words_are_those_at_the_end_of_a_log_or_none(tmp_path, monkeypatch):
    log = tmp_path / "actor.log"
    assert forks.last_words(log, 0) == "."  # where the disk was full before the node could open it
    log.write_text("of an earlier part\nof this one\n")
    assert forks.last_words(log, 19) == ":\nof this one"
    monkeypatch.setattr(forks, "_LAST_BYTES", 100)
    log.write_text("gone\n" + 200 * "." + "\n" + f"{forks._FAILED}\nArithmeticError: the arm fell off\n")
    assert forks.last_words(log, 0) == ":\nArithmeticError: the arm fell off"


def test_a_process_that_fails_before_its_node_has_a_log_says_why(capfd):
    def fail():
        raise OSError("no space left")

    assert os.waitstatus_to_exitcode(os.waitpid(forks.fork(fail), 0)[1]) == 1
    assert "OSError: no space left" in capfd.readouterr().err


def test_any_number_of_processes_that_a_node_left_can_end_at_once(monkeypatch):
    ended = iter([*((pid, 0) for pid in range(1, 5_000)), (0, 0)])
    monkeypatch.setattr(supervisor.os, "waitpid", lambda pid, options: next(ended))
    made = supervisor.Supervisor.__new__(supervisor.Supervisor)
    made.members, made._asking = [], 0
    assert made._reap() is None
    assert next(ended, None) is None
