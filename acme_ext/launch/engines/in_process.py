"""Advances a run in this process: acting and learning in turn, at the ratio of the replay's rate limit."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from acme_ext.acting.actor import Actor
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.variables import VariableClient
from acme_ext.data.recorder import Recorder
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.launch.engines.learner_engine import LearnerEngine
from acme_ext.launch.engines.profile import RunProfile
from acme_ext.launch.engines.sample_meter import SampleMeter
from acme_ext.launch.placement import InProcess
from acme_ext.launch.runs.recorded_data import mixed_batches
from acme_ext.launch.runs.saving import Contents, replay_folder
from acme_ext.launch.runs.start import Start
from acme_ext.launch.session import Session
from acme_ext.replay.mixed import Mixed
from acme_ext.replay.stores import open_store
from acme_ext.replay.table import LostBatchError


class InProcessEngine(LearnerEngine):
    """The parts of a run in one process, and the schedule of its learner calls.

    Args:
        start: the run.
        on: where it is executed.
        session: the run's session.
        environment: the training environments of a run that is not resumed.
        demos: rows of demonstrations; None without any.
        stack: closes the engine's parts.
    """

    def __init__(
        self,
        start: Start,
        on: InProcess,
        session: Session,
        environment: BatchedEnvironment,
        demos: np.ndarray | None,
        stack: contextlib.ExitStack,
    ):
        experiment, agent, replay = start.experiment, start.agent, start.agent.replay
        restored = session.restore({"learner": agent.core.abstract_state()})
        state = restored.info["state"] if restored else {}
        # The environments of a resumed run begin new episodes, with seeds that the run has not used before.
        self._part = state.get("part", -1) + 1
        self._environment = environment
        stack.callback(lambda: self._environment.close())
        if self._part:
            environment.close()
            self._environment = experiment.make_environment(experiment.num_envs, part=self._part)
        self._profile = RunProfile() if on.profile else None

        self._store = open_store(
            replay,
            experiment.table_kind,
            seed=experiment.seed,
            scratch=session.rundir.replay,
            restore=replay_folder(restored),
            report=session.report,
        )
        self._table = self._store.table
        dataset = self._table.batches(agent.sgd_steps_per_call)
        stack.callback(self._store.close)
        stack.callback(dataset.close, wake=True)
        batches = self._profile.batches(dataset) if self._profile else dataset
        self._mixed: Mixed | None = None
        if demos is not None:
            batches = self._mixed = mixed_batches(experiment, agent, demos, batches)
        self._pretrain_steps = agent.pretrain_steps if demos is not None else 0
        learner = agent.make_learner(batches, [self._table], experiment.key("learner"), devices=experiment.devices())
        stack.callback(learner.close)
        super().__init__(start, session, learner)
        self._writer: Any = replay.writer(self._table.sink(), experiment.num_envs)
        if start.recording is not None:
            self._writer = Recorder(start.recording, self._writer)
        stack.callback(self._writer.close)
        self._actor = self._make_actor()
        self._ended = False  # whether a part of the run has ended, and the next step begins another one
        self._observers = on.observers
        inserted, sampled, _ = self._table.counts()
        items = replay.batch_size * agent.sgd_steps_per_call
        self._meter = SampleMeter(replay, items, inserted, sampled, ahead=self._table.ahead)
        if restored:
            self._actor.restore(state["actor"])
            self._learner.restore(restored.trees["learner"])
            self._learner.steps = session.counts.learner_steps
            if self._mixed:
                self._mixed.restore(state["demos"])
        if self._profile:
            self._profile.watch(self._writer, self._learner, evaluation=self, logging=session)
        self._loop = self._make_loop()

    def advance(self) -> None:
        if self._ended:
            self._begin_part()
        if self._learner.steps < self._pretrain_steps:
            self._learner.step()
        else:
            self._loop.step()
            self._learn()
        self._count()

    def end_part(self) -> None:
        self._learn_from_rest()
        self._ended = True

    def _begin_part(self) -> None:
        """Begins new episodes, just as a run does that is resumed from the state at the end of the part before."""
        self._ended, self._part = False, self._part + 1
        self._calls_logged = self._learner.calls
        self._environment.close()
        self._environment = self._start.experiment.make_environment(self._start.experiment.num_envs, part=self._part)
        state = self._actor.save()
        self._actor = self._make_actor()
        self._actor.restore(state)
        self._loop = self._make_loop()

    def _make_actor(self) -> Actor:
        experiment, agent = self._start.experiment, self._start.agent
        return agent.make_actor(
            VariableClient(self._learner, agent.variable_period),
            experiment.key("actor"),
            num_envs=experiment.num_envs,
            writer=self._writer,
        )

    def _make_loop(self) -> EnvironmentLoop:
        count, observers, counts = self._start.experiment.num_envs, self._observers, self._session.counts
        self._before = counts.environment_steps, counts.environment_episodes
        if self._profile:
            self._profile.watch_part(self._environment, self._actor)
        return EnvironmentLoop(
            self._environment,
            self._actor,
            on_episode=self._on_episode,
            observers=[observers(i) for i in range(count)] if observers else (),
        )

    def _learn_from_rest(self) -> None:
        """Sends what the writer still holds, and learns from it."""
        self._writer.flush()
        self._learn(last=True)
        self._count()

    def finish(self) -> None:
        self._learn_from_rest()
        if self._profile:
            self._profile.report(self._session.steps, self._session.rundir.path, self._session.report)

    def state(self, index: int, *, flushed: bool) -> Contents:
        self._learner.check()
        if flushed:  # no learner call is due now, so the rate limit can't block this
            self._writer.wait()
        self._learner.settle()
        state = {
            "actor": self._actor.save(),
            "standing": self._statistics(),
            "part": self._part,
            "exact": self._ended,
            **({"demos": self._mixed.save()} if self._mixed else {}),
        }
        return Contents({"learner": self._learner.save()}, state, self._store)

    def doing(self) -> tuple[Mapping[str, str], str]:
        return {"the run": "acting and learning in turn"}, self._table.describe()

    def _count(self) -> None:
        counts, (steps, episodes) = self._session.counts, self._before
        counts.environment_steps = steps + self._loop.steps
        counts.environment_episodes = episodes + self._loop.episodes
        counts.learner_steps = self._learner.steps

    def _drawn(self) -> Mapping[str, int]:
        return {f"samples_{name}": count for name, count in (self._mixed.drawn if self._mixed else {}).items()}

    def _statistics(self) -> list | None:
        return self._actor.core.shared_statistics() if self._actor.core else None

    def _on_episode(self, episode: Episode) -> None:
        self._count()
        row = {"episode_return": episode.episode_return, "episode_length": episode.length, **episode.metrics}
        self._session.log("actor", {"environment_steps": self._session.steps, **row})

    def _learn(self, *, last: bool = False) -> None:
        calls = self._meter.due(self._writer.inserted, last=last)
        for _ in range(calls):
            try:
                self._learner.step()
            except LostBatchError:
                self._session.report("samples that Reverb selected did not arrive: a learner call is skipped.")
                break  # the remaining calls that are due now would not get batches either
        if self._profile:
            self._profile.restart_once_compiled(self._learner.calls, self._session.steps)
        if calls and self._start.agent.replay.fifo:
            self._actor.update(wait=True)  # otherwise the next action would come from the old policy
