"""One fetch of a learner's parameters for all processes of a host."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import struct
import tempfile
import time
import weakref
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

_PREFIX = "acme-ext-params-"
_TICK_S = 0.1  # between looks at whether there is an answer
_HELD_S = 0.5  # for which one waits for it
_PATIENCE_S = 5.0  # without an answer of who asks, after which others ask too
_VERSION = struct.Struct("<q")


class SharedFetch:
    """A `Fetch` that the processes of a host share: one of them asks at a time, and the others read the answer.

    The first call of each goes to the learner, so that the connection stands when it is needed. Later the answer is a
    file in a folder in shared memory (`/dev/shm`, otherwise where temporary files are). Locks, which go with the
    process that holds them, say who asks and who else is there. The last to leave removes the folder. One that was left
    by processes that were killed is removed by the next that makes a folder there. Where there is no room or no such
    folder, each asks for itself; who is alone writes nothing.

    Args:
        fetch: asks the learner.
        name: the same for all that ask this learner; nobody else can guess it.
        root: where the folder is made.
    """

    def __init__(
        self,
        fetch: Callable[[int], tuple[int, Any]],
        name: bytes,
        root: pathlib.Path | None = None,
    ):
        self._fetch, self._connected = fetch, False
        self._folder = (root or _root()) / f"{_PREFIX}{hashlib.sha256(name).hexdigest()[:32]}"
        self._locks = _enter(self._folder)
        self._answered = time.monotonic()  # when this one last had an answer, or asked
        self.close = weakref.finalize(self, _leave, self._folder, self._locks)
        """Leaves, as also the end of this object or of the process does; the last one removes the folder."""

    def __call__(self, held: int) -> tuple[int, Any]:
        """Returns the newest version and its pickled parameters, or None if there are none newer than those held."""
        if self._locks is None or not self._connected:
            answer = self._fetch(held)
            self._connected, self._answered = True, time.monotonic()
            return answer
        users, asks = self._locks
        until = time.monotonic() + _HELD_S
        while (answer := self._read(held)) is None:
            if _lock(asks):
                try:
                    answer = self._read(held) or self._ask(held, users)
                finally:
                    fcntl.flock(asks, fcntl.LOCK_UN)
                break
            if time.monotonic() - self._answered > _PATIENCE_S:
                answer = self._fetch(held)
                break
            if time.monotonic() > until:
                return held, None
            time.sleep(_TICK_S)
        self._answered = time.monotonic()
        return answer

    def _read(self, held: int) -> tuple[int, Any] | None:
        """Returns what another one was answered, if it is newer."""
        with contextlib.suppress(OSError), open(self._folder / "params", "rb") as file:
            (version,) = _VERSION.unpack(file.read(_VERSION.size))
            if version > held:
                return version, np.memmap(file, np.uint8, "r", _VERSION.size)  # not copied, and there while it is used
        return None

    def _ask(self, held: int, users: BinaryIO) -> tuple[int, Any]:
        version, payload = self._fetch(held)
        if payload is not None and not _is_alone(users):
            written = self._folder / "writing"
            try:
                with open(written, "wb") as file:
                    file.write(_VERSION.pack(version))
                    file.write(payload)
                written.replace(self._folder / "params")
            except OSError:  # no room: each asks for itself
                with contextlib.suppress(OSError):
                    written.unlink()
        return version, payload


def _root() -> pathlib.Path:
    memory = pathlib.Path("/dev/shm")
    return memory if os.access(memory, os.W_OK) else pathlib.Path(tempfile.gettempdir())


def _enter(folder: pathlib.Path) -> tuple[BinaryIO, BinaryIO] | None:
    """Returns two files of a folder that are locked: by all that use it, and by the one that asks. None: no folder."""
    with contextlib.suppress(OSError):
        for other in folder.parent.glob(f"{_PREFIX}*"):
            if other != folder:
                _remove_if_left(other)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            users, asks = (open(folder / name, "ab") for name in ("users", "asks"))  # noqa: SIM115  kept open
            if _lock(users):  # nobody is there: what lies there was left by an earlier start
                (folder / "params").unlink(missing_ok=True)
            fcntl.flock(users, fcntl.LOCK_SH)
            return users, asks
    return None


def _leave(folder: pathlib.Path, locks: tuple[BinaryIO, BinaryIO] | None) -> None:
    if locks is not None:
        users, asks = locks
        if _lock(users):
            shutil.rmtree(folder, ignore_errors=True)
        users.close()
        asks.close()


def _is_alone(users: BinaryIO) -> bool:
    alone = _lock(users)
    fcntl.flock(users, fcntl.LOCK_SH)  # one that could not be changed may be lost
    return alone


def _lock(file: BinaryIO) -> bool:
    """Takes a lock for this process alone if nobody else has it; returns whether it did."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_if_left(folder: pathlib.Path) -> None:
    """Removes a folder of this user's that no process uses."""
    with contextlib.suppress(OSError):
        if folder.stat().st_uid == os.getuid():
            with open(folder / "users", "rb") as users:
                if _lock(users):
                    shutil.rmtree(folder, ignore_errors=True)
