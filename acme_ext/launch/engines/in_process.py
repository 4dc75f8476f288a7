"""Advances a run in this process: acting and learning in turn, at the ratio of the replay's rate limit."""

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.variables import VariableClient
from acme_ext.data.recorder import Recorder
from acme_ext.envs.base import BatchedEnvironment
from acme_ext.launch.engines.learner_engine import LearnerEngine
from acme_ext.launch.engines.lost_batches import LostBatchDetector, LostBatchError
from acme_ext.launch.engines.profile import RunProfile
from acme_ext.launch.engines.sample_meter import SampleMeter
from acme_ext.launch.placement import InProcess
from acme_ext.launch.runs.recorded_data import mixed_batches
from acme_ext.launch.runs.saving import Contents, replay_folder
from acme_ext.launch.runs.start import Start
from acme_ext.launch.session import Session
from acme_ext.replay.mixed import Mixed
from acme_ext.replay.server import ReplayServer


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
        if self._part:
            environment.close()
            environment = experiment.make_environment(experiment.num_envs, part=self._part)
            stack.callback(environment.close)
        self._profile = RunProfile() if on.profile else None

        self._replay = ReplayServer(replay.tables(), scratch=session.rundir.replay, restore=replay_folder(restored))
        self._detector = LostBatchDetector(replay, lambda: self._replay.counts(replay.table))
        dataset = replay.dataset(self._replay.client, agent.sgd_steps_per_call, on_wait=self._detector.poll)
        stack.callback(self._replay.close)
        stack.callback(dataset.close, wake=True)
        batches = self._profile.batches(dataset) if self._profile else dataset
        self._mixed: Mixed | None = None
        if demos is not None:
            batches = self._mixed = mixed_batches(experiment, agent, demos, batches)
        self._pretrain_steps = agent.pretrain_steps if demos is not None else 0
        learner = agent.make_learner(
            batches, [self._replay.client], experiment.key("learner"), devices=experiment.devices()
        )
        stack.callback(learner.close)
        super().__init__(start, session, learner)
        self._writer: Any = replay.writer(self._replay.client, experiment.num_envs)
        if start.recording is not None:
            self._writer = Recorder(start.recording, self._writer)
        stack.callback(self._writer.close)
        self._actor = agent.make_actor(
            VariableClient(self._learner, agent.variable_period),
            experiment.key("actor"),
            num_envs=experiment.num_envs,
            writer=self._writer,
        )
        observers = on.observers
        self._loop = EnvironmentLoop(
            environment,
            self._actor,
            on_episode=self._on_episode,
            observers=[observers(i) for i in range(experiment.num_envs)] if observers else (),
        )
        self._meter = SampleMeter(
            replay,
            replay.batch_size * agent.sgd_steps_per_call,
            *self._replay.counts(replay.table),
            ahead=0 if replay.fifo else 1,
        )
        counts = session.counts
        self._before = counts.environment_steps, counts.environment_episodes
        if restored:
            self._actor.restore(state["actor"])
            self._learner.restore(restored.trees["learner"])
            self._learner.steps = counts.learner_steps
            if self._mixed:
                self._mixed.restore(state["demos"])
        if self._profile:
            self._profile.watch(environment, self._actor, self._writer, self._learner, evaluation=self, logging=session)

    def advance(self) -> None:
        if self._learner.steps < self._pretrain_steps:
            self._learner.step()
        else:
            self._loop.step()
            self._learn()
        self._count()

    def finish(self) -> None:
        self._writer.flush()
        self._learn(last=True)
        self._count()
        if self._profile:
            self._profile.report(self._session.steps, self._session.rundir.path, self._session.report)

    def state(self, index: int, *, flushed: bool) -> Contents:
        self._learner.check()
        if flushed:  # no learner call is due now, so the rate limit can't block this
            self._writer.wait()
        state = {
            "actor": self._actor.save(),
            "standing": self._statistics(),
            "part": self._part,
            **({"demos": self._mixed.save()} if self._mixed else {}),
        }
        return Contents({"learner": self._learner.save()}, state, self._replay)

    def doing(self) -> tuple[Mapping[str, str], str]:
        return {"the run": "acting and learning in turn"}, self._replay.describe()

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
            self._detector.begin()
            try:
                self._learner.step()
            except LostBatchError:
                self._session.report("samples that Reverb selected did not arrive: a learner call is skipped.")
                break  # the remaining calls that are due now would not get batches either
        if self._profile:
            self._profile.restart_once_compiled(self._learner.calls, self._session.steps)
        if calls and self._start.agent.replay.fifo:
            self._actor.update(wait=True)  # otherwise the next action would come from the old policy
