"""The loop of a run: it advances an engine, and does meanwhile what is due in its sessions."""

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Protocol

from acme_ext.errors import NotFiniteError
from acme_ext.launch.hosts.interrupt import Interrupt
from acme_ext.launch.runs.evaluation import Loaded, Result, Score
from acme_ext.launch.runs.saving import Contents
from acme_ext.launch.session import Session

_TICK_S = 0.05  # between updates of the progress line


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


def train(engine: Engine, sessions: Sequence[Session], interrupt: Interrupt) -> list[Result]:
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
    """The loop of `train`."""

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
