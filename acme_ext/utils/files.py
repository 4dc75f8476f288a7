"""Atomic writes, which never leave a partial file under its final name, even on a full disk or if the process dies."""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acme_ext.errors import RunError, UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def disk_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Converts system errors while `path` is written to a RunError of one sentence."""
    full = f"the disk that holds {os.fspath(path)} is full: free some space, then give the same command again."
    try:
        yield
    except (ConnectionError, TimeoutError):  # these are OSErrors too, but come from the network
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise RunError(full) from error
        raise RunError(f"{os.fspath(path)} can't be written: {error.strerror or error}.") from error
    except Exception as error:
        # Reverb reports a full disk with an IndexError.
        if os.strerror(errno.ENOSPC) in str(error) and not isinstance(error, RunError):
            raise RunError(full) from error
        raise


def expanded(path: str | os.PathLike[str]) -> Path:
    """Returns a path with its `~` expanded.

    Raises UsageError if the user of `~user` has no home, if the name is too long, or if the user may not look there.
    """
    try:
        found = Path(path).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.stat(os.path.join(found, os.curdir))
    except RuntimeError as error:
        raise UsageError(f"{os.fspath(path)} can't be found: {error}") from error
    except OSError as error:
        raise UsageError(f"{os.fspath(path)} can't be read: {error.strerror}.") from error
    return found


def make_writable_folder(path: Path) -> None:
    """Creates a folder and its parents; raises UsageError if it is not writable, and RunError if the disk is full."""
    probe = path / f".probe.{os.getpid()}"
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file: choose a folder, or a name that doesn't exist yet.")
        path.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")  # permissions aren't enough: root has them all, and the disk may be full or read-only
        probe.unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            probe.unlink()
        if error.errno in _FULL:
            with disk_errors(path):
                raise
        raise UsageError(f"the folder {path} can't be written: {error.strerror}; choose another.") from error


def entries(folder: Path) -> list[Path]:
    """Returns a folder's entries, without the temporary files of writers that were killed."""
    return [path for path in folder.iterdir() if not re.fullmatch(r"\..*\.\d+\.tmp|\.probe\.\d+", path.name)]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to, which replaces `path` once it is completely on the disk.

    If an error occurs before that, the old file stays unchanged. Raises RunError if the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk_errors(path):
            yield temporary
            fsync(temporary)
            os.replace(temporary, path)
            fsync(path.parent)
    finally:
        with contextlib.suppress(OSError):  # it doesn't exist after it has replaced `path`
            temporary.unlink()


def fsync(path: Path) -> None:
    """Waits until a file's contents, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Returns the hexadecimal digest of a file's contents."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Writes `value` atomically; NumPy and JAX arrays become lists and numbers, paths strings."""
    write_text(path, json_text(value))


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically, in UTF-8."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def json_text(value: Any) -> str:
    """Returns the text that `write_json` writes."""
    return json.dumps(value, indent=2, default=_plain) + "\n"


def read_json(path: Path) -> Any:
    """Reads a JSON file; raises UsageError if it can't be read or isn't JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is damaged: it isn't valid JSON ({error}).") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} of type {type(value).__name__} has no JSON form")
