"""An actor's node."""

from typing import Any

import jax
import launchpad as lp
import numpy as np

from acme_ext import envs
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.remote import RemoteVariables
from acme_ext.acting.variables import VariableClient
from acme_ext.launch.experiment import Experiment
from acme_ext.launch.nodes.replay import describe
from acme_ext.launch.nodes.reports import Reporter, StopWaitingError, node_name, waiting

_PENDING = 16  # rows, beside a step of all environments, that the replay may not have taken when an actor goes on


class ActorNode:
    """Steps environments and writes what happens to its shard of the replay, until the coordinator says stop.

    Args:
        experiment: what is run.
        index: which of the actors it is.
        actors: how many there are.
        replay: the Reverb client of its shard.
        shards: how many there are.
        learner: the learner's client.
        coordinator: the coordinator's.
    """

    def __init__(
        self,
        experiment: Experiment,
        index: int,
        actors: int,
        replay: Any,
        shards: int,
        learner: Any,
        coordinator: Any,
    ):
        name = f"actor {index}"
        start = coordinator.enter(name)
        self._reporter = Reporter(coordinator, node_name(name, start))
        self._index, self._actors, self._budget = index, actors, experiment.steps
        builder, num_envs = experiment.builder, experiment.num_envs
        # Each actor has environments and keys of its own, and others each time it is started.
        self._environment = experiment.make_environment(num_envs, part=1 + start * actors + index)
        spec = envs.make_spec(self._environment)
        key = jax.random.fold_in(jax.random.fold_in(experiment.key("actor"), index), start)
        part = builder.make_replay(spec).split(shards)
        self._writer = part.writer(
            replay,
            num_envs,
            max_pending=_PENDING + num_envs,
            on_wait=waiting(self._reporter, lambda: f"waiting for the replay to take its rows: {describe(replay)}"),
        )
        self._variables = RemoteVariables(
            learner.variables, on_wait=waiting(self._reporter, lambda: "waiting for the learner's first parameters")
        )
        slots = np.arange(index * num_envs, (index + 1) * num_envs, dtype=np.float32)
        self._actor = builder.make_actor(
            builder.make_policy(spec),
            VariableClient(self._variables, builder.variable_period),
            key,
            num_envs=num_envs,
            writer=self._writer,
            rank=slots / max(1, actors * num_envs - 1),
        )
        self._loop = EnvironmentLoop(self._environment, self._actor, on_episode=self._on_episode)

    def run(self) -> None:
        """Acts until it is told to stop; all that it did is then in the replay."""
        reporter = self._reporter
        counts = reporter.counts = {"environment_steps": 0, "environment_episodes": 0, "parameter_version": -1}
        try:
            while not reporter.orders.stop and not lp.wait_for_stop(0):
                counts["environment_steps"] += self._loop.step()
                counts["parameter_version"] = self._variables.version
                # Near the budget everybody asks more often: nobody goes far past it, even if the others are faster.
                unreported = counts["environment_steps"] - reporter.reported.get("environment_steps", 0)
                left = self._budget - reporter.orders.environment_steps
                if reporter.due() or 2 * unreported * self._actors >= left:
                    orders = reporter.report("acting", now=True)
                    self._actor.environment_steps = orders.environment_steps
            self._writer.flush()
            self._writer.wait()
            self._end()
        except StopWaitingError:
            self._end()
        finally:
            self._variables.close()
            self._writer.close()
            self._environment.close()

    def _end(self) -> None:
        self._reporter.report("has ended", now=True)
        self._reporter.done()

    def _on_episode(self, episode: Episode) -> None:
        self._reporter.counts["environment_episodes"] += 1
        row = {"episode_return": episode.episode_return, "episode_length": episode.length, **episode.metrics}
        self._reporter.row("actor", {"actor": self._index, **row})
