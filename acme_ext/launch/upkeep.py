"""What is due in a run between the steps of its engine."""

import contextlib
import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence

from acme_ext.errors import NotFiniteError
from acme_ext.launch.engines.engine import Engine
from acme_ext.launch.hosts.interrupt import Interrupt
from acme_ext.launch.runs.evaluation import Score
from acme_ext.launch.session import Session


class Upkeep:
    """Does what is due in an engine's sessions: logs, evaluations, snapshots and saves.

    Args:
        engine: the engine.
        sessions: its sessions.
        interrupt: the stop request, which ends an evaluation.
    """

    def __init__(self, engine: Engine, sessions: Sequence[Session], interrupt: Interrupt):
        self._engine, self._sessions, self._interrupt = engine, sessions, interrupt
        self._evaluation_steps = 0

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Explains why nothing moves, and which checkpoint remains after a loss that is not finite."""
        with contextlib.ExitStack() as stack:
            for session in self._sessions:
                stack.enter_context(session.checkpoints.explaining())
            stack.enter_context(self._sessions[0].watched(self._progress, lambda: _in_words(*self._engine.doing())))
            yield

    def _progress(self) -> Hashable:
        """What changes while the run makes progress."""
        counts = [(session.counts.environment_steps, session.counts.learner_steps) for session in self._sessions]
        return (*counts, self._evaluation_steps)

    def stops(self) -> list[int]:
        """Returns the step of each session at which `events` must be called."""
        return [session.next_stop for session in self._sessions]

    def events(self) -> None:
        """Logs, evaluates, exports and saves what is due at the current steps."""
        sessions = self._sessions
        self._log([session.row_due for session in sessions])
        due = [session.evaluation_due for session in sessions]
        if any(due) and (scores := self._evaluate(sessions[0].experiment.evaluation.episodes)):
            for index in itertools.compress(range(len(sessions)), due):
                self._evaluated(index, scores[index])
        self._export()
        if any(session.checkpoint_due for session in sessions):
            self._engine.end_part()
            self._save()

    def _export(self) -> None:
        for session in self._sessions:
            if session.snapshots is not None:
                session.snapshots.export_if_due(session.steps)

    def tick(self) -> None:
        """Shows the progress, and saves by the clock."""
        sessions = self._sessions
        self._show()
        for session in sessions:
            session.tell(self._engine.doing)
        if sessions[0].checkpoints.due():
            self._save()

    def _show(self) -> None:
        if (progress := self._sessions[0].progress) is not None:
            columns = [session.columns() for session in self._sessions]
            progress.update(**{name: sum(each[name] for each in columns) / len(columns) for name in columns[0]})

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
            statistics=loaded.statistics,
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
        self._show()
        self._export()  # one may be due at the step at which a stop was noticed
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
