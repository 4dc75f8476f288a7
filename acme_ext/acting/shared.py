"""Fetches a learner's parameters once for all processes of a host."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import struct
import time
import weakref
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from acme_ext.utils import system

_PREFIX = "acme-ext-params-"
_TICK_S = 0.1  # longest time between checks for an answer
_LEAST_S = 0.005  # shortest
_HELD_S = 0.5  # longest wait for an answer
_PATIENCE_S = 5.0  # time without an answer after which the other processes ask the learner too
_VERSION = struct.Struct("<q")


class SharedFetch:
    """A `Fetch` that the processes of a host share: one process asks at a time, and the others read its answer.

    Each process's first call goes to the learner, so that its connection is open if it is needed later. After that, the
    answer is a file in a folder in shared memory (`system.shared_folder`). File locks, which end with their process,
    show which process asks and whether others use the folder. The last process removes the folder. If killed processes
    left a folder behind, `remove_left` at the program's end removes it, or the next process that makes such a folder.
    Without space or a folder, each process asks for itself. A process that is alone writes nothing.

    Args:
        fetch: asks the learner.
        name: a secret name that all processes with this learner share.
        root: the parent of the folder; None for the default.
    """

    def __init__(
        self,
        fetch: Callable[[int], tuple[int, Any]],
        name: bytes,
        root: pathlib.Path | None = None,
    ):
        self._fetch, self._connected = fetch, False
        self._folder = (root or system.shared_folder()) / f"{_PREFIX}{hashlib.sha256(name).hexdigest()[:32]}"
        self._locks = _enter(self._folder)
        self._answered, self._gap_s = time.monotonic(), 0.0  # time of the last answer, and since the one before
        self.close = weakref.finalize(self, _leave, self._folder, self._locks)
        """Releases the locks; the last process removes the folder. Also runs when this object or the process ends."""

    def __call__(self, held: int) -> tuple[int, Any]:
        """Returns the newest version and its pickled parameters, with None for them if it is not newer than `held`."""
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
            # About eight checks for an answer, if it takes as long as the last one.
            time.sleep(min(_TICK_S, max(_LEAST_S, self._gap_s / 8)))
        now = time.monotonic()
        self._gap_s, self._answered = now - self._answered, now
        return answer

    def _read(self, held: int) -> tuple[int, Any] | None:
        """Returns the answer that another process received, if it is newer."""
        with contextlib.suppress(OSError), open(self._folder / "params", "rb") as file:
            (version,) = _VERSION.unpack(file.read(_VERSION.size))
            if version > held:
                return version, np.memmap(file, np.uint8, "r", _VERSION.size)  # no copy; stays valid while it is used
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
            except OSError:  # no space: each process asks for itself
                with contextlib.suppress(OSError):
                    written.unlink()
        return version, payload


def _enter(folder: pathlib.Path) -> tuple[BinaryIO, BinaryIO] | None:
    """Returns a folder's two lock files: one for all users of the folder, one for the process that asks the learner.

    Returns None if there is no folder.
    """
    with contextlib.suppress(OSError):
        remove_left(folder.parent, keep=folder)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid == os.getuid():
            users, asks = (open(folder / name, "ab") for name in ("users", "asks"))  # noqa: SIM115  kept open
            if _lock(users):  # no other user: the file was left by an earlier run
                (folder / "params").unlink(missing_ok=True)
            fcntl.flock(users, fcntl.LOCK_SH)
            return users, asks
    return None


def remove_left(root: pathlib.Path | None = None, *, keep: pathlib.Path | None = None) -> None:
    """Removes the folders in `root` that killed processes of this user left, except `keep`."""
    for folder in (root or system.shared_folder()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder != keep and folder.stat().st_uid == os.getuid():
                with open(folder / "users", "rb") as users:
                    if _lock(users):
                        shutil.rmtree(folder, ignore_errors=True)


def _leave(folder: pathlib.Path, locks: tuple[BinaryIO, BinaryIO] | None) -> None:
    if locks is not None:
        users, asks = locks
        if _lock(users):
            shutil.rmtree(folder, ignore_errors=True)
        users.close()
        asks.close()


def _is_alone(users: BinaryIO) -> bool:
    alone = _lock(users)
    fcntl.flock(users, fcntl.LOCK_SH)  # a failed attempt may have released the shared lock
    return alone


def _lock(file: BinaryIO) -> bool:
    """Tries to take an exclusive lock without waiting; returns whether it succeeded."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
