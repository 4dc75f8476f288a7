"""Logging, saving and resuming for runs in one process that act in an environment."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from acme_ext.acting.actor import Actor
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.launch.processes.interrupt import Interrupt
from acme_ext.launch.runners.upkeep import Upkeep
from acme_ext.launch.runs.evaluation import Loaded, Result
from acme_ext.launch.runs.feasibility import NOTHING_LEARNED
from acme_ext.launch.runs.store import say_resumed
from acme_ext.learning.checkpoints import Restored
from acme_ext.replay.server import ReplayServer
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.watchdog import Watchdog

STEPS, EPISODES = "environment_steps", "environment_episodes"  # names of the counts


class ActingUpkeep(Upkeep):
    """Logging, saving and resuming of a run that acts in an environment. A subclass sets the attributes."""

    report: Callable[[str], None]
    spec: EnvironmentSpec
    actions: Any  # the environment's original action spec
    replay: ReplayServer
    writer: Any
    actor: Actor
    loop: EnvironmentLoop
    part: int  # how often the run has been resumed
    before: dict[str, int]  # counts from before the run was resumed

    @property
    def steps(self) -> int:
        return self.before[STEPS] + self.loop.steps

    @property
    def _counts(self) -> dict[str, int]:
        return {"environment_steps": self.steps, "learner_steps": self.learner.steps}

    def _doing(self) -> tuple[dict[str, str], str]:
        return {"the run": "acting and learning in turn"}, self.replay.describe()

    def _standing(self) -> list | None:
        return self.actor.core.standing() if self.actor.core else None

    def loaded(self) -> Loaded:
        """Returns the agent as it is now."""
        return Loaded(self.experiment, self.spec, self.learner, self._standing(), self.steps, self.actions)

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Prints an explanation if nothing progresses for long, and adds to the learner's error for a loss that is not
        finite.
        """
        watchdog = Watchdog(
            lambda: (self.steps, self.learner.steps, self.evaluator.steps),
            lambda: f"nothing has moved for a while: {self.replay.describe()}",
            self.report,
        )
        with self.store.checkpoints.explaining(), watchdog:
            yield

    @contextlib.contextmanager
    def saved_if_it_fails(self) -> Iterator[None]:
        """Saves a checkpoint if the body raises an exception."""
        try:
            yield
        except (Exception, SystemExit):
            # The error may come from the environment, say; the learner's state is still good unless its check fails.
            self._save(confirmed=False)
            raise

    def result(self, interrupt: Interrupt) -> Result:
        """Logs, saves and evaluates at the end; returns the run's result."""
        if self.steps >= self.experiment.steps and not self.learner.steps:
            self.report(NOTHING_LEARNED)
        score = self._finish(interrupt)
        if score is not None:
            self.store.rundir.write_evaluation({"environment_steps": self.steps, **score.to_json()})
        return Result(self.store.rundir.path, self.steps, self.learner.steps, score, None)

    def _on_episode(self, episode: Episode) -> None:
        row = {"episode_return": episode.episode_return, "episode_length": episode.length, **episode.metrics}
        self.store.log("actor", {"environment_steps": self.steps, **row})
        if self.progress:
            self.progress.update(episode_return=episode.episode_return)

    def _save(self, *, last: bool = False, confirmed: bool = True) -> None:
        """Saves everything that is needed to resume the run; raises NotFiniteError if the loss was not finite.

        With `confirmed`, waits until the replay holds all written items. Then no learner call may be due, because the
        rate limit could block the wait.
        """
        self.learner.check()
        if confirmed:
            self.writer.wait()
        state = {
            "counts": {"counts": {STEPS: self.steps, EPISODES: self.before[EPISODES] + self.loop.episodes}},
            "actor": self.actor.save(),
            "standing": self._standing(),
            "learner_steps": self.learner.steps,
            "next_evaluation": self.next_evaluation,
            "part": self.part,
            "wall_time_s": self.store.wall_time_s,
            **({"demos": self.mixed.save()} if self.mixed else {}),
        }
        self.store.checkpoints.save(self.steps, {"learner": self.learner.save()}, state, self.replay, last=last)

    def _resume(self, restored: Restored) -> None:
        """Restores what `_save` wrote, except the replay and `part`, which `__init__` has already restored."""
        state = restored.info["state"]
        self.before = {**self.before, **state["counts"]["counts"]}
        self.next_evaluation = self.experiment.evaluation.resumed(self.steps, state.get("next_evaluation", 0))
        self.actor.restore(state["actor"])
        self.learner.restore(restored.trees["learner"])
        self.learner.steps = state["learner_steps"]
        if self.mixed:
            self.mixed.restore(state["demos"])
        self.report(say_resumed(self.store.rundir, self.steps, self.experiment.steps))
