"""Checks and prepares the directory of a run, and the folder that it records to."""

import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from acme_ext import __version__
from acme_ext.config.comparison import ABSENT
from acme_ext.data.format import FolderWriter
from acme_ext.errors import UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import about
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import availability, files
from acme_ext.utils.rundir import RunDirectory

_MOST = 8  # differences between two runs that a message names

_KINDS = {"world": "a compiled run", "program.actors": "a program"}
"""A field that only one kind of run has, and the kind."""


def say_differences(differences: Mapping[str, tuple[Any, Any]]) -> str:
    """Returns in words how a run differs from the one in its directory.

    If the agent or the environment differs, only these are named, because most other fields then differ too. The same
    holds for runs in one process, compiled runs and programs.
    """

    def kind(side: int) -> str:
        found = (kind for name, kind in _KINDS.items() if name in differences and differences[name][side] is not ABSENT)
        return next(found, "a run in one process")

    if kind(0) != kind(1):
        return f"that one is {kind(0)} and this one is {kind(1)}"
    if list(differences) == ["data.sha256"]:
        return "the recorded data has changed since"
    told = [name for name in ("agent", "environment") if name in differences] or list(differences)
    fields = [f"{name} is {differences[name][0]!r} there and {differences[name][1]!r} here" for name in told[:_MOST]]
    more = len(told) - _MOST
    return "; ".join(fields) + (f"; and {more} more differ" if more > 0 else "")


def check_directory(
    experiment: Experiment,
    *,
    fresh: bool = False,
    arrangement: Mapping[str, Any] | None = None,
    table: str | None = None,
) -> dict[str, Any]:
    """Checks that a run can use an experiment's directory, and changes nothing.

    Args:
        experiment: the experiment to run.
        fresh: whether the files of an earlier run in the directory will be deleted.
        arrangement: further settings, such as a program's number of actors, that a resumed run must match.
        table: the kind of the replay's table, which a resumed run must match too; None for a run without one.

    Returns:
        The config of the run, for `prepare`.

    Raises:
        UsageError: the directory holds another experiment (the message names the fields that differ), is in use, can't
            be written, or holds files that don't belong to a run.
    """
    path, config = experiment.directory, {**experiment.describe(), **(arrangement or {})}
    if table is not None:
        config["run"]["table"] = table
    if not path.is_dir() or not files.entries(path):
        return config
    there = RunDirectory(path)
    if not there.exists_run():
        if any(entry.name != "lock" for entry in files.entries(path)):
            raise UsageError(f"{path} is neither empty nor a run directory: choose another.")
        return config
    if not fresh:
        differences = {name: pair for name, pair in there.compare(config).items() if not name.startswith("run.")}
        if differences:
            raise UsageError(
                f"{path} holds another run{by_another_version(there)}: {say_differences(differences)}; choose another "
                "directory, or start anew (--fresh)."
            )
        made = there.read_config()["run"].get("table", "reverb")  # before there were others
        if table is not None and made != table:
            there_is = made == "embedded" or availability.has_reverb()
            how = f"(--table {made})" if there_is else "(on a Python with Reverb)"
            raise UsageError(
                f"{path} holds a run whose replay is in the table {made!r}, and this one's is {table!r}: go on with it "
                f"there {how}, choose another directory, or start anew (--fresh)."
            )
    with there.lock():
        pass
    return config


def prepare(experiment: Experiment, config: Mapping[str, Any] | None = None, *, fresh: bool = False) -> RunDirectory:
    """Prepares an experiment's directory for a run. If it already holds a part of this run, the run can be resumed.

    Args:
        experiment: the experiment to run.
        config: what `check_directory` has returned; None to check the directory here.
        fresh: deletes the files of an earlier run in the directory and starts from the beginning.

    Raises:
        UsageError: the directory is in use, or can't be written.
    """
    config = check_directory(experiment, fresh=fresh) if config is None else config
    rundir = RunDirectory(experiment.directory)
    with rundir.lock():
        if fresh:
            # The config is deleted last: if this is stopped before, the rest is still a run directory's.
            for entry in sorted(rundir.path.iterdir(), key=lambda entry: entry == rundir.config):
                if entry.name != "lock":
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        rundir.write_config(config)
        if rundir.evaluation.is_file() and rundir.read_evaluation().get(experiment.step_key, 0) < experiment.steps:
            rundir.evaluation.unlink()  # that of an end which this run now goes beyond
        # Temporary replay files of an earlier part of the run that was killed.
        shutil.rmtree(rundir.replay, ignore_errors=True)
        rundir.replay.mkdir()
    return rundir


def recorded_to(
    record: str | os.PathLike[str] | None, experiment: Experiment, spec: EnvironmentSpec
) -> FolderWriter | None:
    """Returns the writer of a run's recorded episodes; None if `record`, its folder, is None.

    Raises:
        UsageError: the folder is in the run directory, which holds nothing but the run's own files and which `--fresh`
            empties; or it can't be written to, see `FolderWriter`.
    """
    if record is None:
        return None
    check_outside(record, experiment.directory)
    return FolderWriter(record, spec, about(experiment))


def check_outside(record: str | os.PathLike[str], directory: pathlib.Path) -> None:
    """Raises UsageError if a folder to record to is in a run directory."""
    if files.expanded(record).resolve().is_relative_to(directory.resolve()):
        raise UsageError(f"{os.fspath(record)} is in the run directory, {directory}: record to a folder outside it.")


def by_another_version(rundir: RunDirectory) -> str:
    """Returns in words which version made a run; an empty text if it was this one."""
    version = rundir.read_config()["run"].get("version", "an earlier one")
    return "" if version == __version__ else f", made by version {version} (this is {__version__})"
