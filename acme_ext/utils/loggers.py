"""Loggers that write a CSV file and TensorBoard events for each label, with Acme's logger interface.

A label is a source of rows, such as "actor", "learner" or "evaluator". Its rows are written to logs/LABEL.csv, where
each is flushed at once, and its curves to tensorboard/LABEL.
"""

import csv
import importlib
import itertools
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from acme_ext.config.comparison import flatten
from acme_ext.errors import UsageError
from acme_ext.interfaces import Logger
from acme_ext.utils import files
from acme_ext.utils.rundir import RunDirectory

COUNTERS = ("environment_steps", "learner_steps", "wall_time_s")
"""Columns for steps and time, whose names metrics can't have."""

_TENSORBOARD_INTERVAL_S = 0.1
_BLOCK = 1 << 13  # rows that are read at a time


def csv_path(rundir: RunDirectory, label: str) -> Path:
    """Returns the path of a label's CSV file."""
    return rundir.logs / f"{label}.csv"


def make_logger(rundir: RunDirectory, label: str, *, step_key: str) -> Logger:
    """Returns a logger that appends rows of scalars to the label's files, after any existing rows.

    NumPy and JAX scalars become Python numbers. The first row determines the columns. If a later row has another key,
    the file is written anew with one more column, which is NaN in the rows before; if a row lacks a column, its value
    is NaN. A full disk raises RunError.

    Args:
      rundir: the run directory.
      label: the name of the files and of the curves, which TensorBoard shows as `label/key`.
      step_key: the key that counts steps; the x axis of the curves.
    """
    path = csv_path(rundir, label)
    with files.disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        columns, last_step = _mend(path, step_key)
        file = path.open("a", newline="", encoding="utf-8")
        tensorboard = _TensorBoard(rundir.tensorboard / label, label, step_key, last_step)
    return _Rows(file, _Thinned(tensorboard, _TENSORBOARD_INTERVAL_S), step_key, columns)


def describe_run(rundir: RunDirectory, config: Mapping[str, Any]) -> None:
    """Writes a run's config to TensorBoard, as text and as hyperparameters, unless it is already there."""
    if any(rundir.tensorboard.glob("events.*")):
        return
    from tensorboardX import summary
    from tensorboardX.event_file_writer import EventsWriter

    event = importlib.import_module("tensorboardX.proto.event_pb2").Event
    fields = flatten({name: value for name, value in config.items() if name != "run"})
    chosen = {
        name.removeprefix("config."): value if isinstance(value, bool | int | float) else str(value)
        for name, value in fields.items()
    }
    # Without the list of columns that goes with them, TensorBoard makes one for all the runs that it shows.
    _, session, _ = summary.hparams(chosen, {})
    text = "\n".join(f"    {line}" for line in files.json_text(dict(config)).splitlines())  # as Markdown has code
    with files.disk_errors(rundir.tensorboard):
        rundir.tensorboard.mkdir(parents=True, exist_ok=True)
        writer = EventsWriter(str(rundir.tensorboard / "events"))
        for content in (summary.text("config", text), session):
            writer.write_event(event(wall_time=time.time(), step=0, summary=content))
        writer.close()


def truncate(rundir: RunDirectory, label: str, step_key: str, last_step: int) -> int:
    """Deletes a label's rows after `last_step`, written after a run's last checkpoint, and an incomplete last line.

    Returns the number of deleted rows. The file is replaced atomically.
    """
    path = csv_path(rundir, label)
    if not path.is_file():
        return 0
    removed = 0
    with path.open("rb") as file:
        lines = _whole_lines(file)
        header = next(lines, None)
        if header is None:
            return 0
        index = _step_index(path, _header(header), step_key)
        with files.replacing(path) as temporary, temporary.open("wb") as kept:
            kept.write(header)
            for line in lines:
                if float(line.split(b",")[index]) <= last_step:
                    kept.write(line)
                else:
                    removed += 1
    return removed


def read_csv(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Returns a logger's rows by column, `[rows]`: int64 if all values are integers, else float64.

    The file may still be written to; an incomplete line is ignored. Raises UsageError if there is no such file.
    """
    return _joined(read_blocks(path))


def read_blocks(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> Iterator[dict[str, np.ndarray]]:
    """Yields a logger's rows as `read_csv` returns them, thousands at a time; logs can have millions.

    Args:
        path: the file.
        names: the columns; None for all.

    Raises:
        UsageError: there is no such file, it lacks a column, or a cell is no number.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path} doesn't exist: no rows were logged there.")
    with path.open("rb") as file:
        yield from _blocks(path, file, names)


def parse_csv(path: Path, lines: Iterable[bytes]) -> dict[str, np.ndarray]:
    """Returns the rows of lines from a logger's file, as `read_csv` does; the first line has the names.

    An incomplete line and all lines after it are ignored. Raises UsageError, naming the file, if a cell is no number.
    """
    return _joined(_blocks(path, lines))


def _blocks(path: Path, lines: Iterable[bytes], names: Sequence[str] | None = None) -> Iterator[dict[str, np.ndarray]]:
    whole = _whole_lines(lines)
    if (first := next(whole, None)) is None:
        return
    header = _header(first)
    names = header if names is None else names
    for name in names:
        if name not in header:
            raise UsageError(f"{path} has no column {name!r}; it has {', '.join(header)}.")
    while True:
        block = [line.rstrip().split(b",") for line in itertools.islice(whole, _BLOCK)]
        cells = np.array(block).reshape(-1, len(header))
        try:
            yield {name: _column(cells[:, header.index(name)]) for name in names}
        except ValueError as error:
            raise UsageError(f"{path} is damaged: {error}.") from None
        if len(block) < _BLOCK:
            return


def _joined(blocks: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    blocks = list(blocks)
    return {name: np.concatenate([block[name] for block in blocks]) for name in (blocks[0] if blocks else ())}


def to_numbers(row: Mapping[str, Any]) -> dict[str, int | float]:
    """Returns the row with Python, NumPy and JAX scalars as Python numbers; raises TypeError for other values."""
    for value in row.values():
        if hasattr(value, "copy_to_host_async"):  # a JAX array: ask for all of them before waiting for the first
            value.copy_to_host_async()
    return {key: _number(key, value) for key, value in row.items()}


def _number(key: str, value: Any) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind in "OSUmM":
        raise TypeError(f"a logged value must be a scalar, but {key!r} is {value!r}.")
    return int(array.item()) if array.dtype.kind in "biu" else float(array.item())


def check_columns(names: Iterable[str], what: str, taken: Collection[str] = COUNTERS) -> None:
    """Raises UsageError if a metric's name is that of a column which the logs have already, or can't be in a CSV file.

    Args:
        names: the names.
        what: what they name, for the message.
        taken: names of columns that the log has already.
    """
    for name in names:
        if name in taken:
            raise UsageError(f"{what} is named {name!r}: the log has a column of this name; choose another.")
        if not name or set(name) & set(',"\r\n'):
            raise UsageError(f"{what} is named {name!r}: a column's name has no comma, quote or line end.")


class _Rows(Logger):
    """Checks rows against the columns, and writes them as numbers to a CSV file and to another logger."""

    def __init__(
        self,
        file: TextIO,
        to: Logger,
        step_key: str,
        columns: Sequence[str] | None,
    ):
        self._file, self._to = file, to
        self._csv = csv.writer(file)
        self._step_key = step_key
        self._columns = columns

    def write(self, data: Mapping[str, Any]) -> None:
        row = to_numbers(data)
        if self._step_key not in row:
            raise ValueError(f"a row of {self._file.name} needs {self._step_key!r}; it has {sorted(row)}.")
        if self._columns is None:
            check_columns(row, f"a column of {self._file.name}", ())
            self._columns = sorted(row)
        if unknown := row.keys() - set(self._columns):
            self._widen(unknown)
        whole = {key: row.get(key, np.nan) for key in self._columns}
        with files.disk_errors(self._file.name):
            if not self._file.tell():
                self._csv.writerow(whole)
            self._csv.writerow(whole.values())
            self._file.flush()
            self._to.write(whole)

    def _widen(self, names: Iterable[str]) -> None:
        """Adds columns to the file; its rows so far have NaN there."""
        path, added = Path(self._file.name), sorted(names)
        check_columns(added, f"a column of {path}", ())
        ends = itertools.chain([added], itertools.repeat(["nan"] * len(added)))
        with files.disk_errors(path):
            with files.replacing(path) as temporary, path.open("rb") as old, temporary.open("wb") as new:
                new.writelines(b"%s,%s\r\n" % (line.rstrip(), ",".join(next(ends)).encode()) for line in old)
            self._file.close()
            self._file = path.open("a", newline="", encoding="utf-8")
        self._csv, self._columns = csv.writer(self._file), [*(self._columns or ()), *added]

    def close(self) -> None:
        if self._file.closed:
            return
        with files.disk_errors(self._file.name):
            try:
                self._to.close()
            finally:
                self._file.close()


class _Thinned(Logger):
    """Passes on at most one row every `seconds`, and the last row when it is closed.

    An event costs twice as much time as a line of CSV, and TensorBoard shows at most a thousand points per curve. So
    the thousands of episodes per second of a small environment are not all written. (Acme's TimeFilter would lose the
    last row.)
    """

    def __init__(self, to: Logger, seconds: float):
        self._to = to
        self._seconds = seconds
        self._due = 0.0
        self._held: Mapping[str, Any] | None = None

    def write(self, data: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if now < self._due:
            self._held = data
        else:
            self._held, self._due = None, now + self._seconds
            self._to.write(data)

    def close(self) -> None:
        try:
            if self._held is not None:
                self._to.write(self._held)
        finally:
            self._held = None
            self._to.close()


class _TensorBoard(Logger):
    """Writes the scalars of a row as one event, in the calling thread, so that a full disk raises an error there.

    Each label has its own folder, because TensorBoard reads the files of a folder one after the other, and ignores what
    is added to a file after it has moved on to the next.
    """

    def __init__(self, folder: Path, label: str, step_key: str, last_step: float | None):
        from tensorboardX.event_file_writer import EventsWriter  # 0.1 s, which only a run that logs should pay

        # By name, because their classes are made at run time and type checkers don't see them.
        event_pb2 = importlib.import_module("tensorboardX.proto.event_pb2")
        self._event = event_pb2.Event
        self._summary = importlib.import_module("tensorboardX.proto.summary_pb2").Summary
        self._label = label
        self._step_key = step_key
        folder.mkdir(parents=True, exist_ok=True)
        # tensorboardX names files by the second, and would overwrite the one of a logger closed in the same second.
        self._writer = EventsWriter(str(folder / "events"), filename_suffix=f".{time.time_ns()}")
        if last_step is not None:  # makes TensorBoard forget later events of a killed run
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.write_event(self._event(wall_time=time.time(), step=int(last_step) + 1, session_log=start))
        self._writer.flush()

    def write(self, data: Mapping[str, Any]) -> None:
        scalars = [
            self._summary.Value(tag=f"{self._label}/{key}", simple_value=value)
            for key, value in data.items()
            # A column that is named as the label tells which of them (actors, say) a row is of: no curve.
            if key not in (self._step_key, self._label) and value == value
        ]
        step = int(data[self._step_key])
        self._writer.write_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=scalars)))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def _whole_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines up to the first incomplete one, without its line end or all of its fields."""
    commas = None
    for line in lines:
        if commas is None:
            commas = line.count(b",")
        if not line.endswith(b"\n") or line.count(b",") != commas:
            return
        yield line


def _mend(path: Path, step_key: str) -> tuple[list[str] | None, float | None]:
    """Removes an incomplete end of a label's file; returns its columns and last step, each None if there are none."""
    if not path.is_file():
        return None, None
    size, first, last = 0, b"", b""
    with path.open("rb") as file:
        for line in _whole_lines(file):
            first, last = first or line, line
            size += len(line)
    if path.stat().st_size != size:
        os.truncate(path, size)
    if not first:
        return None, None
    header = _header(first)
    index = _step_index(path, header, step_key)
    return header, float(last.split(b",")[index]) if size > len(first) else None


def _header(line: bytes) -> list[str]:
    return line.decode("utf-8").rstrip().split(",")


def _step_index(path: Path, header: list[str], step_key: str) -> int:
    if step_key not in header:
        raise UsageError(f"{path} has no column {step_key!r}; it has {header}.")
    return header.index(step_key)


def _column(cells: np.ndarray) -> np.ndarray:
    try:
        return cells.astype(np.int64)
    except ValueError:
        return cells.astype(np.float64)
