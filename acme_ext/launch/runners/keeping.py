"""What a run in one process logs and saves beside acting and learning, and how it goes on from that."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from acme_ext.acting.actor import Actor
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.launch.processes.interrupt import Interrupt
from acme_ext.launch.runners.upkeep import Upkeep
from acme_ext.launch.runs.evaluation import Loaded, Result
from acme_ext.launch.runs.feasibility import NOTHING_LEARNED
from acme_ext.learning.checkpoints import Restored
from acme_ext.replay.server import ReplayServer
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.watchdog import Watchdog

STEPS, EPISODES = "environment_steps", "environment_episodes"  # names of what is counted


class ActingUpkeep(Upkeep):
    """The part of a run with an environment that neither acts nor learns. A subclass sets the attributes."""

    report: Callable[[str], None]
    spec: EnvironmentSpec
    actions: Any  # the environment's own
    replay: ReplayServer
    writer: Any
    actor: Actor
    loop: EnvironmentLoop
    part: int  # of the run: how often it has been resumed
    before: dict[str, int]  # counts of the parts that this one goes on from

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
        """Explains a wait that lasts, and an error of the learner."""
        watchdog = Watchdog(
            lambda: (self.steps, self.learner.steps, self.evaluator.steps),
            lambda: f"nothing has moved for a while: {self.replay.describe()}",
            self.report,
        )
        with self.store.checkpoints.explaining(), watchdog:
            yield

    @contextlib.contextmanager
    def saved_if_it_fails(self) -> Iterator[None]:
        """Saves what was learned where something raises."""
        try:
            yield
        except Exception:
            # Whatever raised, an environment say: what was learned is good, unless the learner itself says no.
            self._save(confirmed=False)
            raise

    def result(self, interrupt: Interrupt) -> Result:
        """Logs, saves and evaluates at the end; returns what the run came to."""
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
        """Saves everything that the run goes on from; refuses (NotFiniteError) if learning has gone wrong.

        With `confirmed` the replay holds all that was written, for which no learner call may be due.
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
        """Takes up what `_save` wrote, but for the replay and the part, with which the parts were made."""
        state = restored.info["state"]
        self.before = {**self.before, **state["counts"]["counts"]}
        self.next_evaluation = state.get("next_evaluation", self.next_evaluation)
        self.actor.restore(state["actor"])
        self.learner.restore(restored.trees["learner"])
        self.learner.steps = state["learner_steps"]
        if self.mixed:
            self.mixed.restore(state["demos"])
        self.report(f"resuming {self.store.rundir.path} at step {self.steps:,}.")
