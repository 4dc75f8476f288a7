import ctypes
import gc
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from acme_ext.launch.hosts import interrupt
from acme_ext.launch.hosts.interrupt import at_once, graceful, install_handler

_FIRST = "stopping after a last save; Ctrl-C again stops at once."


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number):
    told: list[str] = []
    before = signal.getsignal(number)
    with graceful(told.append) as request:
        assert not request.requested
        send(number)
        wait_for(lambda: bool(told))
        assert request.requested
        assert request.signal == number
    assert told == [_FIRST]
    assert signal.getsignal(number) is before


def test_a_signal_is_heard_where_an_exception_of_its_handler_would_be_lost():
    """Compiled code that calls Python prints an exception and goes on: the garbage collector's callbacks do, which JAX
    has one of, and ctypes.
    """

    def in_callback(phase: str, info: object) -> None:
        if phase == "start":
            send(signal.SIGINT)

    with graceful(lambda message: None) as request:
        gc.callbacks.append(in_callback)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(in_callback)
        wait_for(lambda: request.requested)
    with graceful(lambda message: None) as request:
        ctypes.CFUNCTYPE(None)(lambda: send(signal.SIGINT))()
        wait_for(lambda: request.requested)


def test_a_signal_is_heard_while_compiled_code_keeps_the_main_thread():
    ended = threading.Event()
    heard: list[bool] = []
    with graceful(lambda message: heard.append(ended.is_set())):
        threading.Timer(0.05, send, [signal.SIGINT]).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)  # about two seconds, in which no handler is run
        ended.set()
        wait_for(lambda: bool(heard))
    assert heard == [False]


_CLOCK = """
import os, signal, time
from acme_ext.launch.hosts import interrupt

class Clock:
    now, looks = 0.0, 0
    def monotonic(self):
        Clock.looks += 1
        return Clock.now

def send(number, at):
    Clock.now, looks = at, Clock.looks
    os.kill(os.getpid(), number)
    while Clock.looks == looks:
        time.sleep(0.001)

interrupt.time = Clock()
with interrupt.graceful(lambda message: print(message, flush=True)):
    send(signal.SIGINT, at=0.0)
    send(signal.SIGINT, at=0.9 * interrupt.SAME_REQUEST_S)
    print("went on", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    send(signal.SIGINT, at=1.1 * interrupt.SAME_REQUEST_S)
    time.sleep(60)
"""


def test_signals_of_one_request_count_once_and_a_later_ctrl_c_ends_the_process():
    found = _run(_CLOCK)
    last = "stopped at once; the same command resumes from the last checkpoint."
    assert (found.returncode, found.stdout.splitlines()) == (130, [_FIRST, "went on", last]), found.stderr


def test_in_an_interactive_session_a_second_ctrl_c_is_a_keyboard_interrupt(monkeypatch):
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(interrupt, "SAME_REQUEST_S", -1.0)
    told: list[str] = []

    def interrupt_twice() -> None:
        with graceful(told.append) as request:
            send(signal.SIGINT)
            wait_for(lambda: request.requested)
            send(signal.SIGINT)
            wait_for(lambda: False)

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert len(told) == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_of_two_the_inner_one_hears_and_then_the_outer_one_again():
    outer: list[int] = []
    inner: list[int] = []
    with install_handler(outer.append):
        with install_handler(inner.append):
            send(signal.SIGINT)
            wait_for(lambda: bool(inner))
        send(signal.SIGTERM)
        wait_for(lambda: bool(outer))
    assert (outer, inner) == ([signal.SIGTERM], [signal.SIGINT])


def test_what_nobody_hears_is_delivered_afterwards():
    done = []

    def interrupt_once() -> None:
        with install_handler(None):
            send(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupt_once()
    assert done


def test_outside_the_main_thread_it_changes_nothing():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def run() -> None:
        with graceful(lambda message: None) as request:
            seen.append((signal.getsignal(signal.SIGINT), request.requested))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(before, False)]


def test_what_a_forked_process_is_sent_is_not_its_parents(tmp_path):
    """An environment may fork processes: Ctrl-C reaches them too, and they are ended by SIGTERM."""
    with graceful(lambda message: None) as request:
        child = os.fork()
        if child == 0:
            send(signal.SIGINT)
            (tmp_path / "went on").touch()
            send(signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        assert not request.requested
        send(signal.SIGINT)
        wait_for(lambda: request.requested)
    assert (tmp_path / "went on").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_while_libraries_are_imported_a_signal_ends_the_process(tmp_path, number):
    (tmp_path / "library.py").write_text(
        "import os, time\n"
        "try:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt as error:\n"
        "    raise ImportError('it is not installed') from error\n"
    )
    code = "from acme_ext.launch.hosts.interrupt import at_once\nwith at_once('it stopped.'):\n    import library"
    found = _run(code, tmp_path)
    assert (found.returncode, found.stdout, found.stderr) == (128 + number, "", "it stopped.\n")


def test_a_name_of_launch_is_imported_as_a_whole_before_a_ctrl_c_is_raised(tmp_path):
    code = (
        "import gc, os, signal, sys\n"
        "from acme_ext import launch\n"
        "gc.callbacks.append(lambda phase, info: gc.callbacks.clear() or os.kill(os.getpid(), signal.SIGINT))\n"
        "class Import:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'acme_ext.launch.runs.experiment': gc.collect()\n"
        "sys.meta_path.insert(0, Import())\n"
        "try:\n"
        "    launch.Experiment\n"
        "except KeyboardInterrupt:\n"
        "    print('acme_ext.launch.runs.experiment' in sys.modules)\n"
    )
    found = _run(code)
    assert (found.returncode, found.stdout) == (0, "True\n"), found.stderr


def _run(code: str, *folders: os.PathLike[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [*map(str, folders), *sys.path]))}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)


def test_afterwards_and_outside_the_main_thread_ctrl_c_is_what_it_was():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def look() -> None:
        with at_once("it stopped."):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    look()
    assert seen[0] is before
    assert seen[1] is not before
    assert signal.getsignal(signal.SIGINT) is before
