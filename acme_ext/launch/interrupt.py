"""Ctrl-C and SIGTERM: a wish to stop, which the run grants at its next good moment."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator


class Interrupt:
    """Whether somebody asked the run to stop."""

    def __init__(self):
        self.signal: int | None = None
        """The signal that asked."""

    @property
    def requested(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def graceful(report: Callable[[str], None]) -> Iterator[Interrupt]:
    """Turns the first SIGINT or SIGTERM into a request; a second SIGINT interrupts at once.

    Outside the main thread, where Python hands out no signals, it changes nothing.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def handle(number: int, frame) -> None:
        interrupt.signal = number
        signal.signal(signal.SIGINT, signal.default_int_handler)
        report("stopping after a last save; Ctrl-C again stops at once.")

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Ends the process at Ctrl-C, with exit code 130: for when libraries are imported, half of which would turn it into
    an error of their own, and there is nothing to save.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, lambda number, frame: os._exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
