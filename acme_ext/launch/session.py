"""The life of a run: what it counts, logs, evaluates, saves, resumes and returns, whatever engine advances it."""

import collections
import contextlib
import itertools
import math
import pathlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from acme_ext.errors import NotFiniteError
from acme_ext.launch.processes.interrupt import Interrupt
from acme_ext.launch.runs.evaluation import Loaded, Result, Score
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.saving import BestParams, Contents, Counts, RunCheckpoints
from acme_ext.learning.checkpoints import Restored
from acme_ext.utils import loggers
from acme_ext.utils.progress import ProgressLine
from acme_ext.utils.rundir import RunDirectory
from acme_ext.utils.watchdog import Watchdog

if TYPE_CHECKING:
    from acme_ext.launch.exporting.snapshots import Snapshots

PATIENCE_S = 30.0
"""Seconds without progress after which a run explains what it waits for."""

_LOG_EVERY_S = 1.0  # between log rows, where an engine logs by the clock; each row waits for the device
_TELL_EVERY_S = 1.0  # between writes of the run's status
_TICK_S = 0.05  # between updates of the progress line
_NOTHING_LEARNED = (
    "warning: nothing was learned, because the replay never held enough for the learner's first batch: give the run "
    "more steps, or the agent a smaller batch_size or replay.min_size (replay.length if it learns from unrolls)."
)


class Engine(Protocol):
    """What advances a run: one process, recorded data, or a compiled program of several seeds.

    An engine has the sessions of its seeds, mostly one, and sets their `counts`. Methods with an `index` concern one
    of these sessions.
    """

    @property
    def rows_every(self) -> Sequence[int] | None:
        """Steps between log rows, for each session; None: about a row a second."""
        ...

    def advance(self) -> None:
        """Makes the next steps: at most up to the `next_stop` of each session if it makes many at once."""

    def finish(self) -> None:
        """Learns from what is left; called after the last `advance`."""

    def metrics(self, due: Sequence[bool]) -> Sequence[Mapping[str, Mapping[str, float]]]:
        """Returns the new log rows of each session, by the name of the log; none for a session that isn't due."""
        ...

    def evaluate(self, episodes: int, on_step: Callable[[], None]) -> Sequence[Score]:
        """Evaluates each session's newest parameters; `on_step` is called often, and raises to end the evaluation."""
        ...

    def loaded(self, index: int) -> Loaded:
        """Returns the agent as it is now."""
        ...

    def state(self, index: int, *, flushed: bool) -> Contents:
        """Returns what a resume needs besides the session's own state.

        With `flushed`, the replay holds all that was written to it; without, some of it may be missing.

        Raises:
            NotFiniteError: the loss was not finite, so that the parameters must not be saved.
        """
        ...

    def doing(self) -> tuple[Mapping[str, str], str]:
        """Returns what each part of the run is doing, and the state of its replay, in words."""
        ...


class Session:
    """The life of a run in its directory.

    Args:
        rundir: the directory, which `prepare` has prepared.
        experiment: the run's experiment.
        report: called with messages for the user.
        progress: the progress line, if there is one.
        deferred: log rows are written by `flush` only.
    """

    def __init__(
        self,
        rundir: RunDirectory,
        experiment: Experiment,
        report: Callable[[str], None] = print,
        progress: ProgressLine | None = None,
        *,
        deferred: bool = False,
    ):
        self.rundir, self.experiment, self.report, self.progress = rundir, experiment, report, progress
        self.checkpoints = RunCheckpoints(rundir, experiment.checkpoints, report)
        self.best = BestParams(rundir, report)
        self.counts = Counts()
        self.next_evaluation = experiment.evaluation.every
        self.snapshots: Snapshots | None = None
        self._acts = experiment.data is None
        self._loggers: dict[str, Any] = {}
        self._deferred, self._writing = deferred, threading.Lock()
        self._rows: collections.deque[tuple[str, dict[str, Any]]] = collections.deque()  # to be written
        self._warned = set[str]()
        self._rows_every: int | None = None
        self._next_row = self._logged_at = -math.inf
        self._logged: Mapping[str, int] = {}
        self._elapsed, self._started, self._told_at = 0.0, time.monotonic(), -math.inf
        loggers.describe(rundir, rundir.read_config())

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

    def log_every(self, steps: int | None) -> None:
        """Chooses the steps between two log rows; None: about a row a second."""
        self._rows_every = steps
        if steps:
            self._next_row = (self._logged.get(self.experiment.step_key, 0) // steps + 1) * steps
        else:
            self._logged_at = time.monotonic()

    @property
    def next_stop(self) -> int:
        """The step of the next log row, evaluation or snapshot, or of the end."""
        stop = self.experiment.steps
        if self.experiment.evaluation.every:
            stop = min(stop, self.next_evaluation)
        if self._rows_every:
            stop = min(stop, int(self._next_row))
        return stop if self.snapshots is None else min(stop, self.snapshots.next)

    def snapshot_every(self, steps: int, loaded: Callable[[], Loaded]) -> None:
        """Exports the policy of `loaded()` every so many steps of the budget, see `Snapshots`."""
        from acme_ext.launch.exporting.snapshots import Snapshots

        self.snapshots = Snapshots(loaded, self.rundir, self.steps, steps)

    def row_due(self) -> bool:
        """Whether it is time for a log row."""
        if self._rows_every:
            return self._next_row <= self.steps
        return time.monotonic() - self._logged_at >= _LOG_EVERY_S

    def log_rows(self, rows: Mapping[str, Mapping[str, float]]) -> None:
        """Logs an engine's rows, by the name of their log."""
        for label, row in rows.items():
            self.log(label, row)
        self._logged = self.columns()
        self.log_every(self._rows_every)

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
        standing: list | None,
        results: Mapping[str, Any] | None = None,
    ) -> None:
        """Logs an evaluation, and keeps its parameters if they are the best so far.

        Args:
            row: its metrics.
            at: the step columns of its parameters.
            params: returns its parameters; None if they are known not to be the best.
            standing: the policies' statistics that it used, see `acting.policy.Policy.standing`.
            results: of the final evaluation, the contents of `evaluation.json` besides the steps.
        """
        if params is not None:
            self.best.offer(row["episode_return_mean"], at[self.experiment.step_key], params, standing)
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

    def restore(
        self, templates: Mapping[str, Any], steps: int | None = None, *, optional: Sequence[str] = ()
    ) -> Restored | None:
        """Restores the session's state from a checkpoint, deletes log rows that are newer, and says so to the user.

        The arguments and the result are those of `RunCheckpoints.restore`.
        """
        restored = self.checkpoints.restore(templates, steps, optional=optional)
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
        scheduled = state.get("next_evaluation", 0)
        if not scheduled:  # a program's evaluation may be under way when it saves: the log has those that were made
            path = loggers.csv_path(self.rundir, "evaluator")
            made = loggers.read_csv(path).get(key, ()) if path.is_file() else ()
            scheduled = self.experiment.evaluation.after(int(max(made)) if len(made) else 0)
        self.next_evaluation = self.experiment.evaluation.resumed(self.steps, scheduled)
        self._logged = self.columns() if state.get("logged") == self.steps else {key: state.get("logged", 0)}
        used = f", and its budget of {budget:,} steps is used" if self.steps >= budget else ""
        self.report(f"resuming {self.rundir.path} at step {self.steps:,}{used}.")
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


def run_sessions(engine: Engine, sessions: Sequence[Session], interrupt: Interrupt) -> list[Result]:
    """Advances an engine until its sessions have used their budgets, or until a stop is requested.

    Meanwhile, and at the end, it logs, evaluates, saves and exports snapshots. If something raises an error, the run
    is saved first.
    """
    life = _Life(engine, sessions, interrupt)
    with contextlib.ExitStack() as stack:
        for session in sessions:
            stack.enter_context(session.checkpoints.explaining())
        stack.enter_context(sessions[0].watched(life.progress, lambda: _in_words(*engine.doing())))
        with life.saved_if_it_fails():
            life.advance()
        scores = life.end()
    return [session.result(score, interrupt) for session, score in zip(sessions, scores, strict=True)]


class _Life:
    """The loop of `run_sessions`."""

    def __init__(self, engine: Engine, sessions: Sequence[Session], interrupt: Interrupt):
        self._engine, self._sessions, self._interrupt = engine, sessions, interrupt
        self._evaluation_steps = 0
        for index, session in enumerate(sessions):
            session.log_every(engine.rows_every[index] if engine.rows_every else None)

    def progress(self) -> Hashable:
        """What changes while the run makes progress."""
        counts = [(session.counts.environment_steps, session.counts.learner_steps) for session in self._sessions]
        return (*counts, self._evaluation_steps)

    def advance(self) -> None:
        """Advances the engine to the end of the budgets, with all that is due meanwhile."""
        engine, sessions, interrupt = self._engine, self._sessions, self._interrupt
        stops = self._stops()
        tick = -math.inf
        while not interrupt.requested:
            reached = all(session.steps >= stop for session, stop in zip(sessions, stops, strict=True))
            if reached:
                self._events()
                stops = self._stops()
            now = time.monotonic()
            if now >= tick:
                self._tick()
                tick = now + _TICK_S
            if reached and all(session.steps >= session.experiment.steps for session in sessions):
                break
            engine.advance()
        engine.finish()

    def _stops(self) -> list[int]:
        return [session.next_stop for session in self._sessions]

    def _events(self) -> None:
        """Logs, evaluates and exports what is due at the current steps."""
        sessions = self._sessions
        if self._engine.rows_every:
            self._log([session.row_due() for session in sessions])
        due = [session.evaluation_due for session in sessions]
        if any(due) and (scores := self._evaluate(sessions[0].experiment.evaluation.episodes)):
            for index in itertools.compress(range(len(sessions)), due):
                self._evaluated(index, scores[index])
        for session in sessions:
            if session.snapshots is not None:
                session.snapshots.export_if_due(session.steps)

    def _tick(self) -> None:
        """Shows the progress; logs and saves by the clock."""
        sessions = self._sessions
        if (progress := sessions[0].progress) is not None:
            columns = [session.columns() for session in sessions]
            progress.update(**{name: sum(each[name] for each in columns) / len(sessions) for name in columns[0]})
        ended = all(session.steps >= session.experiment.steps for session in sessions)
        if not self._engine.rows_every and not ended and sessions[0].row_due():
            self._log([True] * len(sessions))
        for session in sessions:
            session.tell(self._engine.doing)
        if sessions[0].checkpoints.due():
            self._save()

    def _log(self, due: Sequence[bool]) -> None:
        if any(due):
            rows = self._engine.metrics(due)
            for session, each in itertools.compress(zip(self._sessions, rows, strict=True), due):
                session.log_rows(each)

    def _evaluate(self, episodes: int) -> Sequence[Score] | None:
        """Returns the sessions' scores; None if a stop was requested meanwhile."""

        def on_step() -> None:
            self._evaluation_steps += 1
            if self._interrupt.requested:
                raise _StoppedError

        for session in self._sessions:
            session.tell(lambda: ({"the run": "evaluating"}, self._engine.doing()[1]))
        with contextlib.suppress(_StoppedError):
            on_step()
            return self._engine.evaluate(episodes, on_step)
        return None

    def _evaluated(self, index: int, score: Score, *, final: bool = False) -> None:
        session, loaded = self._sessions[index], self._engine.loaded(index)
        session.pass_evaluations()
        session.evaluated(
            score.row(),
            session.columns(),
            params=lambda: loaded.params,
            standing=loaded.standing,
            results=score.to_json() if final else None,
        )

    def _save(self, *, flushed: bool = True, last: bool = False) -> None:
        for index, session in enumerate(self._sessions):
            session.save(self._engine.state(index, flushed=flushed), last=last)

    @contextlib.contextmanager
    def saved_if_it_fails(self) -> Iterator[None]:
        """Saves the run if the body raises an exception, which may come from the environment, say."""
        try:
            yield
        except NotFiniteError:
            raise
        except (Exception, SystemExit) as error:
            try:
                self._save(flushed=False)
            except NotFiniteError:  # the reason of the other error
                raise
            except Exception as unsaved:
                self._sessions[0].report(f"the run could not be saved after an error: {unsaved}")
                raise error from unsaved
            raise

    def end(self) -> list[Score | None]:
        """Logs, saves and evaluates at the end; returns the scores, or None for each if a stop was requested."""
        sessions = self._sessions
        self._log([not session.logged for session in sessions])
        for session in sessions:
            if session.steps >= session.experiment.steps:
                session.pass_evaluations()  # the final evaluation replaces any that is due at the same step
        self._save(last=True)
        for session in sessions[:1]:
            session.warn_if_nothing_learned()
        scores = self._evaluate(sessions[0].experiment.evaluation.final_episodes)
        for index, score in enumerate(scores or ()):
            self._evaluated(index, score, final=True)
        return list(scores) if scores else [None] * len(sessions)


class _StoppedError(Exception):
    """An evaluation was cancelled because the run was told to stop."""


def _in_words(nodes: Mapping[str, str], replay: str) -> str:
    """Returns in words what a run's parts are doing, and the state of its replay."""
    if replay:
        return replay
    return "; ".join(f"{node} is {doing}" for node, doing in nodes.items())
