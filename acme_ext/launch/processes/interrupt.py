"""Ctrl-C and SIGTERM: a request to stop, which is noticed at once and honoured at the next suitable moment.

Python runs a signal's handler in the main thread, between two instructions. It so has to wait for compiled code (an
XLA compilation, say), and an exception that it raises is printed and lost where compiled code had called Python, as in
JAX's callback of the garbage collector. Here the handler does nothing: a thread hears of signals, through
`signal.set_wakeup_fd`.
"""

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Stop requests."""
SAME_REQUEST_S = 0.25
"""Seconds in which a second signal is the same request: `timeout` signals a command, and then its process group."""

_SAYING_S = 1.0  # that a process which ends at once gets for its last words
_before: list[dict[int, Any]] = []  # the handlers that each `heard_by` has found, the outermost first


class Interrupt:
    """Whether somebody asked the run to stop."""

    def __init__(self):
        self.signal: int | None = None
        """The signal that asked."""

    @property
    def requested(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def heard_by(listener: Callable[[int], None] | None) -> Iterator[None]:
    """Calls `listener(number)`, in a thread, for each SIGINT and SIGTERM; without one they are delivered at the end.

    Of several, one inside the other, the innermost hears. Processes that are forked meanwhile let their first SIGINT
    pass: a terminal's Ctrl-C reaches them too, and this process ends them when it stops. Outside the main thread, where
    Python hands out no signals, it changes nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    late: list[int] = []
    listening = listener is not None

    def listen() -> None:
        while number := os.read(reader, 1)[0]:
            if number not in STOP_SIGNALS:
                continue
            if listener is not None and listening:
                listener(number)
            else:
                late.append(number)

    thread = threading.Thread(target=listen, name="signals", daemon=True)
    thread.start()
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    _before.append({number: signal.signal(number, _nothing) for number in STOP_SIGNALS})
    try:
        yield
    finally:
        listening = False
        for number, handler in _before.pop().items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.write(writer, b"\0")  # closed, it could still be open in a process that was forked meanwhile
        thread.join()
        os.close(reader)
        os.close(writer)
        for number in late:
            signal.raise_signal(number)


def _nothing(number: int, frame: object) -> None:
    """A handler, without which a signal would not be heard of."""


@contextlib.contextmanager
def graceful(report: Callable[[str], None]) -> Iterator[Interrupt]:
    """Turns the first SIGINT or SIGTERM into a request; a later SIGINT ends the process at once, see `end`."""
    interrupt = Interrupt()
    asked_at = math.inf

    def hear(number: int) -> None:
        nonlocal asked_at
        if interrupt.signal is None:
            asked_at = time.monotonic()
            interrupt.signal = number
            report("stopping after a last save; Ctrl-C again stops at once.")
        elif number == signal.SIGINT and time.monotonic() - asked_at > SAME_REQUEST_S:
            end(number, lambda: report("stopped at once; the same command goes on from the last checkpoint."))

    with heard_by(hear):
        yield interrupt


@contextlib.contextmanager
def at_once(words: str) -> Iterator[None]:
    """Ends the process at a SIGINT or SIGTERM, after these words on stderr: for when there is nothing to save."""
    with heard_by(lambda number: end(number, lambda: print(words, file=sys.stderr))):
        yield


def end(number: int, say: Callable[[], None]) -> None:
    """Ends this process now, with exit code 128 + the signal's number, whatever it is doing.

    An interactive session (a notebook, say) goes on: KeyboardInterrupt is raised in its main thread.
    """
    # In a thread: the main one may hold a stream's lock, and wait for a reader.
    saying = threading.Thread(target=_say, args=(say,), daemon=True)
    saying.start()
    saying.join(_SAYING_S)
    if hasattr(sys, "ps1"):
        import ctypes

        main = ctypes.c_ulong(threading.main_thread().ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(KeyboardInterrupt))
    else:
        os._exit(128 + number)


def _say(say: Callable[[], None]) -> None:
    with contextlib.suppress(OSError, ValueError):  # a stream is closed, or its reader is gone
        say()
        sys.stdout.flush()
        sys.stderr.flush()


def _after_fork() -> None:
    if _before:
        signal.set_wakeup_fd(-1)  # it is the parent's
        signal.signal(signal.SIGTERM, _before[0][signal.SIGTERM])
        signal.signal(signal.SIGINT, _let_pass)
        _before.clear()


def _let_pass(number: int, frame: object) -> None:
    signal.signal(number, signal.default_int_handler)


os.register_at_fork(after_in_child=_after_fork)
