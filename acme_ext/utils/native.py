"""Filters the output of compiled code."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from acme_ext.utils import system

_ROOM = 2**20  # bytes of the pipe
_CHATTER = (b"[reverb/", b"I0000", b"W0000")


@contextlib.contextmanager
def native_stderr() -> Iterator[None]:
    """Hides Reverb's C++ log messages from the terminal; all other output on stderr is still shown.

    Python's own stderr is not affected. Only lines that other code writes directly to file descriptor 2 are filtered.
    """
    python_stderr = sys.stderr
    python_stderr.flush()
    terminal = os.dup(2)
    reader, writer = os.pipe()
    # Compiled code may write while it holds the GIL, which this reader needs. So it must not wait for space in the
    # pipe; if there is none, its output is lost.
    os.set_blocking(writer, False)
    system.enlarge_pipe(writer, _ROOM)
    os.dup2(writer, 2)
    os.close(writer)
    if _writes_to_descriptor_2(python_stderr):  # a notebook's, say, has its own way to the reader
        sys.stderr = os.fdopen(os.dup(terminal), "w", buffering=1)

    def pump() -> None:
        try:
            with os.fdopen(reader, "rb") as lines:
                for line in lines:
                    if not line.lstrip().startswith(_CHATTER):
                        with contextlib.suppress(BlockingIOError):  # the terminal is another such pipe
                            os.write(terminal, line)
        finally:
            os.close(terminal)

    thread = threading.Thread(target=pump, name="native-stderr", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        sys.stderr = python_stderr
        os.dup2(terminal, 2)  # closes the pipe's last writer, so that the thread ends
        thread.join(1.0)  # a child process that still runs is another writer


def _writes_to_descriptor_2(stream: TextIO) -> bool:
    try:
        return stream.fileno() == 2
    except (OSError, ValueError):  # it has none
        return False
