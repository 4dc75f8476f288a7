"""Whether two runs are equal to the last bit."""

import pathlib
from typing import Any

import numpy as np

from acme_ext.utils import files, loggers
from acme_ext.utils.rundir import RunDirectory

_CLOCK = ("wall_time_s",)  # columns that two equal runs don't share


def contents(folder: pathlib.Path) -> dict[str, Any]:
    """Returns what a run has written, by name: its logs without the clock, its last checkpoint's arrays and table."""
    rundir = RunDirectory.open(folder)
    found: dict[str, Any] = {}
    for label in ("actor", "learner", "evaluator"):
        path = loggers.csv_path(rundir, label)
        for name, column in loggers.read_csv(path).items() if path.is_file() else ():
            if name not in _CLOCK:
                found[f"log {label}: {name}"] = [None if value != value else value for value in column.tolist()]
    last = max(path for path in rundir.checkpoints.iterdir() if path.name.isdigit())
    for path in sorted(last.rglob("*.np[yz]")):
        loaded = np.load(path)
        for name, array in loaded.items() if path.suffix == ".npz" else [("", loaded)]:
            found[f"{path.relative_to(last)}: {name}"] = array.tobytes()
    for path in (last / "replay" / "table.json", last / "replay" / "rows.bin"):
        if path.is_file():
            found[path.name] = path.read_bytes()
    state = files.read_json(last / "state.json")
    return {**found, "state": {name: value for name, value in state.items() if name not in _CLOCK}}


def differences(folder: pathlib.Path, other: pathlib.Path) -> list[str]:
    """Returns the names of what differs between two runs; none if they are equal."""
    mine, theirs = contents(folder), contents(other)
    return sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
