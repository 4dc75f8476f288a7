"""The run directory during a run: it is checked, locked, resumed, logged to and saved to, in the same way by all
runners.
"""

import contextlib
import math
import os
import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from acme_ext import __version__
from acme_ext.acting.variables import POLICY
from acme_ext.config.comparison import ABSENT
from acme_ext.data.format import FolderWriter
from acme_ext.errors import NotFiniteError, RunError, UsageError
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import about
from acme_ext.launch.runs.schedule import Checkpoints
from acme_ext.learning.checkpoints import CheckpointStore, Restored
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import files, loggers
from acme_ext.utils.rundir import RunDirectory


class SavesReplay(Protocol):
    """An object that writes a replay's contents to a new folder."""

    def checkpoint(self, folder: pathlib.Path) -> None: ...


_MOST = 8  # differences between two runs that a message names
_TELL_EVERY_S = 1.0  # between writes of the run's status
_REPLAY = "replay"  # the folder of a checkpoint that holds Reverb's checkpoint


class RunCheckpoints:
    """A run's checkpoints of the learner, the state and the replay.

    Args:
        rundir: the run's directory.
        settings: when and what to save.
        report: called with messages for the user.
    """

    def __init__(self, rundir: RunDirectory, settings: Checkpoints, report: Callable[[str], None]):
        self._settings = settings
        self._store = CheckpointStore(rundir.checkpoints, settings.keep, report=report)
        self._saved_at = time.monotonic()
        self._replay_saved_at = -math.inf
        self._latest: pathlib.Path | None = None  # the latest checkpoint that this process has saved with a replay

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        every_s = self._settings.every_s
        return every_s > 0 and time.monotonic() - self._saved_at >= every_s

    def save(
        self,
        steps: int,
        trees: Mapping[str, Any],
        state: Mapping[str, Any],
        replay: SavesReplay | None,
        *,
        last: bool = False,
    ) -> None:
        """Saves a checkpoint at step `steps` of the budget.

        Args:
            steps: of the budget.
            trees: trees of arrays.
            state: plain JSON.
            replay: the replay; None for a run without one. It is saved only if the settings ask for it.
            last: whether the run ends here. If not, and if the replay was written less than `replay_every_s` seconds
                ago, hard links to the previous checkpoint's replay are made instead of writing it again; copies on
                a disk without hard links.
        """

        now = time.monotonic()
        before = None if last or now - self._replay_saved_at >= self._settings.replay_every_s else self._latest

        def save_replay(folder: pathlib.Path) -> None:
            assert replay is not None
            if before is not None:
                shutil.copytree(before / _REPLAY, folder / _REPLAY, copy_function=_link)
            else:
                replay.checkpoint(folder / _REPLAY)

        with_replay = self._settings.replay and replay is not None
        saved = self._store.save(steps, trees, {"state": state}, save_replay if with_replay else None)
        self._latest = saved if with_replay else None
        if before is None:
            self._replay_saved_at = now
        self._saved_at = time.monotonic()

    def restore(
        self, templates: Mapping[str, Any], steps: int | None = None, *, optional: Sequence[str] = ()
    ) -> Restored | None:
        """Returns the latest undamaged checkpoint, or the one at `steps`; None for a run that has none.

        With `steps`, the checkpoint's replay is not verified: the caller has already done that. `optional` has the
        names of templates whose trees a checkpoint may lack.
        """
        return self._store.restore(templates, optional=optional, extra=steps is None, steps=steps)

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Adds to the error for a loss that is not finite which checkpoint remains."""
        try:
            yield
        except NotFiniteError as error:
            steps = self._store.latest()
            stays = "It has no checkpoint yet." if steps is None else f"Its checkpoint of step {steps:,} stays."
            raise RunError(f"{error} {stays}") from error


def _link(source: str, target: str) -> None:
    """Makes a hard link to a file, or a copy if the disk has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def replay_folder(restored: Restored | None) -> pathlib.Path | None:
    """Returns the folder with a checkpoint's replay, or None if it has none."""
    if restored is None or not (restored.path / _REPLAY).is_dir():
        return None
    return restored.path / _REPLAY


class BestParams:
    """The parameters of a run's best evaluation, which are stored separately from its checkpoints.

    Args:
        rundir: the run's directory.
        report: called with a message if the stored parameters are damaged.
    """

    def __init__(self, rundir: RunDirectory, report: Callable[[str], None] = print):
        self._store = CheckpointStore(rundir.best, keep=1, report=report)
        self._lock = threading.Lock()
        self._mean: float | None = None  # None: not read yet

    @property
    def mean(self) -> float:
        """The mean return of the best evaluation; -inf before the first."""
        mean = self._mean
        if mean is None:
            try:
                restored = self._store.restore({})
            except RunError:  # damaged: the next evaluation becomes the best
                restored = None
            self._mean = mean = float(restored.info["best"]["mean"]) if restored else -math.inf
        return mean

    def offer(self, mean: float, steps: int, params: Callable[[], Any], standing: list | None) -> None:
        """Stores an evaluation's parameters if its mean return is higher than all earlier ones.

        Args:
            mean: the evaluation's mean return.
            steps: steps of the budget.
            params: returns the policy's parameters.
            standing: the policies' statistics from one episode to the next, see `acting.policy.Policy.standing`.
        """
        with self._lock:
            if mean > self.mean:
                self._store.save(steps, {POLICY: params()}, {"best": {"mean": mean, "standing": standing}})
                self._mean = mean

    def restore(self, template: Any) -> Restored | None:
        """Returns the stored parameters as the tree `POLICY`, with `info["best"]`; None if there are none yet."""
        return self._store.restore({POLICY: template})


class RunStore:
    """Writes a run's logs, checkpoints, best parameters and status to its directory.

    Args:
        rundir: the run directory. The caller has locked it and written the experiment's config.
        experiment: the run's experiment.
        report: called with messages for the user.
    """

    def __init__(self, rundir: RunDirectory, experiment: Experiment, report: Callable[[str], None]):
        self.rundir = rundir
        self.checkpoints = RunCheckpoints(rundir, experiment.checkpoints, report)
        self.best = BestParams(rundir, report)
        self._budget, self._step_key = experiment.steps, experiment.step_key
        self._builder, self._report, self._warned = experiment.builder, report, set[str]()
        self._loggers: dict[str, Any] = {}
        loggers.describe(rundir, rundir.read_config())
        self._elapsed, self._started = 0.0, time.monotonic()
        self._told_at = -math.inf

    @property
    def wall_time_s(self) -> float:
        """Seconds that the run has taken so far, including the time before it was resumed."""
        return self._elapsed + time.monotonic() - self._started

    def now(self) -> dict[str, float]:
        """Returns the log column with the run's time."""
        return {"wall_time_s": round(self.wall_time_s, 3)}

    def log(self, label: str, row: Mapping[str, Any]) -> None:
        """Appends a row to a log, and adds the run's time if the row has none.

        Reports the builder's warning about a row, at most once for each log.
        """
        if label not in self._warned and (warning := self._builder.warning(label, row)):
            self._warned.add(label)
            self._report(f"warning: {warning}")
        if label not in self._loggers:
            self._loggers[label] = loggers.make_logger(self.rundir, label, step_key=self._step_key)
        self._loggers[label].write({**row, **({} if "wall_time_s" in row else self.now())})

    def tell(self, nodes: Mapping[str, str], replay: str = "") -> None:
        """Writes the run's current status for `acme-ext watch`, at most once a second.

        Args:
            nodes: what each node is doing or waiting for, in words.
            replay: the replay's state, in words.
        """
        if time.monotonic() - self._told_at >= _TELL_EVERY_S:
            self._told_at = time.monotonic()
            self.rundir.write_status({"time": time.time(), "nodes": dict(nodes), "replay": replay})

    def restore(
        self, templates: Mapping[str, Any], steps: int | None = None, *, optional: Sequence[str] = ()
    ) -> Restored | None:
        """Returns a checkpoint as `RunCheckpoints.restore` does, and deletes log rows that were written after it."""
        restored = self.checkpoints.restore(templates, steps, optional=optional)
        for path in sorted(self.rundir.logs.glob("*.csv")):
            last = restored.steps if restored else -1
            if path.stem == "evaluator" and last >= self._budget:
                last -= 1  # the final evaluation is repeated
            loggers.truncate(self.rundir, path.stem, self._step_key, last)
        if restored is not None:
            state = restored.info["state"]
            # Learning may go on without environment steps, as in pretraining.
            loggers.truncate(self.rundir, "learner", "learner_steps", state["learner_steps"])
            self._elapsed = state["wall_time_s"]
        return restored

    def close(self) -> None:
        """Closes the logs and deletes the status file."""
        self.rundir.status.unlink(missing_ok=True)
        for logger in list(self._loggers.values()):  # another thread may add one
            logger.close()


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


def prepare(
    experiment: Experiment, *, fresh: bool = False, arrangement: Mapping[str, Any] | None = None
) -> RunDirectory:
    """Prepares an experiment's directory for a run. If it already holds a part of this run, the run can be resumed.

    Args:
        experiment: the experiment to run.
        fresh: deletes the files of an earlier run in the directory and starts from the beginning.
        arrangement: further settings, such as a program's number of actors, that a resumed run must match.

    Raises:
        UsageError: the directory holds another experiment (the message names the fields that differ), is in use, can't
            be written, or holds files that don't belong to a run.
    """
    check_directory(experiment, fresh=fresh, arrangement=arrangement)
    description = {**experiment.describe(), **(arrangement or {})}
    rundir = RunDirectory(experiment.directory)
    with rundir.lock():
        if fresh:
            # The config is deleted last: if this is stopped before, the rest is still a run directory's.
            for entry in sorted(rundir.path.iterdir(), key=lambda entry: entry == rundir.config):
                if entry.name != "lock":
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        rundir.write_config(description)
        if rundir.evaluation.is_file() and rundir.read_evaluation().get(experiment.step_key, 0) < experiment.steps:
            rundir.evaluation.unlink()  # that of an end which this run now goes beyond
        # Temporary replay files of an earlier part of the run that was killed.
        shutil.rmtree(rundir.replay, ignore_errors=True)
        rundir.replay.mkdir()
    return rundir


def check_directory(
    experiment: Experiment, *, fresh: bool = False, arrangement: Mapping[str, Any] | None = None
) -> None:
    """Raises the UsageErrors of `prepare`, and changes nothing."""
    path = experiment.directory
    if not path.is_dir() or not files.entries(path):
        return
    there = RunDirectory(path)
    if not there.exists_run():
        if any(entry.name != "lock" for entry in files.entries(path)):
            raise UsageError(f"{path} is neither empty nor a run directory: choose another.")
        return
    if not fresh:
        description = {**experiment.describe(), **(arrangement or {})}
        differences = {name: pair for name, pair in there.compare(description).items() if not name.startswith("run.")}
        if differences:
            raise UsageError(
                f"{path} holds another run{by_another_version(there)}: {say_differences(differences)}; choose another "
                "directory, or start anew (--fresh)."
            )
    with there.lock():
        pass


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


def say_resumed(rundir: RunDirectory, steps: int, budget: int) -> str:
    """Returns in words that a run is resumed, at a step of its budget."""
    used = f", and its budget of {budget:,} steps is used" if steps >= budget else ""
    return f"resuming {rundir.path} at step {steps:,}{used}."


@contextlib.contextmanager
def hold(rundir: RunDirectory, experiment: Experiment, report: Callable[[str], None]) -> Iterator[RunStore]:
    """Locks a prepared directory for one run, and yields its store."""
    with rundir.lock():
        store = RunStore(rundir, experiment, report)
        try:
            yield store
        finally:
            store.close()


def draw_curve(experiment: Experiment, rundir: RunDirectory) -> pathlib.Path:
    """Draws a run's learning curve into its directory and returns the figure's path."""
    from acme_ext.utils import plots

    return plots.learning_curves(
        {f"{experiment.builder.name} on {experiment.environment_name}": [rundir]}, rundir.curve, experiment.step_key
    )


def by_another_version(rundir: RunDirectory) -> str:
    """Returns in words which version made a run; an empty text if it was this one."""
    version = rundir.read_config()["run"].get("version", "an earlier one")
    return "" if version == __version__ else f", made by version {version} (this is {__version__})"
