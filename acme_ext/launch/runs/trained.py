"""A trained run and its policy, for use in your own code."""

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import dm_env
import jax
import jax.numpy as jnp
import numpy as np
import tree
from jax.interpreters import partial_eval

from acme_ext import envs
from acme_ext.acting import memories
from acme_ext.acting.inference import reset_and_apply
from acme_ext.acting.policy import Context, Policy, PolicyMemory
from acme_ext.acting.variables import POLICY
from acme_ext.builders import restore_builder
from acme_ext.builders.base import Builder
from acme_ext.config.assignments import configure_builder, restore_config
from acme_ext.envs import pictures
from acme_ext.envs.canonical import ActionScale, bounds_of, own_actions
from acme_ext.errors import UsageError
from acme_ext.launch.runs import validation
from acme_ext.launch.runs.directory import by_another_version
from acme_ext.launch.runs.evaluation import Evaluator, FixedVariables, Loaded, Score, place_of
from acme_ext.launch.runs.experiment import Experiment
from acme_ext.launch.runs.identity import restore_environment
from acme_ext.launch.runs.saving import BestParams
from acme_ext.launch.runs.schedule import Evaluation
from acme_ext.learning.checkpoints import CheckpointStore
from acme_ext.learning.core import LearnerCore
from acme_ext.types import Array, Params, Tree
from acme_ext.utils import compiling, videos
from acme_ext.utils.rundir import RunDirectory

_NOT_GIVEN: Any = object()


_OTHER_SEEDS = 2**30  # from a run's seed to that of evaluations of its best parameters


class PolicyFunction:
    """A policy as a pure function, whose memory of the episode is an explicit state.

    Args:
        policy: an agent's policy.
        statistics: the policies' shared statistics, for an evaluation policy; see `Policy`.
        steps: environment steps that the run has taken, for schedules.
    """

    def __init__(self, policy: Policy, statistics: list[list] | None, steps: int):
        self._policy, self._statistics = policy, statistics
        self._steps: Any = np.int32(steps)

    def init(self, batch: int) -> Tree:
        """Returns the state `[B, ...]` at the start of an episode."""
        memory = self._policy.init_policy_memory(batch)
        if isinstance(memory, PolicyMemory) and self._statistics is not None:
            memory = memory._replace(run=memories.of_each(self._statistics, memory.run))
        return self._policy.init_state(batch), memory

    def __call__(
        self, params: Params, keys: Array, observation: Tree, state: Tree, reward: Array, first: Array
    ) -> tuple[Array, Tree]:
        """Returns the actions `[B, ...]` and the new state.

        Args:
            params: the policy's parameters.
            keys: `[B]` random keys, one for each environment.
            observation: `[B, ...]`.
            state: the state from `init`, or from the step before.
            reward: `[B]` float32, the reward that came with the observation.
            first: `[B]` bool, whether the observation begins an episode.
        """
        recurrent, memory = state
        reward = jnp.where(first, 0.0, reward)
        context = Context(keys, self._steps, jnp.zeros_like(reward), reward, first, memory)
        action, _, _, *state = reset_and_apply(self._policy, params, context, observation, recurrent)
        return action, tuple(state)


class TrainedPolicy:
    """The policy of a run's agent, compiled once for each batch size.

    ```
    action = policy(observation)
    action, state = policy(observation, state)  # for an agent with memory; the state is None at an episode's start
    ```

    Observations have the environment's spec, and actions have the environment's units.

    Args:
        loaded: the run's agent.
        seed: random seed, for policies that sample actions.
    """

    def __init__(self, loaded: Loaded, seed: int = 0):
        self._params, self._spec, self._seed = loaded.params, loaded.spec, seed
        agent = loaded.agent
        bounds = bounds_of(loaded.actions)
        self._scale = None if bounds is None else ActionScale(*bounds)
        # These are for evaluation; in training, the policy computes its own.
        self.functions = {
            False: PolicyFunction(agent.evaluation_policy, loaded.statistics, loaded.steps),
            True: PolicyFunction(agent.policy, None, loaded.steps),
        }
        """The evaluation policy, at key False, and the exploring policy of training, at key True."""
        self.has_memory = bool(jax.tree.leaves(self.functions[False].init(1)))
        """Whether calls must pass a state."""
        self._initial: dict[tuple[bool, int], Tree] = {}
        self._calls = 0
        self._compiled: dict[bool, Any] = {}
        self._reads_reward: dict[bool, bool] = {}

    def __call__(
        self,
        observation: Any,
        state: Any = _NOT_GIVEN,
        *,
        reward: Any = None,
        first: Any = None,
        explore: bool = False,
    ) -> Any:
        """Returns the action for one observation or the actions for a batch; with a state given, also the new state.

        Args:
            observation: an observation of the environment's spec, or a batch with a leading axis.
            state: the state that the previous call returned; None at the start of all episodes.
            reward: the reward that came with the observation, or `[B]` rewards; needed by policies with this input.
            first: whether the observation begins an episode, or `[B]` such flags. Where true, the state is reset. None:
                all begin if the state is None, and none otherwise.
            explore: act as in training, with the exploration of the run's last step; otherwise as in evaluation. Of
                epsilons that differ between environments, the largest is used.

        Raises:
            UsageError: the observation doesn't match the spec, or the policy needs a state or a reward.
        """
        batch, observations = self._batched(observation)
        if state is _NOT_GIVEN and self.has_memory:
            raise UsageError(
                "this policy has a memory: give it a state, as in `action, state = policy(observation, state)`, which "
                "is None where an episode begins."
            )
        begins = state is None or state is _NOT_GIVEN
        count = batch or 1
        before = self._begun(explore, count) if begins else state
        firsts = np.broadcast_to(np.asarray(state is None if first is None else first, np.bool_), count)
        if reward is None and not firsts.all() and self._needs_reward(explore, observations, before):
            raise UsageError("this policy has the last reward as an input: give it, as in `reward=reward`.")
        rewards = np.broadcast_to(np.asarray(0.0 if reward is None else reward, np.float32), count)
        if explore not in self._compiled:
            threaded = compiling.is_convolutional(self._params)
            self._compiled[explore] = compiling.jit(self._function(explore), threaded=threaded)
        action, after = self._compiled[explore](
            self._params, np.int32(self._calls), observations, before, rewards, firsts
        )
        self._calls += 1
        action = np.asarray(action)
        if self._scale is not None:
            action = self._scale(action)
        action = action if batch else action[0]
        return action if state is _NOT_GIVEN else (action, after)

    def _begun(self, explore: bool, count: int) -> Tree:
        if (explore, count) not in self._initial:
            self._initial[explore, count] = jax.device_get(self.functions[explore].init(count))
        return self._initial[explore, count]

    def _function(self, explore: bool) -> Any:
        function, seed = self.functions[explore], self._seed

        def act(params, call, observation, state, reward, first):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), call), len(first))
            return function(params, keys, observation, state, reward, first)

        return act

    def _needs_reward(self, explore: bool, observation: Tree, state: Tree) -> bool:
        if explore not in self._reads_reward:
            count = len(tree.flatten(observation)[0])
            shaped = jax.eval_shape(lambda: (self._params, np.int32(0), observation, state))
            reward, first = (jax.ShapeDtypeStruct((count,), dtype) for dtype in (jnp.float32, jnp.bool_))
            traced = jax.make_jaxpr(self._function(explore))(*shaped, reward, first).jaxpr
            _, used = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
            self._reads_reward[explore] = used[-2]
        return self._reads_reward[explore]

    def _batched(self, observation: Any) -> tuple[int | None, Tree]:
        """Returns the batch size, None for a single observation, and the observations with a leading axis."""
        stated = self._spec.observations
        try:
            given = tree.map_structure_up_to(stated, lambda s, x: np.asarray(x, s.dtype), stated, observation)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the observation is not of the environment's spec, {stated}: {error}") from None
        sizes = set()
        for spec, leaf in zip(tree.flatten(stated), tree.flatten_up_to(stated, given), strict=True):
            lead = leaf.shape[: leaf.ndim - len(spec.shape)]
            if len(lead) > 1 or leaf.shape[len(lead) :] != spec.shape or lead == (0,):
                raise UsageError(
                    f"an observation of the shape {list(leaf.shape)} was given: {list(spec.shape)} is one observation, "
                    f"and [B{''.join(f', {size}' for size in spec.shape)}] are several."
                )
            sizes.add(lead)
        if len(sizes) != 1:
            raise UsageError("all fields of an observation must have the same leading axis, or none may have one.")
        (lead,) = sizes
        return (lead[0], given) if lead else (None, tree.map_structure(lambda leaf: leaf[None], given))


class Run:
    """A trained run; see `load`."""

    def __init__(self, path: str | os.PathLike[str], loaded: Loaded):
        self.path = Path(path)
        self.loaded = loaded
        self._evaluators: dict[bool, Evaluator] = {}

    @functools.cached_property
    def policy(self) -> TrainedPolicy:
        """The policy of the run's agent."""
        return TrainedPolicy(self.loaded)

    def evaluate(self, episodes: int | None = None, *, explore: bool = False) -> Score:
        """Evaluates the agent, with the same seeds as the run's own evaluations; after `best=True`, with other seeds.

        Args:
            episodes: the number of episodes; None for as many as in the run's final evaluation.
            explore: act as in training, with exploration: PPO and IMPALA then sample their actions, for example.

        Raises:
            UsageError: `episodes` is less than 1.
        """
        if episodes is not None and episodes < 1:
            raise UsageError(f"episodes is {episodes}: it must be at least 1.")
        run = self.loaded
        if explore not in self._evaluators:
            explore_at = run.steps if explore else None
            self._evaluators[explore] = Evaluator(
                run.experiment, run.spec, run.source, agent=run.agent, explore_at=explore_at
            )
        usual = run.experiment.evaluation.final_episodes
        return self._evaluators[explore].evaluate(episodes or usual, statistics=run.statistics)

    def video(self, path: str | os.PathLike[str], episodes: int = 3, *, explore: bool = False) -> Path:
        """Records a video of evaluation episodes, and returns its path.

        Args:
            path: ends in `.mp4` (H.264) or `.gif`.
            episodes: the number of episodes in the video.
            explore: act as in training.

        Raises:
            UsageError: the environment can't be rendered, the path has another ending, or a package for writing videos
                is missing.
        """
        path = Path(path)
        videos.check_video_path(path)
        experiment = self.loaded.experiment
        environment = envs.make_single(
            experiment.environment, seed=experiment.seed, evaluation=True, **experiment.options
        )
        try:
            videos.write(path, self._pictures(environment, episodes, explore), pictures.frames_per_second(environment))
        except UsageError as error:
            raise UsageError(f"{experiment.environment_name}: {error}") from error
        finally:
            environment.close()
        return path

    def _pictures(self, environment: dm_env.Environment, episodes: int, explore: bool) -> Iterator[np.ndarray]:
        for _ in range(episodes):
            timestep, state = environment.reset(), None
            yield pictures.picture(environment, timestep.observation)
            while not timestep.last():
                reward = timestep.reward or 0.0
                action, state = self.policy(timestep.observation, state, reward=reward, explore=explore)
                timestep = environment.step(action)
                yield pictures.picture(environment, timestep.observation)


def load(
    path: str | os.PathLike[str],
    *,
    builder: Builder | None = None,
    environment: str | envs.Factory | None = None,
    environment_options: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    best: bool = False,
) -> Run:
    """Loads a run's agent from its latest undamaged checkpoint, or from a given one; writes nothing.

    ```
    run = launch.load("runs/x")
    action = run.policy(observation)
    ```

    Args:
        path: the run directory, or one of its checkpoints, `RUN/checkpoints/STEPS`.
        builder: the run's agent. Needed if the run's config can't name it, because it was defined in a script.
        environment: the run's environment. Needed if the run's config can't name it.
        environment_options: options that replace the run's own, by name.
        config: settings that replace the run's, as values or as text, such as another `noise_stddev`. Only settings
            that change how the agent acts are allowed.
        best: load the parameters of the run's best evaluation, not the newest ones. Evaluations of the result then use
            other seeds than the evaluations that selected these parameters.

    Raises:
        UsageError: the path is no run directory, or has no such checkpoint; only the run's own script can make its
            agent or environment; or a setting doesn't fit the learned parameters, or has no effect on acting.
    """
    rundir, wanted = place_of(path)
    if best and wanted is not None:
        raise UsageError(f"{path} is a single checkpoint; the best parameters belong to the run, {rundir.path}.")
    described = rundir.read_config()
    evaluation = restore_config(Evaluation, described["run"]["evaluation"])
    where: Any = environment
    try:
        if where is None:
            where = restore_environment(described["environment"])
            envs.check_environment(where, **described["environment_options"])
    except UsageError as error:
        raise _unknown(path, rundir, error) from error
    options = {**described["environment_options"], **(environment_options or {})}
    envs.check_environment(where, **options)
    try:
        if builder is None:
            builder = cast(Builder, restore_builder(described))
    except UsageError as error:
        raise _unknown(path, rundir, error) from error
    acting = configure_builder(builder, config) if config else builder
    experiment = Experiment(
        acting,
        where,
        # The run's own seeds selected the best parameters, so evaluating on them again would be biased.
        seed=(described["seed"] + _OTHER_SEEDS) % 2**31 if best else described["seed"],
        environment_options=options,
        evaluation=evaluation,
    )
    instance = experiment.make_environment(1, evaluation=True)
    spec = envs.make_spec(instance)
    actions = own_actions(instance)
    instance.close()
    agent = acting.make_agent(spec)
    core = builder.make_agent(spec).core if config else agent.core
    if config and _shapes(agent.core) != _shapes(core):
        changed = ", ".join(f"{name}={value}" for name, value in config.items())
        raise UsageError(f"the run's parameters don't fit {changed}: only how the agent acts can be changed here.")
    for name in config or {}:
        others = {other: value for other, value in (config or {}).items() if other != name}
        without = configure_builder(builder, others)
        if without != acting and validation.policies_equal(without.make_agent(spec), agent, spec):
            raise UsageError(f"{name} changes nothing in how the agent acts, and only that can be changed here.")
    if best:
        template = jax.eval_shape(lambda: core.variables(core.abstract_state())[POLICY])
        kept = BestParams(rundir).restore(template)
        if kept is None:
            raise UsageError(f"{path} has no best parameters yet: they are those of its best evaluation.")
        source = FixedVariables({POLICY: kept.trees[POLICY]})
        return Run(path, Loaded(experiment, spec, agent, source, kept.info["best"]["standing"], kept.steps, actions))
    store = CheckpointStore(rundir.checkpoints)
    restored = store.restore({"learner": core.abstract_state()}, extra=False, steps=wanted)
    if restored is None:
        latest = store.latest()
        if wanted is None or latest is None:
            raise UsageError(f"{rundir.path} has no checkpoint yet.")
        raise UsageError(f"{rundir.path} has no checkpoint of {wanted} steps: its latest is of {latest}.")
    source = FixedVariables(core.variables(restored.trees["learner"]))
    statistics = restored.info["state"].get("standing")
    return Run(path, Loaded(experiment, spec, agent, source, statistics, restored.steps, actions))


def _shapes(core: LearnerCore) -> Any:
    """Returns the shapes and dtypes of the learning state."""
    return jax.tree.map(lambda x: (x.shape, x.dtype), core.abstract_state())


def _unknown(path: Any, rundir: RunDirectory, error: UsageError) -> UsageError:
    return UsageError(
        f"the agent or environment of {path}{by_another_version(rundir)} can't be loaded by its name: {error} From "
        "Python, give them to launch.load, as builder=... and environment=..."
    )
