"""An actor's node."""

import contextlib
import functools
import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any, NamedTuple

import launchpad as lp
import numpy as np

from acme_ext import envs
from acme_ext.acting.actor import Actor
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.remote import RemoteExperience, RemoteInference, RemoteVariables
from acme_ext.acting.variables import VariableClient
from acme_ext.launch.experiment import Experiment
from acme_ext.launch.nodes.replay import describe
from acme_ext.launch.nodes.reports import Reporter, StopWaitingError, node_name, waiting

_PENDING = 16  # rows, beside a step of all environments, that the replay may not have taken when an actor goes on


class ActorNode:
    """Steps environments and writes what happens to its shard of the replay, until the coordinator says stop.

    With an inference server it holds no parameters, and steps its environments in `callers` parts, each in a thread:
    while one part waits for its actions, the other steps.

    Args:
        experiment: what is run.
        index: which of the actors it is.
        actors: how many there are.
        replay: the Reverb client of its shard.
        shards: how many there are.
        learner: the learner's client.
        inference: the inference server's client; None applies the policy here.
        coordinator: the coordinator's.
        callers: parts of the environments, each of which asks the inference server for itself.
        experience: whether it keeps the experience; otherwise the inference server does.
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
    ):
        name = f"actor {index}"
        self._start = coordinator.enter(name)
        self._reporter = Reporter(coordinator, node_name(name, self._start))
        self._reporter.counts |= {"environment_steps": 0, "environment_episodes": 0, "parameter_version": -1}
        self._lock = threading.Lock()  # of the counts
        self._over = threading.Event()  # the program is, for all parts
        self._failed = threading.Event()  # some part has raised
        self._experiment, self._index, self._actors = experiment, index, actors
        self._stack = contextlib.ExitStack()
        self._parts: list[_Part] = []
        for caller, mine in enumerate(np.array_split(np.arange(experiment.num_envs), callers)):
            # Each actor has environments of its own, and others each time it is started.
            seeds = 1 + (self._start * actors + index) * callers + caller
            environment = experiment.make_environment(len(mine), part=seeds)
            self._stack.callback(environment.close)
            spec = envs.make_spec(environment)
            if experience:
                writer = self._writer(replay, experiment.builder.make_replay(spec).split(shards), len(mine))
            else:
                assert inference is not None
                writer = RemoteExperience(functools.partial(inference.leave, index, caller))
            self._stack.callback(writer.close)
            if inference is None:
                actor, version = self._local(spec, mine, writer, learner)
            else:
                actor, version = self._remote(caller, mine, writer, inference)
            loop = EnvironmentLoop(environment, actor, on_episode=self._on_episode)
            self._parts.append(_Part(loop, actor, writer, version))

    def run(self) -> None:
        """Acts until it is told to stop; all that it did is then in the replay."""
        try:
            with futures.ThreadPoolExecutor(len(self._parts)) as threads:
                others = [threads.submit(self._act, part, self._over.is_set) for part in self._parts[1:]]
                # Launchpad tells a node's main thread alone.
                self._act(self._parts[0], lambda: lp.wait_for_stop(0))
                for other in others:
                    other.result()
        except StopWaitingError:
            pass
        finally:
            self._stack.close()
        self._reporter.report("has ended", now=True)
        self._reporter.done()

    def _act(self, part: "_Part", is_over: Callable[[], bool]) -> None:
        """Acts in one part of the environments until it is told to stop, or that the program is over."""
        try:
            while not self._reporter.orders.stop and not is_over():
                if self._failed.is_set():
                    return
                self._count(part.loop.step(), part.version())
                part.actor.environment_steps = max(
                    part.actor.environment_steps, self._reporter.orders.environment_steps
                )
            self._over.set()
            part.writer.flush()
            part.writer.wait()
        except BaseException:
            self._failed.set()
            raise

    def _count(self, taken: int, version: int) -> None:
        """Counts steps, and reports if it is time to."""
        reporter, counts = self._reporter, self._reporter.counts
        with self._lock:
            counts["environment_steps"] += taken
            counts["parameter_version"] = version
            unreported = counts["environment_steps"] - reporter.reported.get("environment_steps", 0)
        # Near the budget everybody asks more often: nobody goes far past it, even if the others are faster.
        left = self._experiment.steps - reporter.orders.environment_steps
        if reporter.due() or 2 * unreported * self._actors >= left:
            reporter.report("acting", now=True)

    def _on_episode(self, episode: Episode) -> None:
        with self._lock:
            self._reporter.counts["environment_episodes"] += 1
        row = {"episode_return": episode.episode_return, "episode_length": episode.length, **episode.metrics}
        self._reporter.row("actor", {"actor": self._index, **row})

    def _writer(self, replay: Any, part: Any, num_envs: int) -> Any:
        return part.writer(
            replay,
            num_envs,
            max_pending=_PENDING + num_envs,
            on_wait=self._waiting(lambda: f"waiting for the replay to take its rows: {describe(replay)}"),
        )

    def _local(self, spec: Any, mine: np.ndarray, writer: Any, learner: Any) -> tuple[Actor, Callable[[], int]]:
        """Returns an actor with parameters of its own, and what gives their version."""
        builder, num_envs = self._experiment.builder, self._experiment.num_envs
        on_wait = self._waiting(lambda: "waiting for the learner's first parameters")
        variables = RemoteVariables(learner.variables, on_wait=on_wait)
        self._stack.callback(variables.close)
        actor = builder.make_actor(
            builder.make_policy(spec),
            VariableClient(variables, builder.variable_period),
            self._experiment.actor_key(self._index, self._start),
            num_envs=len(mine),
            writer=writer,
            rank=self._experiment.ranks(self._actors)[self._index * num_envs + mine],
        )
        return actor, lambda: variables.version

    def _remote(self, caller: int, mine: np.ndarray, writer: Any, inference: Any) -> tuple[Actor, Callable[[], int]]:
        """Returns an actor whose actions are the inference server's, and what gives the version that made them."""
        remote = RemoteInference(
            functools.partial(inference.futures.act, self._index, caller, self._start),
            with_state=getattr(writer, "keeps_state", False),
            on_wait=self._waiting(lambda: "waiting for the inference server's actions"),
        )
        return Actor(remote, num_envs=len(mine), writer=writer), lambda: remote.version

    def _waiting(self, state: Callable[[], str]) -> Callable[[], None]:
        return waiting(self._reporter, state)


class _Part(NamedTuple):
    """A part of an actor's environments."""

    loop: EnvironmentLoop
    actor: Actor
    writer: Any
    version: Callable[[], int]  # the learner step of the parameters that it acts with
