import os
import signal
import subprocess
import sys
import threading

import pytest

from acme_ext.launch.interrupt import at_once, graceful


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number):
    told: list[str] = []
    before = signal.getsignal(number)
    with graceful(told.append) as interrupt:
        assert not interrupt.requested
        os.kill(os.getpid(), number)
        assert interrupt.requested
        assert interrupt.signal == number
    assert told == ["stopping after a last save; Ctrl-C again stops at once."]
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_interrupts_at_once():
    before = signal.getsignal(signal.SIGINT)

    def interrupt_twice() -> None:
        with graceful(lambda message: None):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_the_main_thread_it_changes_nothing():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def run() -> None:
        with graceful(lambda message: None) as interrupt:
            seen.append((signal.getsignal(signal.SIGINT), interrupt.requested))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [(before, False)]


def test_while_libraries_are_imported_ctrl_c_ends_the_process(tmp_path):
    module = tmp_path / "library.py"
    module.write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt as error:\n"
        "    raise ImportError('it is not installed') from error\n"
    )
    code = "from acme_ext.launch.interrupt import at_once\nwith at_once():\n    import library\nprint('went on')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout, found.stderr) == (128 + signal.SIGINT, "", "")


def test_afterwards_and_outside_the_main_thread_ctrl_c_is_what_it_was():
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def look() -> None:
        with at_once():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    look()
    assert seen[0] is before
    assert seen[1] is not before
    assert signal.getsignal(signal.SIGINT) is before
