"""The life of a run: what it counts, logs, evaluates, saves, resumes and returns, whatever engine advances it."""

import collections
import contextlib
import math
import pathlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from acme_ext.launch.hosts.interrupt import Interrupt
from acme_ext.launch.runs.evaluation import Loaded, Result, Score
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.saving import BestParams, Contents, Counts, RunCheckpoints
from acme_ext.launch.runs.schedule import next_multiple
from acme_ext.learning.checkpoints import Restored
from acme_ext.utils import loggers
from acme_ext.utils.progress import ProgressLine
from acme_ext.utils.rundir import RunDirectory
from acme_ext.utils.watchdog import Watchdog

if TYPE_CHECKING:
    from acme_ext.launch.exporting.snapshots import Snapshots

PATIENCE_S = 30.0
"""Seconds without progress after which a run explains what it waits for."""

_ROWS = 200  # minimum number of rows in the logs of actor and learner, if the run has as many steps
_TELL_EVERY_S = 1.0  # between writes of the run's status
_NOTHING_LEARNED = (
    "warning: nothing was learned, because the replay never held enough for the learner's first batch: give the run "
    "more steps, or the agent a smaller batch_size or replay.min_size (replay.length if it learns from unrolls)."
)


class Session:
    """The life of a run in its directory.

    Args:
        rundir: the directory, which `prepare` has prepared.
        experiment: the run's experiment.
        report: called with messages for the user.
        progress: the progress line, if there is one.
        deferred: log rows are written by `flush` only.
        exact: whether to resume from the newest checkpoint that the run goes on from exactly, see `Checkpoints.steps`.
    """

    def __init__(
        self,
        rundir: RunDirectory,
        experiment: Experiment,
        report: Callable[[str], None] = print,
        progress: ProgressLine | None = None,
        *,
        deferred: bool = False,
        exact: bool = False,
    ):
        self.rundir, self.experiment, self.report, self.progress = rundir, experiment, report, progress
        self.checkpoints = RunCheckpoints(rundir, experiment.checkpoints, report)
        self.best = BestParams(rundir, report)
        self.counts = Counts()
        self.next_evaluation = experiment.evaluation.every
        self._next_checkpoint = experiment.checkpoints.steps
        self.snapshots: Snapshots | None = None
        self._acts = experiment.data is None
        self._loggers: dict[str, Any] = {}
        self._exact, self._deferred, self._writing = exact, deferred, threading.Lock()
        self._rows: collections.deque[tuple[str, dict[str, Any]]] = collections.deque()  # to be written
        self._warned = set[str]()
        self._rows_every = max(1, min(experiment.evaluation.every or experiment.steps, experiment.steps // _ROWS))
        self._logged: Mapping[str, int] = {}
        self._elapsed, self._started, self._told_at = 0.0, time.monotonic(), -math.inf
        loggers.describe_run(rundir, rundir.read_config())

    # Counts and time ------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Steps of the budget that were taken."""
        return self.counts.environment_steps if self._acts else self.counts.learner_steps

    def columns(self, environment_steps: int | None = None, learner_steps: int | None = None) -> dict[str, int]:
        """Returns the step columns of a log row; by default those of now."""
        taken = self.counts.environment_steps if environment_steps is None else environment_steps
        learned = self.counts.learner_steps if learner_steps is None else learner_steps
        return {"environment_steps": taken, "learner_steps": learned} if self._acts else {"learner_steps": learned}

    @property
    def wall_time_s(self) -> float:
        """Seconds that the run has taken so far, including the time before it was resumed."""
        return self._elapsed + time.monotonic() - self._started

    # Logs and status ------------------------------------------------------------------------------------------------

    def log(self, label: str, row: Mapping[str, Any]) -> None:
        """Adds a row to a log. Reports the builder's warning about a row, at most once for each log."""
        if label not in self._warned and (warning := self.experiment.builder.warning(label, row)):
            self._warned.add(label)
            self.report(f"warning: {warning}")
        if self.progress is not None:
            shown = {"episode_return": "episode_return", "episode_return_mean": "evaluation"}
            self.progress.update(**{shown[name]: row[name] for name in shown if name in row})
        self._rows.append((label, {**row, "wall_time_s": round(self.wall_time_s, 3)}))
        if not self._deferred:
            self.flush()

    def flush(self, wait: bool = False) -> None:
        """Writes the rows that were logged, in order.

        If another thread is writing, returns at once and leaves the rows to it. With `wait`, waits for that thread
        first, even if it has taken all rows.
        """
        while (wait or self._rows) and self._writing.acquire(blocking=wait):
            wait = False
            try:
                while self._rows:
                    self._write(*self._rows.popleft())
            finally:
                self._writing.release()

    def _write(self, label: str, row: Mapping[str, Any]) -> None:
        if label not in self._loggers:
            self._loggers[label] = loggers.make_logger(self.rundir, label, step_key=self.experiment.step_key)
        self._loggers[label].write(row)

    def tell(self, doing: Callable[[], tuple[Mapping[str, str], str]]) -> None:
        """Writes the run's current status for `acme-ext watch`, at most once a second.

        Args:
            doing: returns what each node is doing or waiting for, and the replay's state, in words.
        """
        if time.monotonic() - self._told_at >= _TELL_EVERY_S:
            self._told_at = time.monotonic()
            nodes, replay = doing()
            self.rundir.write_status({"time": time.time(), "nodes": dict(nodes), "replay": replay})

    # Schedules ------------------------------------------------------------------------------------------------------

    @property
    def next_stop(self) -> int:
        """The step of the next log row, evaluation, snapshot or checkpoint, or of the end."""
        stop = min(self.experiment.steps, self._next_row)
        if self.experiment.evaluation.every:
            stop = min(stop, self.next_evaluation)
        if self._next_checkpoint:
            stop = min(stop, self._next_checkpoint)
        return stop if self.snapshots is None else min(stop, self.snapshots.next)

    @property
    def _next_row(self) -> int:
        """The step of the next log row."""
        return next_multiple(self._logged.get(self.experiment.step_key, 0), self._rows_every)

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is due that is scheduled by steps, see `Checkpoints.steps`."""
        return 0 < self._next_checkpoint <= self.steps

    def snapshot_every(self, steps: int, loaded: Callable[[], Loaded]) -> None:
        """Exports the policy of `loaded()` every so many steps of the budget, see `Snapshots`."""
        from acme_ext.launch.exporting.snapshots import Snapshots

        self.snapshots = Snapshots(loaded, self.rundir, self.steps, steps)

    @property
    def row_due(self) -> bool:
        """Whether it is time for a log row."""
        return self._next_row <= self.steps

    def log_rows(self, rows: Mapping[str, Mapping[str, float]]) -> None:
        """Logs an engine's rows, by the name of their log."""
        for label, row in rows.items():
            self.log(label, row)
        self._logged = self.columns()

    @property
    def logged(self) -> bool:
        """Whether there is a log row of the newest step."""
        return self._logged == self.columns()

    @property
    def evaluation_due(self) -> bool:
        """Whether an evaluation is due. At the end of the budget, the final one replaces it."""
        return 0 < self.next_evaluation <= self.steps < self.experiment.steps

    # Evaluations ----------------------------------------------------------------------------------------------------

    def evaluated(
        self,
        row: Mapping[str, float],
        at: Mapping[str, int],
        *,
        params: Callable[[], Any] | None,
        statistics: list | None,
        results: Mapping[str, Any] | None = None,
    ) -> None:
        """Logs an evaluation, and keeps its parameters if they are the best so far.

        Args:
            row: its metrics.
            at: the step columns of its parameters.
            params: returns its parameters; None if they are known not to be the best.
            statistics: the policies' statistics that it used, see `acting.policy.Policy.shared_statistics`.
            results: of the final evaluation, the contents of `evaluation.json` besides the steps.
        """
        if params is not None:
            self.best.offer(row["episode_return_mean"], at[self.experiment.step_key], params, statistics)
        self.log("evaluator", {**at, **row})
        if results is not None:
            self.rundir.write_evaluation({"environment_steps": 0, **at, **results})

    def pass_evaluations(self) -> None:
        """Moves the schedule of evaluations past the current step."""
        if self.next_evaluation <= self.steps:
            self.next_evaluation = self.experiment.evaluation.after(self.steps)

    # Saving and resuming --------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns the session's part of a checkpoint's state."""
        counts = self.counts
        return {
            "counts": {
                "environment_steps": counts.environment_steps,
                "environment_episodes": counts.environment_episodes,
                "learner_steps": counts.learner_steps,
            },
            "next_evaluation": self.next_evaluation,
            "logged": self._logged.get(self.experiment.step_key, 0),
            "wall_time_s": self.wall_time_s,
        }

    def save(self, contents: Contents, *, last: bool = False) -> None:
        """Saves a checkpoint of an engine's contents and of this session; `last` if the run ends here."""
        state = {**self.state(), **contents.state}
        self.checkpoints.save(self.steps, contents._replace(state=state), last=last)
        self._next_checkpoint = self.experiment.checkpoints.after(self.steps)

    def restore(
        self, templates: Mapping[str, Any], steps: int | None = None, *, optional: Sequence[str] = ()
    ) -> Restored | None:
        """Restores the session's state from a checkpoint, deletes log rows that are newer, and says so to the user.

        The arguments and the result are those of `RunCheckpoints.restore`.
        """
        restored = self.checkpoints.restore(templates, steps, optional=optional, exact=self._exact)
        budget, key = self.experiment.steps, self.experiment.step_key
        for path in sorted(self.rundir.logs.glob("*.csv")):
            last = restored.steps if restored else -1
            if path.stem == "evaluator" and last >= budget:
                last -= 1  # the final evaluation is repeated
            loggers.truncate(self.rundir, path.stem, key, last)
        if restored is None:
            return None
        state = restored.info["state"]
        self.counts, self._elapsed = Counts.of_state(state), state["wall_time_s"]
        # Learning may go on without environment steps, as in pretraining.
        loggers.truncate(self.rundir, "learner", "learner_steps", self.counts.learner_steps)
        scheduled = state.get("next_evaluation")
        if scheduled is None:  # a program's evaluation may be under way when it saves: the log has those that were made
            path = loggers.csv_path(self.rundir, "evaluator")
            made = loggers.read_csv(path).get(key, ()) if path.is_file() else ()
            scheduled = self.experiment.evaluation.after(int(max(made)) if len(made) else 0)
        self.next_evaluation = self.experiment.evaluation.resumed(self.steps, scheduled)
        self._next_checkpoint = self.experiment.checkpoints.after(self.steps)
        self._logged = self.columns() if state.get("logged") == self.steps else {key: state.get("logged", 0)}
        used = f", and its budget of {budget:,} steps is used" if self.steps >= budget else ""
        self.report(f"resuming {self.rundir.path} at step {self.steps:,}{used}.")
        if self.experiment.checkpoints.steps and state.get("exact") is False:
            self.report(
                "this run was stopped between two checkpoints of --checkpoint-steps: it goes on, but not exactly as if "
                "it had not been stopped. To return to the last such checkpoint instead, give --exact."
            )
        return restored

    # The end --------------------------------------------------------------------------------------------------------

    def warn_if_nothing_learned(self) -> None:
        """Warns of a run that has used its budget without a learner step."""
        if self.steps >= self.experiment.steps and not self.counts.learner_steps:
            self.report(_NOTHING_LEARNED)

    def draw_curve(self) -> pathlib.Path:
        """Draws the run's learning curve into its directory and returns the figure's path."""
        from acme_ext.utils import plots

        label = f"{self.experiment.builder.name} on {self.experiment.environment_name}"
        return plots.learning_curves({label: [self.rundir]}, self.rundir.curve, self.experiment.step_key)

    def result(self, score: Score | None, interrupt: Interrupt) -> Result:
        """Returns the run's result: with its learning curve, or with the signal that stopped it."""
        counts = self.counts
        curve = None if interrupt.requested else self.draw_curve()
        return Result(self.rundir.path, counts.environment_steps, counts.learner_steps, score, curve, interrupt.signal)

    @contextlib.contextmanager
    def watched(self, progress: Callable[[], Hashable], describe: Callable[[], str]) -> Iterator[None]:
        """Explains in words, by `describe`, why nothing moves if `progress` stays the same for long."""
        with Watchdog(progress, lambda: f"nothing has moved for a while: {describe()}", self.report, PATIENCE_S):
            yield

    def close(self) -> None:
        """Writes and closes the logs, and deletes the status file."""
        self.flush(wait=True)
        self.rundir.status.unlink(missing_ok=True)
        for logger in list(self._loggers.values()):
            logger.close()


@contextlib.contextmanager
def open_session(rundir: RunDirectory, experiment: Experiment, *arguments: Any, **options: Any) -> Iterator[Session]:
    """Locks a prepared directory for one run, and yields its `Session`, which takes the further arguments."""
    with rundir.lock(), contextlib.closing(Session(rundir, experiment, *arguments, **options)) as session:
        yield session
