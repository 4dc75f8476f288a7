"""Evaluates a policy on environments that are separate from training's."""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from acme_ext import envs, interfaces
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.variables import POLICY, VariableClient
from acme_ext.builders.base import Agent
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import files
from acme_ext.utils.rundir import RunDirectory

LONG = 100_000
"""Steps without an episode's end after which an evaluation prints a message; a full Atari game has 27,000."""


class Score(NamedTuple):
    """The result of an evaluation."""

    returns: np.ndarray  # [episodes] sums of the environment's rewards, undiscounted and unclipped
    lengths: np.ndarray  # [episodes] steps

    def row(self) -> dict[str, float]:
        """Returns the result as a row of metrics."""
        return {
            "episode_return_mean": float(self.returns.mean()),
            "episode_return_std": float(self.returns.std()),
            "episode_return_min": float(self.returns.min()),
            "episode_return_max": float(self.returns.max()),
            "episode_length_mean": float(self.lengths.mean()),
            "episodes": len(self.returns),
        }

    def joined(self, others: "Iterable[Score]") -> "Score":
        """Returns the score of these episodes and those of other scores."""
        return Score(*(np.concatenate(each) for each in zip(self, *others, strict=True)))

    def to_json(self) -> dict[str, Any]:
        """Returns the row and the lists of returns and lengths, as they are written to the run directory."""
        return {**self.row(), "returns": self.returns.tolist(), "lengths": self.lengths.tolist()}


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run."""

    run_dir: pathlib.Path
    environment_steps: int  # 0 for a run on recorded data
    learner_steps: int
    score: Score | None  # of the final evaluation; None if the run was stopped before its end
    curve: pathlib.Path | None  # the PNG of the learning curve; None if the run was stopped
    stopped_by: int | None = None  # the signal that stopped the run
    seeds: "tuple[Result, ...]" = ()  # the results of the single seeds of a compiled run


class Evaluator:
    """Evaluates the current parameters of a variable source.

    Every evaluation fetches the newest parameters and uses the same seeds, which differ from training's. Its result
    depends only on the parameters and the experiment's seed, and can be reproduced exactly.

    Args:
        experiment: the experiment.
        spec: its environment's spec.
        source: where the parameters come from.
        agent: the experiment's agent; None to make it.
        explore_at: steps of the run, for schedules of exploration, if the agent acts as in training; None: it acts as
            in evaluation.
    """

    def __init__(
        self,
        experiment: Experiment,
        spec: EnvironmentSpec,
        source: interfaces.VariableSource,
        *,
        agent: Agent | None = None,
        explore_at: int | None = None,
    ):
        self._experiment, self._explore_at = experiment, explore_at
        self._variables = VariableClient(source)
        self._agent = experiment.make_agent(spec) if agent is None else agent
        self.steps = 0
        """Steps taken in all evaluations so far; it grows while an evaluation makes progress."""
        self._actors: dict[int, Any] = {}  # by number of environments, so that each policy is compiled once

    @property
    def params(self) -> Any:
        """The parameters of the last evaluation."""
        return self._variables.params

    def evaluate(
        self, episodes: int, on_step: Callable[[], None] = lambda: None, *, statistics: list[list] | None = None
    ) -> Score:
        """Runs `episodes` episodes, divided evenly among the environments so that short episodes don't get more weight.

        Args:
            episodes: the number of episodes.
            on_step: called after each step of all environments; it may raise to cancel the evaluation.
            statistics: the actors' shared statistics, such as a bandit's; see `acting.policy.Policy.shared_statistics`.
        """
        num_envs = min(episodes, self._experiment.evaluation.num_envs)
        environment = self._experiment.make_environment(num_envs, evaluation=True)
        actor = self._actors.get(num_envs)
        if actor is None:
            key = self._experiment.key("evaluator")
            evaluation = self._explore_at is None
            actor = self._agent.make_actor(self._variables, key, evaluation=evaluation, num_envs=num_envs)
            self._actors[num_envs] = actor
        actor.restore({"ticks": 0, "steps": self._explore_at or 0})
        if actor.core and self._explore_at is None:
            actor.core.brief(statistics)
        actor.update(wait=True)
        quota = [len(part) for part in np.array_split(np.arange(episodes), num_envs)]
        finished: list[list[Episode]] = [[] for _ in range(num_envs)]
        loop = EnvironmentLoop(
            environment, actor, on_episode=lambda episode: finished[episode.env].append(episode), should_update=False
        )
        ended, since = 0, 0
        try:
            while any(len(done) < q for done, q in zip(finished, quota, strict=True)):
                self.steps += loop.step()
                on_step()
                before, ended = ended, sum(map(len, finished))
                since = since + 1 if ended == before else 0
                if since == LONG:
                    print(f"acme-ext: {endless(self._experiment)}", file=sys.stderr, flush=True)
        finally:
            environment.close()
        kept = [episode for done, q in zip(finished, quota, strict=True) for episode in done[:q]]
        return Score(np.array([e.episode_return for e in kept]), np.array([e.length for e in kept]))


def endless(experiment: Experiment) -> str:
    """Returns the message of an evaluation in which no episode ends."""
    name = envs.name_of(experiment.environment)
    limit = " (--env-set max_episode_steps=N)" if name.startswith("gym:") else ""
    return (
        f"no episode of {name} has ended in {LONG:,} steps of an evaluation, which waits for it. Stop the run, and "
        f"give the environment a time limit{limit}."
    )


class FixedVariables(interfaces.VariableSource):
    """The variables of a learner state, which don't change."""

    def __init__(self, variables: dict[str, Any]):
        self._variables = variables

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        return [self._variables[name] for name in names]


class Loaded(NamedTuple):
    """A run's agent, loaded from a checkpoint."""

    experiment: Experiment
    spec: EnvironmentSpec
    agent: Agent
    source: interfaces.VariableSource
    statistics: Any  # the policies' shared statistics as they were saved; see `acting.policy.Policy`
    steps: int  # steps of the run's budget at the time of the checkpoint
    actions: Any  # the environment's original action spec; in `spec`, continuous actions lie in [-1, 1]

    @property
    def params(self) -> Any:
        """The parameters that the agent's policies take."""
        (params,) = self.source.get_variables([POLICY])
        return params


def place_of(path: str | os.PathLike[str]) -> tuple[RunDirectory, int | None]:
    """Returns the run directory of a path, and the steps of the checkpoint if the path is one."""
    given = files.expanded(path)
    if given.parent.name == "checkpoints" and given.name.isdigit():
        return RunDirectory.open(given.parent.parent), int(given.name)
    return RunDirectory.open(given), None
