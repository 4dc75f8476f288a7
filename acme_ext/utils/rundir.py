"""The run directory, which has the same layout for all runners."""

import contextlib
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from acme_ext.config.comparison import differences
from acme_ext.errors import UsageError, nearest
from acme_ext.utils import files, system

CONTENTS = {
    "config.json": "the experiment: agent, environment, seed and all fields of the config",
    "logs/actor.csv": "one row per training episode",
    "logs/learner.csv": "loss, gradient norm and other metrics, in about 200 rows",
    "logs/evaluator.csv": "one row per evaluation",
    "logs/inference.csv": "programs with an inference server: batches and steps of each server",
    "logs/nodes/": "programs: the output of each node",
    "tensorboard/": "the same for TensorBoard, with the config as text and as hyperparameters",
    "checkpoints/": "the last two complete checkpoints: learner, counters and replay, with a checksum of every file",
    "best/": "the policy's parameters of the best evaluation so far",
    "evaluation.json": "the final evaluation, with the return of every episode",
    "curve.png": "the learning curve",
    "snapshots/": "with `--snapshot-every`: exported policies, each in a folder named after its step",
    "profile.txt": "with `--profile`: how the time was spent",
    "trace.json": "with `--profile`: the same as a trace for Perfetto",
    "status.json": "during the run: what it is doing",
    "starts.json": "programs: how often each node was started",
    "lock": "prevents a second run in this directory",
    "replay/": "Reverb's temporary files; empty when the run has ended",
}
"""The files and folders in a run directory, with their meaning."""

_WHOLE = {"agent", "environment", "run"}  # keys of a run's config.json, whichever version wrote it
_held: set[int] = set()  # descriptors of the locks this process holds


class RunDirectory:
    """The paths and small files of one run; loggers, checkpoints and plots use its paths.

    `RunDirectory(path)` creates the folder, and `RunDirectory.open(path)` opens that of an existing run. `write_config`
    makes a folder a run directory, and creates its subfolders. Raises UsageError if the folder can't be created or
    written.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = True):
        self.path = files.expanded(path)
        self.logs = self.path / "logs"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.replay = self.path / "replay"
        self.config = self.path / "config.json"
        self.curve = self.path / "curve.png"
        self.evaluation = self.path / "evaluation.json"
        self.status = self.path / "status.json"
        if create:
            files.make_writable_folder(self.path)
        elif not self.exists_run():
            raise UsageError(f"{self.path} is not a run directory: {self._missing()}")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "RunDirectory":
        """Opens an existing run directory without creating anything; raises UsageError if it is none."""
        return cls(path, create=False)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    def exists_run(self) -> bool:
        """Whether a run has been started here; other programs write files named config.json too."""
        if not self.config.is_file():
            return False
        config = self.read_config()
        return config.keys() >= _WHOLE and isinstance(config["run"], dict)

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes the run's config, then makes the folders a run writes to.

        In this order, a folder in which this failed or was killed is either empty or a run directory.
        """
        files.write_json(self.config, dict(config))
        with files.disk_errors(self.path):
            for folder in (self.logs, self.tensorboard, self.checkpoints, self.replay):
                folder.mkdir(exist_ok=True)

    def read_config(self) -> dict[str, Any]:
        """Returns the config as read from JSON; tuples are lists."""
        config = files.read_json(self.config)
        if not isinstance(config, dict):
            raise UsageError(f"{self.config} is damaged: it holds no mapping of fields.")
        return config

    def compare(self, config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Returns the fields, by dotted name, in which the run's config and `config` differ, as (there, here)."""
        return differences(self.read_config(), json.loads(files.json_text(dict(config))))

    def write_starts(self, starts: Mapping[str, int]) -> None:
        """Writes the number of each program node's latest start, counted from 0."""
        files.write_json(self.path / "starts.json", dict(starts))

    def read_starts(self) -> dict[str, int]:
        """Returns what `write_starts` wrote last; an empty dictionary for a run that was not a program."""
        path = self.path / "starts.json"
        return files.read_json(path) if path.is_file() else {}

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Writes the run's current status, atomically but without waiting for the disk."""
        temporary = self.path / f".status.{os.getpid()}.tmp"
        with files.disk_errors(self.status):
            temporary.write_text(files.json_text(dict(status)), encoding="utf-8")
            os.replace(temporary, self.status)

    def read_status(self) -> dict[str, Any] | None:
        """Returns what `write_status` wrote last; None for a run that has ended, or has not begun."""
        try:
            return json.loads(self.status.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    @property
    def holder(self) -> str | None:
        """The process that locks the directory, as `process N on HOST`; None if no process of this host does."""
        lock = self.path / "lock"
        try:
            said = lock.read_text(encoding="utf-8").strip()
            process = re.match(r"process (\d+) on ", said)
            return (said or "another process") if system.is_locked(lock, int(process[1]) if process else None) else None
        except OSError:
            return None

    def write_evaluation(self, results: Any) -> None:
        """Writes evaluation.json, atomically."""
        files.write_json(self.evaluation, results)

    def read_evaluation(self) -> Any:
        """Returns the contents of evaluation.json; raises UsageError if the run hasn't been evaluated."""
        return files.read_json(self.evaluation)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the directory for one run; raises UsageError if another run has locked it.

        The lock is released when the process dies.
        """
        path = self.path / "lock"
        with files.disk_errors(path):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                system.lock(descriptor)
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise UsageError(
                    f"another run holds {self.path}{f' ({holder})' if holder else ''}: wait for its end, or choose "
                    "another directory."
                ) from None
            except OSError as error:  # some network disks have no locks
                raise UsageError(f"{path} can't be locked: {error.strerror}; choose another disk.") from error
            _held.add(descriptor)
            with contextlib.suppress(OSError):  # the holder's name only makes the other's message better
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            yield
        finally:
            _held.discard(descriptor)
            os.close(descriptor)

    def _missing(self) -> str:
        if self.config.is_file():
            return "its config.json is not that of a run."
        if self.path.is_dir():
            inside = sorted(p.parent.name for p in self.path.glob("*/config.json"))
            hint = f" Runs in it: {', '.join(inside)}." if inside else ""
            return f"there is no config.json in it.{hint}"
        if self.path.exists():
            return "it is a file."
        siblings = [p.name for p in self.path.parent.glob("*") if (p / "config.json").is_file()]
        hint = f" {nearest(self.path.name, siblings)}" if siblings else ""
        return f"there is no such folder.{hint}"


def _forget_locks_in_child() -> None:
    # A forked child shares its parent's locks, and would hold them after the parent's end.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks_in_child)
