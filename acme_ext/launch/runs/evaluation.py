"""Evaluates a policy on environments that are separate from training's, and loads runs from their directories."""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from acme_ext import envs, interfaces
from acme_ext.acting.loop import EnvironmentLoop, Episode
from acme_ext.acting.variables import POLICY, VariableClient
from acme_ext.builders.base import Builder
from acme_ext.envs.canonical import own_actions
from acme_ext.errors import UsageError
from acme_ext.launch.runs import contracts, settings
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import restore_environment
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.launch.runs.store import BestParams, by_another_version
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.learning.core import LearnerCore
from acme_ext.types import EnvironmentSpec
from acme_ext.utils import files
from acme_ext.utils.rundir import RunDirectory

_OTHER = 2**30
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

    def to_json(self) -> dict[str, Any]:
        """Returns the row and the lists of returns and lengths, as they are written to the run directory."""
        return {**self.row(), "returns": self.returns.tolist(), "lengths": self.lengths.tolist()}


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run."""

    run_dir: pathlib.Path
    environment_steps: int
    learner_steps: int
    score: Score | None  # of the final evaluation; None if the run was stopped before its end
    curve: pathlib.Path | None  # the PNG of the learning curve; None if the run was stopped
    stopped_by: int | None = None  # the signal that stopped the run


class Evaluator:
    """Evaluates the current parameters of a variable source.

    Every evaluation fetches the newest parameters and uses the same seeds, which differ from training's. Its result
    depends only on the parameters and the experiment's seed, and can be reproduced exactly.

    Args:
        experiment: the experiment.
        spec: its environment's spec.
        source: where the parameters come from.
        explore_at: steps of the run, for schedules of exploration, if the agent acts as in training; None: it acts as
            in evaluation.
    """

    def __init__(
        self,
        experiment: Experiment,
        spec: EnvironmentSpec,
        source: interfaces.VariableSource,
        *,
        explore_at: int | None = None,
    ):
        self._experiment, self._explore_at = experiment, explore_at
        self._variables = VariableClient(source)
        self._agent = experiment.make_agent(spec)
        self.steps = 0
        """Steps taken in all evaluations so far; it grows while an evaluation makes progress."""
        self._actors: dict[int, Any] = {}  # by number of environments, so that each policy is compiled once

    @property
    def params(self) -> Any:
        """The parameters of the last evaluation."""
        return self._variables.params

    def evaluate(
        self, episodes: int, on_step: Callable[[], None] = lambda: None, *, standing: list[list] | None = None
    ) -> Score:
        """Runs `episodes` episodes, divided evenly among the environments so that short episodes don't get more weight.

        Args:
            episodes: the number of episodes.
            on_step: called after each step of all environments; it may raise to cancel the evaluation.
            standing: the actors' shared statistics, such as a bandit's; see `acting.policy.Policy.standing`.
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
            actor.core.brief(standing)
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


class Saved(interfaces.VariableSource):
    """The variables of a learner state."""

    def __init__(self, variables: dict[str, Any]):
        self._variables = variables

    def get_variables(self, names: Sequence[str]) -> list[Any]:
        return [self._variables[name] for name in names]


class Loaded(NamedTuple):
    """A run's agent, loaded from a checkpoint."""

    experiment: Experiment
    spec: EnvironmentSpec
    source: interfaces.VariableSource
    standing: Any  # the policies' saved statistics from one episode to the next; see `acting.policy.Policy.standing`
    steps: int  # steps of the run's budget at the time of the checkpoint
    actions: Any  # the environment's original action spec; in `spec`, continuous actions lie in [-1, 1]

    @property
    def params(self) -> Any:
        """The parameters that the agent's policies take."""
        (params,) = self.source.get_variables([POLICY])
        return params


def load_run(
    path: str | os.PathLike[str],
    *,
    builder: Builder | None = None,
    environment: str | envs.Factory | None = None,
    environment_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    best: bool = False,
) -> Loaded:
    """Returns a run's agent; arguments and errors are those of `launch.load`."""
    rundir, wanted = place_of(path)
    if best and wanted is not None:
        raise UsageError(f"{path} is a single checkpoint; the best parameters belong to the run, {rundir.path}.")
    described = rundir.read_config()
    evaluation = settings.from_json(Evaluation, described["run"]["evaluation"])
    where: Any = environment
    try:
        if where is None:
            where = restore_environment(described["environment"])
            envs.check(where, **described["environment_options"])
    except UsageError as error:
        raise _unknown(path, rundir, error) from error
    options = {**described["environment_options"], **(environment_options or {})}
    envs.check(where, **options)
    try:
        if builder is None:
            builder = cast(Builder, settings.builder_of(described))
    except UsageError as error:
        raise _unknown(path, rundir, error) from error
    acting = settings.configure(builder, config) if config else builder
    experiment = Experiment(
        acting,
        where,
        # The run's own seeds selected the best parameters, so evaluating on them again would be biased.
        seed=(described["seed"] + _OTHER) % 2**31 if best else described["seed"],
        environment_options=options,
        evaluation=evaluation,
    )
    instance = experiment.make_environment(1, evaluation=True)
    spec = envs.make_spec(instance)
    actions = own_actions(instance)
    instance.close()
    core, agent = builder.make_agent(spec).core, acting.make_agent(spec)
    if config and _shapes(agent.core) != _shapes(core):
        changed = ", ".join(f"{name}={value}" for name, value in config.items())
        raise UsageError(f"the run's parameters don't fit {changed}: only how the agent acts can be changed here.")
    for name in config or {}:
        others = {other: value for other, value in (config or {}).items() if other != name}
        without = settings.configure(builder, others)
        if without != acting and contracts.act_alike(without.make_agent(spec), agent, spec):
            raise UsageError(f"{name} changes nothing in how the agent acts, and only that can be changed here.")
    if best:
        template = jax.eval_shape(lambda: core.variables(core.abstract_state())[POLICY])
        kept = BestParams(rundir).restore(template)
        if kept is None:
            raise UsageError(f"{path} has no best parameters yet: they are those of its best evaluation.")
        source = Saved({POLICY: kept.trees[POLICY]})
        return Loaded(experiment, spec, source, kept.info["best"]["standing"], kept.steps, actions)
    store = CheckpointStore(rundir.checkpoints)
    restored = store.restore({"learner": core.abstract_state()}, extra=False, steps=wanted)
    if restored is None:
        latest = store.latest()
        if wanted is None or latest is None:
            raise UsageError(f"{rundir.path} has no checkpoint yet.")
        raise UsageError(f"{rundir.path} has no checkpoint of {wanted} steps: its latest is of {latest}.")
    source = Saved(core.variables(restored.trees["learner"]))
    return Loaded(experiment, spec, source, restored.info["state"].get("standing"), restored.steps, actions)


def _shapes(core: LearnerCore) -> Any:
    """Returns the shapes and dtypes of the learning state."""
    return jax.tree.map(lambda x: (x.shape, x.dtype), core.abstract_state())


def place_of(path: str | os.PathLike[str]) -> tuple[RunDirectory, int | None]:
    """Returns the run directory of a path, and the steps of the checkpoint if the path is one."""
    given = files.expanded(path)
    if given.parent.name == "checkpoints" and given.name.isdigit():
        return RunDirectory.open(given.parent.parent), int(given.name)
    return RunDirectory.open(given), None


def _unknown(path: Any, rundir: RunDirectory, error: UsageError) -> UsageError:
    return UsageError(
        f"the agent or environment of {path}{by_another_version(rundir)} can't be loaded by its name: {error} From "
        "Python, give them to launch.load, as builder=... and environment=..."
    )
