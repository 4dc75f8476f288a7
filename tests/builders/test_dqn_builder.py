import dataclasses
from typing import Any

import acme.specs
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from spec_of import discrete, policy_of

from acme_ext.acting.policy import Context
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders import DQN, base
from acme_ext.replay.config import TransitionConfig
from acme_ext.replay.limits import RateLimit
from acme_ext.types import Sample, Transition

_VECTOR = specs.Array((3,), np.float32)
_PIXELS = specs.BoundedArray((36, 36, 2), np.uint8, 0, 255)


def spec_of(observation: specs.Array = _VECTOR, actions: Any = None) -> acme.specs.EnvironmentSpec:
    return acme.specs.EnvironmentSpec(
        observations=observation,
        actions=actions or specs.DiscreteArray(4),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0, 1),
    )


def constant_network(spec: Any, config: DQNConfig, torso: Any = None) -> hk.Transformed:
    """Prefers the actions in their order, whatever is observed."""
    return hk.transform(
        lambda observation: jnp.tile(jnp.arange(1.0, spec.actions.num_values + 1), (observation.shape[0], 1))
    )


def actions(builder: DQN, *, evaluation: bool, steps: int = 0, batch: int = 4_000) -> np.ndarray:
    """Returns the actions that a policy takes in many environments."""
    policy = policy_of(builder, spec_of(), evaluation=evaluation)
    core = builder.make_agent(spec_of()).core
    params = core.variables(core.init(jax.random.key(0)))["policy"]
    context = Context(jax.random.split(jax.random.key(1), batch), jnp.int32(steps), jnp.zeros(batch), jnp.zeros(batch))
    return np.asarray(jax.jit(policy.apply)(params, context, jnp.zeros((batch, 3)), policy.init_state(batch))[0])


def shares(taken: np.ndarray) -> np.ndarray:
    return np.bincount(taken, minlength=4) / len(taken)


def test_an_evaluation_epsilon_of_zero_is_greedy():
    assert np.all(actions(DQN(DQNConfig(evaluation_epsilon=0.0), network=constant_network), evaluation=True) == 3)


def test_an_evaluation_explores_by_its_own_epsilon_alone():
    builder = DQN(DQNConfig(evaluation_epsilon=0.4, epsilon_start=1.0, epsilon_end=1.0), network=constant_network)
    np.testing.assert_allclose(shares(actions(builder, evaluation=True)), [0.1, 0.1, 0.1, 0.7], atol=0.03)


@pytest.mark.parametrize(("steps", "epsilon"), [(0, 0.8), (150, 0.5), (200, 0.2), (10_000, 0.2)])
def test_training_explores_by_the_runs_steps(steps, epsilon):
    replay = TransitionConfig(min_size=100)
    config = DQNConfig(epsilon_start=0.8, epsilon_end=0.2, epsilon_decay_steps=100, replay=replay)
    taken = shares(actions(DQN(config, network=constant_network), evaluation=False, steps=steps))
    np.testing.assert_allclose(taken, [epsilon / 4] * 3 + [1 - 0.75 * epsilon], atol=0.03)


@pytest.mark.parametrize("prioritized", [False, True])
def test_the_replay_is_the_configs(prioritized):
    config = DQNConfig(
        batch_size=7,
        discount=0.5,
        max_abs_reward=1.5,
        replay=TransitionConfig(
            n_step=2,
            max_size=30,
            min_size=20,
            samples_per_insert=3.0,
            priority_exponent=0.25,
            priority_offset=0.5,
            write_burst=9,
            prioritized=prioritized,
            importance_exponent=0.4,
            importance_exponent_end=1.0,
            importance_anneal_steps=10,
        ),
    )
    replay = DQN(config).make_agent(spec_of()).replay
    assert replay.limit == RateLimit(3.0, 20)
    assert replay.prioritized == prioritized
    assert (replay.batch_size, replay.n_step, replay.discount, replay.max_size, replay.max_abs_reward) == (
        7,
        2,
        0.5,
        30,
        1.5,
    )
    assert (replay.priority_exponent, replay.priority_offset, replay.burst) == (0.25, 0.5, 9)
    assert replay.needs_largest_error == prioritized
    betas = [float(replay.importance_exponent_at(jnp.int32(steps))) for steps in (0, 5, 10, 1_000)]
    np.testing.assert_allclose(betas, [0.4, 0.7, 1.0, 1.0], rtol=1e-6)


def batch_of(spec: acme.specs.EnvironmentSpec, size: int) -> Sample:
    rng = np.random.default_rng(0)
    observation, following = rng.integers(0, 2, (2, size, *spec.observations.shape)).astype(spec.observations.dtype)
    action, reward = rng.integers(0, 4, size).astype(np.int32), rng.normal(size=size).astype(np.float32)
    return Sample(Transition(observation, action, reward, np.full(size, 0.9, np.float32), following), np.ones(size))


def test_the_parts_fit_together():
    agent = DQN(DQNConfig(replay=TransitionConfig(prioritized=True), hidden_sizes=(5,))).make_agent(spec_of())
    core, policy = agent.core, agent.policy
    state = core.init(jax.random.key(0))
    after, metrics, errors = jax.jit(core.step)(state, batch_of(spec_of(), 6))
    assert int(after.core.core.core.steps) == 1  # within the priorities', the average's and the statistics'
    assert np.isfinite(metrics["loss"])
    assert errors.shape == (6,)
    assert np.all(errors >= 0)
    context = Context(jax.random.split(jax.random.key(1), 2), jnp.int32(0), jnp.zeros(2), jnp.zeros(2))
    action, _, extras = policy.apply(core.variables(after)["policy"], context, jnp.zeros((2, 3)), ())
    assert action.shape == (2,)
    # A new transition's priority is by the largest error that there was, and at least 1.
    np.testing.assert_allclose(extras.largest_error, max(1.0, float(errors.max())))


def test_without_prioritized_replay_nothing_is_stored_with_an_action():
    builder = DQN()
    core = builder.make_agent(spec_of()).core
    state = core.init(jax.random.key(0))
    context = Context(jax.random.split(jax.random.key(1), 2), jnp.int32(0), jnp.zeros(2), jnp.zeros(2))
    for evaluation in (False, True):
        policy = policy_of(builder, spec_of(), evaluation=evaluation)
        assert policy.apply(core.variables(state)["policy"], context, jnp.zeros((2, 3)), ())[2] == ()


def test_a_network_of_ones_own_serves_acting_and_learning():
    builder = DQN(network=constant_network)
    state = builder.make_agent(spec_of()).core.init(jax.random.key(0))
    assert not jax.tree.leaves(state.core.core.params)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the config's fields that were read since."""
    read: set[str] = set()
    names = {field.name for field in dataclasses.fields(DQNConfig)}

    def record(self: Any, name: str) -> Any:
        if name in names:
            read.add(name)
        return object.__getattribute__(self, name)

    monkeypatch.setattr(DQNConfig, "__getattribute__", record)
    return read


def test_every_field_of_the_config_is_read(recorded):
    configs = [DQNConfig(dueling=True), DQNConfig(target_period=2, optimizer="rmsprop")]
    recorded.clear()
    for config, observation in zip(configs, (_VECTOR, _PIXELS), strict=True):
        builder, spec = DQN(config), spec_of(observation)
        core = builder.make_agent(spec).core
        state = jax.eval_shape(core.init, jax.random.key(0))
        jax.eval_shape(core.step, state, batch_of(spec, 2))
        for evaluation in (False, True):
            policy = policy_of(builder, spec, evaluation=evaluation)
            context = Context(jax.random.split(jax.random.key(1), 1), jnp.int32(0), jnp.zeros(1), jnp.zeros(1))
            variables = jax.eval_shape(core.variables, state)["policy"]
            jax.eval_shape(policy.apply, variables, context, jnp.zeros((1, *observation.shape), observation.dtype), ())
    assert recorded == {field.name for field in dataclasses.fields(DQNConfig)}


def test_the_learner_of_a_prioritized_agent_has_the_replays_beta(monkeypatch):
    replay = TransitionConfig(
        prioritized=True,
        priority_offset=0.5,
        importance_exponent=0.4,
        importance_exponent_end=1.0,
        importance_anneal_steps=10,
    )
    agent, made = DQN(DQNConfig(replay=replay)).make_agent(discrete(2)), {}
    monkeypatch.setattr(base, "make_updater", lambda *given: given)
    monkeypatch.setattr(base, "Learner", lambda *_, **given: made.update(given))
    agent.make_learner(iter(()), ["table"], jax.random.key(0))
    assert made["priorities"] == (["table"], None)
    assert float(made["importance_exponent"](jnp.int32(5))) == pytest.approx(0.7)
