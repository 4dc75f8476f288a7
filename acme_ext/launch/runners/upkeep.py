"""Evaluations, logs and checkpoints of a run in one process."""

import abc
import contextlib
import dataclasses
import time
from collections.abc import Mapping

from acme_ext.builders.base import Agent
from acme_ext.launch.processes.interrupt import Interrupt
from acme_ext.launch.runs.evaluation import Evaluator, Result, Score
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.store import RunStore, draw_curve
from acme_ext.learning.learner import Learner, over_devices
from acme_ext.replay.mixed import Mixed
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.progress import ProgressLine

_LOG_EVERY_S = 1.0  # between rows of learner metrics; each must wait for the device


def check_learner(experiment: Experiment, agent: Agent, spec: EnvironmentSpec, snapshot_every: int | None) -> None:
    """Checks what needs the learner's devices, before a run's directory is changed.

    Raises:
        UsageError: there are fewer devices than the learner needs, its batch doesn't divide over them, or the policy
            can't be exported and `snapshot_every` is set.
    """
    experiment.devices()
    over_devices(agent.replay.batch_size, experiment.num_devices)
    if snapshot_every:
        from acme_ext.launch.runners.snapshots import check_policy

        check_policy(experiment, spec)


def conclude(result: Result, experiment: Experiment, store: RunStore, interrupt: Interrupt) -> Result:
    """Returns a result with the signal that stopped the run; if there was none, draws and adds the learning curve."""
    if interrupt.requested:
        return dataclasses.replace(result, stopped_by=interrupt.signal)
    return dataclasses.replace(result, curve=draw_curve(experiment, store.rundir))


class Upkeep(abc.ABC):
    """Evaluations, logs and checkpoints, for runs in an environment and runs on recorded data.

    A subclass sets the attributes, calls `_housekeeping` during the run, and calls `_finish` at the end.
    """

    experiment: Experiment
    store: RunStore
    progress: ProgressLine | None
    learner: Learner
    evaluator: Evaluator
    next_evaluation: int  # step of the budget at which the next evaluation is due
    logged_at: float
    mixed: Mixed | None = None  # the batches, if there are demonstrations

    @property
    @abc.abstractmethod
    def steps(self) -> int:
        """Steps of the budget that were taken."""

    @property
    @abc.abstractmethod
    def _counts(self) -> Mapping[str, int]:
        """The step columns of every log row."""

    @abc.abstractmethod
    def _save(self, *, last: bool = False) -> None:
        """Saves everything that is needed to resume the run; `last` if the run ends here."""

    def _doing(self) -> tuple[Mapping[str, str], str]:
        """Returns what the run is doing, and the state of its replay, in words."""
        return {"the run": "learning"}, ""

    def _standing(self) -> list | None:
        """Returns the policies' shared statistics, see `Policy.standing`; None if there are none."""
        return None

    def _housekeeping(self, interrupt: Interrupt) -> None:
        """Evaluates, logs and saves, if these are due."""
        if self.progress:
            self.progress.update(**self._counts)
        scheduled = self.next_evaluation
        if self.steps < self.experiment.steps and self._pass_evaluations():
            try:
                self._evaluate(self.experiment.evaluation.episodes, interrupt)
            except _InterruptedEvaluationError:
                self.next_evaluation = scheduled  # the resumed run will repeat it
        # `_finish` logs the row of the last step.
        if self.steps < self.experiment.steps and time.monotonic() - self.logged_at >= _LOG_EVERY_S:
            self._log_learner()
            self.store.tell(*self._doing())
        if self.store.checkpoints.due():
            self._save()

    def _finish(self, interrupt: Interrupt) -> Score | None:
        """Logs, saves and evaluates at the end; returns the score, or None if the evaluation was interrupted."""
        self._log_learner()
        if self.steps >= self.experiment.steps:
            self._pass_evaluations()  # the final evaluation replaces any that is due at the same step
        self._save(last=True)
        with contextlib.suppress(_InterruptedEvaluationError):
            return self._evaluate(self.experiment.evaluation.final_episodes, interrupt)
        return None

    def _pass_evaluations(self) -> bool:
        """Moves the schedule past the current step; returns whether an evaluation was due."""
        due = self.experiment.evaluation.every > 0 and self.next_evaluation <= self.steps
        if due:
            self.next_evaluation = self.experiment.evaluation.after(self.steps)
        return due

    def _evaluate(self, episodes: int, interrupt: Interrupt) -> Score:
        def on_step() -> None:
            if interrupt.requested:
                raise _InterruptedEvaluationError

        on_step()
        self.store.tell({"the run": "evaluating"}, self._doing()[1])
        score = self.evaluator.evaluate(episodes, on_step, standing=self._standing())
        self.store.log("evaluator", {**self._counts, **score.row()})
        self.store.best.offer(float(score.returns.mean()), self.steps, lambda: self.evaluator.params, self._standing())
        if self.progress:
            self.progress.update(evaluation=float(score.returns.mean()))
        return score

    def _log_learner(self) -> None:
        if self.learner.calls:
            drawn = {f"samples_{name}": count for name, count in (self.mixed.drawn if self.mixed else {}).items()}
            self.store.log("learner", {**self._counts, **self.learner.metrics(), **drawn})
        self.logged_at = time.monotonic()


class _InterruptedEvaluationError(Exception):
    """An evaluation was cancelled because the run was told to stop."""
