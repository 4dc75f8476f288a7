"""The node of an actor."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from acme_ext import envs
from acme_ext.acting.actor import Actor
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.remote import RemoteExperience, RemoteInference, RemoteVariables, renewal_s
from acme_ext.acting.variables import VariableClient
from acme_ext.builders.base import Agent
from acme_ext.data.format import FolderWriter
from acme_ext.data.recorder import Recorder
from acme_ext.launch.engines.program.nodes.reports import UNWRITTEN, Reporter, StopWaitingError, enter, find, waiting
from acme_ext.launch.hosts import launchpad as lp
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.types import EnvironmentSpec
from acme_ext.utils.calls import RemoteCall

MOST_CALLERS = 2
"""The most parts into which an actor divides its environments."""


def callers_of(experiment: Experiment) -> int:
    """Returns the number of parts into which an actor divides its environments if there is an inference server."""
    return min(MOST_CALLERS, experiment.num_envs)


class ActorNode:
    """Steps environments and writes the experience to its replay shard, until the coordinator tells it to stop.

    With an inference server, it holds no parameters. It then divides its environments into `callers` parts: while one
    part steps, the server computes the actions for the other.

    Args:
        experiment: the experiment that the program runs.
        index: the actor's number.
        actors: number of actors in the program.
        replay: the table of its shard.
        shards: number of replay shards.
        learner: the learner's client.
        inference: the client of its inference server; None to apply the policy in this node.
        coordinator: the coordinator's client.
        callers: number of parts of the environments; each part sends its own requests to the inference server.
        experience: whether this node writes the experience; if not, the inference server does.
        token: the secret that the inference server checks.
        record: `(spec, name) -> writer` for recording complete episodes, if this node writes the experience; None to
            record nothing.
    """

    def __init__(
        self,
        experiment: Experiment,
        index: int,
        actors: int,
        replay: Any,
        shards: int,
        learner: Any,
        inference: Any,
        coordinator: Any,
        *,
        callers: int = 1,
        experience: bool = True,
        token: bytes = b"",
        record: Callable[[EnvironmentSpec, str], FolderWriter] | None = None,
    ):
        node = enter(coordinator, "actor", index)
        assert node.start is not None
        self._start = node.start
        self._reporter = Reporter(coordinator, node)
        self._reporter.counts |= {"environment_steps": 0, "environment_episodes": 0, "parameter_version": -1}
        self._experiment, self._index, self._actors, self._token = experiment, index, actors, token
        self._stack = contextlib.ExitStack()
        self._parts: list[_Part] = []
        recorded: FolderWriter | None = None
        agent: Agent | None = None
        for caller, mine in enumerate(np.array_split(np.arange(experiment.num_envs), callers)):
            # The seeds differ between actors, between their parts, and between starts of the same actor.
            seeds = 1 + (self._start * actors + index) * MOST_CALLERS + caller
            environment = experiment.make_environment(len(mine), part=seeds)
            self._stack.callback(environment.close)
            spec = envs.make_spec(environment)
            agent = agent or experiment.make_agent(spec)
            writer: Any = None
            if experience:
                writer = self._writer(replay, agent.replay.split(shards), len(mine))
                if record is not None:
                    recorded = recorded or record(spec, f"actor-{index}")
                    self._reporter.counts[UNWRITTEN] = 1
                    writer = Recorder(recorded, writer)
                self._stack.callback(writer.close)
            if inference is None:
                actor, version = self._local(agent, mine, writer, learner)
            else:
                actor, version, writer = self._remote(caller, mine, writer, inference)
            loop = EnvironmentLoop(environment, actor, on_episode=self._on_episode)
            self._parts.append(_Part(loop, actor, writer, version, f"{node.key}, part {caller}"))
            self._reporter.kept(actor.core, self._parts[-1].name)

    def run(self) -> None:
        """Acts until it is told to stop; then sends all remaining experience to the replay."""
        try:
            for part in self._parts:
                self._tell_steps(part.actor)
            while not self._reporter.orders.stop and not lp.wait_for_stop(0):
                for part in self._parts:
                    self._count(part.loop.step(), part.version())
                    self._tell_steps(part.actor)
                    part.actor.begin()
                    self._reporter.keep(part.actor.core, part.name)
            for part in self._parts:
                part.writer.flush()
            for part in self._parts:
                part.writer.wait()
                self._reporter.keep(part.actor.core, part.name, now=True)
        except StopWaitingError:  # told to stop while waiting: unsent experience is dropped
            pass
        finally:
            try:
                self._stack.close()
            finally:  # after an error too, because the program waits for what is not written
                self._reporter.counts[UNWRITTEN] = 0
                self._reporter.report("has ended", now=True)
        self._reporter.done()

    def _tell_steps(self, actor: Any) -> None:
        """Gives an actor the program's number of environment steps, for its exploration."""
        actor.environment_steps = max(actor.environment_steps, self._reporter.orders.environment_steps)

    def _count(self, taken: int, version: int) -> None:
        """Counts steps, and reports them if a report is due."""
        reporter, counts = self._reporter, self._reporter.counts
        counts["environment_steps"] += taken
        counts["parameter_version"] = version
        unreported = counts["environment_steps"] - reporter.reported.get("environment_steps", 0)
        # Near the end of the budget, actors report more often, so that the program doesn't far exceed its budget.
        left = self._experiment.steps - reporter.orders.environment_steps
        reporter.report("acting", now=2 * unreported * self._actors >= left)

    def _on_episode(self, episode: Episode) -> None:
        self._reporter.counts["environment_episodes"] += 1
        row = {"episode_return": episode.episode_return, "episode_length": episode.length, **episode.metrics}
        self._reporter.row("actor", {"actor": self._index, **row})

    def _writer(self, replay: Any, part: Any, num_envs: int) -> Any:
        return part.writer(
            replay.sink(),
            num_envs,
            max_pending=part.unconfirmed(num_envs),
            on_wait=self._waiting(lambda: f"waiting for the replay to take its rows: {replay.describe()}"),
        )

    def _local(self, agent: Agent, mine: np.ndarray, writer: Any, learner: Any) -> tuple[Actor, Callable[[], int]]:
        """Returns an actor with its own parameters, and a function that returns their version."""
        num_envs = self._experiment.num_envs
        on_wait = self._waiting(lambda: "waiting for the learner's first parameters")
        variables = RemoteVariables(learner.variables, period_s=renewal_s(agent.replay.fifo), on_wait=on_wait)
        self._stack.callback(variables.close)
        actor = agent.make_actor(
            VariableClient(variables, agent.variable_period),
            self._experiment.actor_key(self._index, self._start),
            num_envs=len(mine),
            writer=writer,
            rank=self._experiment.ranks(self._actors)[self._index * num_envs + mine],
        )
        return actor, lambda: variables.version

    def _remote(
        self, caller: int, mine: np.ndarray, writer: Any, inference: Any
    ) -> tuple[Actor, Callable[[], int], Any]:
        """Returns an actor that gets its actions from the inference server, a function that returns the version of the
        parameters behind them, and the writer of its experience, which may send it through the server.
        """
        on_wait = self._waiting(lambda: "waiting for the inference server's actions")
        who = (self._index, caller, self._start)
        call = RemoteCall(functools.partial(find, inference, on_wait), on_wait, token=self._token, first=who)
        self._stack.callback(call.close)
        remote = RemoteInference(call, with_state=getattr(writer, "keeps_state", False), on_wait=on_wait)
        writer = writer or RemoteExperience(remote)
        return Actor(remote, num_envs=len(mine), writer=writer), lambda: remote.version, writer

    def _waiting(self, state: Callable[[], str]) -> Callable[[], None]:
        return waiting(self._reporter, state)


class _Part(NamedTuple):
    """A part of an actor's environments."""

    loop: EnvironmentLoop
    actor: Actor
    writer: Any
    version: Callable[[], int]  # the learner step of the parameters that it acts with
    name: str
