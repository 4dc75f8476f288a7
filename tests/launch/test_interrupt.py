import os
import signal
import threading

import pytest

from acme_ext.launch.interrupt import graceful


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
