"""Ctrl-C and SIGTERM as stop requests, which are noticed at once and handled at the next suitable moment.

Python runs a signal's handler in the main thread, between two instructions. So it has to wait for compiled code,
such as an XLA compilation. If compiled code called Python, as JAX's garbage collection callback does, an exception of
the handler is only printed and then lost. Here the handler does nothing: a thread receives the signals through
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
"""Seconds within which a second signal is the same request: `timeout` signals a command, then its process group."""

_SAYING_S = 1.0  # time for a last message before an immediate end
_before: list[dict[int, Any]] = []  # the previous handlers of each active `install_handler`, the outermost first


class Interrupt:
    """A request to stop the run, if there was one."""

    def __init__(self):
        self.signal: int | None = None
        """The signal that requested it; None before."""

    @property
    def requested(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def install_handler(listener: Callable[[int], None] | None) -> Iterator[None]:
    """Calls `listener(number)`, in a thread, for each SIGINT and SIGTERM; without a listener, delivers them at the end.

    If they are nested, the innermost receives the signals. Processes that are forked meanwhile ignore their first
    SIGINT: a terminal's Ctrl-C reaches them too, and this process ends them when it stops. Outside the main thread,
    where Python doesn't deliver signals, it does nothing.
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
        os.write(writer, b"\0")  # closing it is not enough: a forked process may still have it open
        thread.join()
        os.close(reader)
        os.close(writer)
        for number in late:
            signal.raise_signal(number)


def _nothing(number: int, frame: object) -> None:
    """A handler that does nothing; the wakeup file descriptor works only for signals with a handler."""


@contextlib.contextmanager
def graceful(
    report: Callable[[str], None],
    *,
    on_request: Callable[[], None] = lambda: None,
    on_end: Callable[[], None] = lambda: None,
) -> Iterator[Interrupt]:
    """Turns the first SIGINT or SIGTERM into a stop request; a later SIGINT ends the process at once, see `end`.

    Args:
        report: called with a message for each.
        on_request: called after the message of a stop request.
        on_end: called before the process ends at once.
    """
    interrupt = Interrupt()
    asked_at = math.inf

    def hear(number: int) -> None:
        nonlocal asked_at
        if interrupt.signal is None:
            asked_at = time.monotonic()
            interrupt.signal = number
            report("stopping after a last save; Ctrl-C again stops at once.")
            on_request()
        elif number == signal.SIGINT and time.monotonic() - asked_at > SAME_REQUEST_S:
            on_end()
            end(number, lambda: report("stopped at once; the same command resumes from the last checkpoint."))

    with install_handler(hear):
        yield interrupt


@contextlib.contextmanager
def at_once(words: str) -> Iterator[None]:
    """Ends the process at a SIGINT or SIGTERM, with a message on stderr; for times without anything to save."""
    with install_handler(lambda number: end(number, lambda: print(words, file=sys.stderr))):
        yield


def end(number: int, say: Callable[[], None]) -> None:
    """Ends this process at once, with exit code 128 + the signal's number.

    An interactive session, such as a notebook, does not end: its main thread receives a KeyboardInterrupt.
    """
    # In a thread, since the main thread may hold a stream's lock while it waits for a reader.
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
    with contextlib.suppress(OSError, ValueError):  # the stream is closed, or its reader is gone
        say()
        sys.stdout.flush()
        sys.stderr.flush()


def _after_fork() -> None:
    if _before:
        signal.set_wakeup_fd(-1)  # it belongs to the parent
        signal.signal(signal.SIGTERM, _before[0][signal.SIGTERM])
        signal.signal(signal.SIGINT, _let_pass)
        _before.clear()


def _let_pass(number: int, frame: object) -> None:
    signal.signal(number, signal.default_int_handler)


os.register_at_fork(after_in_child=_after_fork)
