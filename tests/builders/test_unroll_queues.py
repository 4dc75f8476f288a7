"""What holds of all agents that learn from a queue of unrolls: IMPALA, PPO and A2C."""

import dataclasses
import itertools
from typing import Any

import acme.specs
import dm_env
import jax
import numpy as np
import pytest
from dm_env import specs

from acme_ext import envs, launch
from acme_ext import specs as specs_of
from acme_ext.acting.loop import EnvironmentLoop
from acme_ext.acting.policy import Context
from acme_ext.acting.stochastic import Behaviour
from acme_ext.acting.variables import VariableClient
from acme_ext.builders import A2C, IMPALA, PPO
from acme_ext.envs.vector import VectorEnvironment
from acme_ext.launch import runner
from acme_ext.learning import normalize
from acme_ext.learning.normalized import MAX_ABS, NormalizedParams
from acme_ext.replay.config import UnrollConfig
from acme_ext.replay.reverb.store import ReverbStore, reverb_table
from acme_ext.types import Sample
from acme_ext.utils import loggers

LENGTH, ENVS = 6, 4
UNROLLS = {"replay": UnrollConfig(length=LENGTH), "batch_size": ENVS, "hidden_sizes": (8,)}


def builder_of(name: str, **fields: Any):
    """The agent with small unrolls, and the core that its name says."""
    name, _, core = name.partition("-")
    cls = {"ppo": PPO, "a2c": A2C, "impala": IMPALA}[name]
    small = {"core_size": 5, **({"num_minibatches": 2, "num_epochs": 2} if name == "ppo" else {}), **UNROLLS, **fields}
    return cls(dataclasses.replace(cls().config, **small), core=core or None, average_rate=None)


NAMES = ("ppo", "ppo-lstm", "a2c", "a2c-gru", "impala", "impala-lstm", "impala-gru")


class Line(dm_env.Environment):
    """Episodes of 4 or 7 steps by turns, the first kind terminated and the second truncated; noise is observed, the
    reward is random. Actions are discrete, or a number in [-2, 6].
    """

    def __init__(self, seed: int, *, continuous: bool = False):
        self.rng, self.continuous = np.random.default_rng(seed), continuous
        self.episode, self.position = 0, 0
        self.actions: list[Any] = []

    def reset(self) -> dm_env.TimeStep:
        self.episode, self.position = self.episode + 1, 0
        return dm_env.restart(self.observe())

    def step(self, action: Any) -> dm_env.TimeStep:
        self.actions.append(action)
        self.position += 1
        reward = self.rng.normal()
        if self.position < (4, 7)[self.episode % 2]:
            return dm_env.transition(reward, self.observe())
        return (dm_env.termination, dm_env.truncation)[self.episode % 2](reward, self.observe())

    def observe(self) -> np.ndarray:
        return self.rng.normal(size=3).astype(np.float32)

    def observation_spec(self) -> specs.Array:
        return specs.Array((3,), np.float32)

    def action_spec(self) -> specs.Array:
        return specs.BoundedArray((1,), np.float32, -2, 6) if self.continuous else specs.DiscreteArray(4)

    def close(self) -> None:
        pass


def spec_of(environment: dm_env.Environment) -> acme.specs.EnvironmentSpec:
    return acme.specs.make_environment_spec(environment)


class Fixed:
    """Variables that only change when told to."""

    def __init__(self, variables: dict[str, Any]):
        self.variables = variables

    def get_variables(self, names):
        return [self.variables[name] for name in names]


def collect(builder, state, core, batches: int, *, continuous: bool = False):
    """Acts by the parameters of a learner's state until the queue gives so many batches; returns them, decoded, and the
    environments.
    """
    environments = [Line(seed, continuous=continuous) for seed in range(ENVS)]
    environment = envs.canonical_actions(VectorEnvironment(environments))
    spec = envs.make_spec(environment)
    replay = dataclasses.replace(builder.make_agent(spec).replay, max_size=100)
    server = ReverbStore(replay)
    writer = replay.writer(server.table.sink(), ENVS)
    variables = VariableClient(Fixed(core.variables(state)))  # type: ignore[arg-type]
    actor = builder.make_agent(spec).make_actor(variables, jax.random.key(7), num_envs=ENVS, writer=writer)
    loop = EnvironmentLoop(environment, actor)
    while writer.inserted < batches * ENVS:
        loop.step()
    writer.wait()
    dataset = server.table.batches()
    found = [jax.tree.map(np.asarray, jax.jit(replay.decode)(next(dataset).rows)) for _ in range(batches)]
    dataset.close(wake=True)
    writer.close()
    server.close()
    return found, environments


def state_of(builder, spec):
    """A learner's state in which the observations' moments, where there are any, are not those of the start."""
    core = builder.make_agent(spec).core
    state = core.init(jax.random.key(3))
    if hasattr(state, "observations"):
        mean = jax.tree.map(lambda x: x + 0.5, state.observations.mean)
        variance = jax.tree.map(lambda x: 4.0 * x, state.observations.variance)
        inner = state.core._replace(steps=state.core.steps + 11)
        return core, state._replace(core=inner, observations=state.observations._replace(mean=mean, variance=variance))
    return core, state._replace(steps=state.steps + 11)


def log_probs(builder, core, state, spec, unrolls) -> np.ndarray:
    """The learner's log-probabilities of the actions that were taken, `[T, B]`."""
    variables = core.variables(state)["policy"]
    network = builder.make_networks(spec)
    inputs = network.inputs_of(unrolls)
    if isinstance(variables, NormalizedParams):
        seen = normalize.normalize_fields(
            variables.observations, inputs.observation, specs_of.zeros(spec.observations, 1), MAX_ABS
        )
        inputs, variables = inputs._replace(observation=seen), variables.policy
    output, _ = network.unroll(variables.params, inputs, network.core_state_of(unrolls))
    return jax.tree.map(lambda x: x[:-1], output.policy).log_prob(unrolls.action)


@pytest.mark.parametrize(
    ("name", "continuous"),
    [
        ("ppo", False),
        pytest.param("a2c", False, marks=pytest.mark.release),
        pytest.param("impala", False, marks=pytest.mark.slow),
        pytest.param("impala-lstm", False, marks=pytest.mark.release),
        pytest.param("ppo", True, marks=pytest.mark.release),
        *(pytest.param(name, False, marks=pytest.mark.release) for name in ("ppo-lstm", "a2c-gru", "impala-gru")),
        *(pytest.param(name, True, marks=pytest.mark.release) for name in ("ppo-lstm", "a2c")),
    ],
)
def test_data_of_the_learners_own_parameters_is_on_policy(name, continuous):
    """Through actor, writer, queue and decoding, and over the ends of episodes, the probabilities that were stored with
    the actions are those that the learner computes for them, and so is the version.
    """
    builder = builder_of(name)
    spec = envs.make_spec(envs.canonical_actions(VectorEnvironment([Line(0, continuous=continuous)])))
    core, state = state_of(builder, spec)
    batches, environments = collect(builder, state, core, 4, continuous=continuous)
    ended = 0
    for unrolls in batches:
        computed, mask = log_probs(builder, core, state, spec, unrolls), unrolls.mask
        np.testing.assert_allclose(mask * computed, mask * unrolls.extras.log_prob, rtol=1e-4, atol=1e-5)
        assert np.all(unrolls.extras.learner_steps == 11)
        ended += np.sum(mask == 0)
        _, metrics, errors = jax.jit(core.step)(state, Sample(unrolls, np.ones(ENVS, np.float32)))
        assert errors is None
        assert metrics["lag"] == metrics["lag_max"] == 0
    assert ended >= ENVS
    # Every action that was taken is there, once and in order: unrolls end where the next begin.
    for env, environment in enumerate(environments):
        taken = np.concatenate([unrolls.action[:, env][unrolls.mask[:, env] > 0] for unrolls in batches])
        # Canonical actions became those of the environment, clipped at its bounds.
        given = np.clip(2 + 4 * taken, -2, 6) if continuous else taken
        np.testing.assert_allclose(given, environment.actions[: len(taken)], rtol=1e-5, atol=1e-5)
        for before, after in itertools.pairwise(batches):
            np.testing.assert_array_equal(before.observation[-1, env], after.observation[0, env])
    if continuous:
        assert np.any(np.abs(np.concatenate([unrolls.action for unrolls in batches])) > 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_queue_is_the_configs(name):
    builder = builder_of(name, replay=UnrollConfig(max_size=13, length=LENGTH), discount=0.5)
    replay = builder.make_agent(spec_of(Line(0))).replay
    assert replay.fifo
    assert not replay.prioritized
    assert (replay.batch_size, replay.length, replay.period) == (ENVS, LENGTH, LENGTH)
    assert (replay.max_size, replay.discount, replay.cross_episodes) == (13, 0.5, True)
    info = reverb_table(replay).info
    assert (info.max_size, info.max_times_sampled) == (13, 1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "ppo" else pytest.mark.release) for name in NAMES]
)
def test_evaluation_takes_the_likeliest_action(name):
    builder, spec = builder_of(name), spec_of(Line(0))
    core, state = state_of(builder, spec)
    policy = builder.make_agent(spec).evaluation_policy
    observation = np.tile(np.float32([1.0, -2.0, 0.5]), (50, 1))
    keys = jax.random.split(jax.random.key(0), 50)
    context = Context(keys, np.int32(0), np.zeros(50, np.float32), np.zeros(50, np.float32))
    variables = core.variables(state)["policy"]
    action, _, extras = policy.apply(variables, context, observation, policy.init_state(50))
    assert extras == ()
    assert len(np.unique(action)) == 1
    sampling = builder.make_agent(spec).policy
    sampled, _, extras = sampling.apply(variables, context, observation, sampling.init_state(50))
    assert len(np.unique(sampled)) > 1
    assert isinstance(extras, Behaviour)
    chosen = np.asarray(sampled) == action[0]
    # All rows see the same, and differ by rounding alone.
    np.testing.assert_allclose(extras.log_prob[chosen], extras.log_prob.max(), rtol=1e-5)


def run(builder, folder, environment="bsuite:catch/0", **fields):
    experiment = launch.Experiment(
        builder,
        environment,
        evaluation=fields.pop("evaluation", launch.Evaluation(every=0, final_episodes=20)),
        run_dir=str(folder),
        **{"num_envs": 8, **fields},
    )
    return launch.run(experiment, quiet=True)


@pytest.mark.usefixtures("no_figures")
@pytest.mark.slow
def test_a_run_repeats_to_the_last_digit_and_is_never_off_policy(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_TICK_S", 0.0)
    fields = {"replay": UnrollConfig(length=5, max_size=3), "batch_size": 3, "num_minibatches": 3, "num_epochs": 2}
    logs = []
    for name, seed in (("a", 0), ("b", 0), ("other", 1)):
        result = run(builder_of("ppo", **fields), tmp_path / name, num_envs=3, steps=200, seed=seed)
        # 15 steps of the environments' timelines a batch, some of which are resets, and what was left at the end.
        assert result.learner_steps >= 200 // 15
        rows = {label: loggers.read_csv(tmp_path / name / f"logs/{label}.csv") for label in ("actor", "learner")}
        logs.append({(a, b): list(v) for a, log in rows.items() for b, v in log.items() if b != "wall_time_s"})
        assert set(logs[-1]["learner", "lag_max"]) == {0}
    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


@pytest.mark.slow
@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    ("builder", "steps"),
    [
        (PPO(), 16_000),
        pytest.param(A2C(), 40_000, marks=pytest.mark.release),
        pytest.param(IMPALA(), 40_000, marks=pytest.mark.release),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_it_learns_catch(tmp_path, builder, steps):
    result = run(builder, tmp_path, steps=steps, evaluation=launch.Evaluation(every=0, final_episodes=50))
    assert result.score is not None
    assert result.score.returns.mean() >= 0.8
