import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context
from acme_ext.agents.dqn import acting
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.replay import TransitionConfig

N = 10_000
NETWORK = hk.transform(lambda observation: observation)  # the observation is the values


def context(steps=0, count=N):
    keys = jax.random.split(jax.random.key(0), count)
    return Context(keys, jnp.int32(steps), jnp.linspace(0, 1, count), jnp.zeros(count))


def test_epsilon_falls_linearly_from_the_start_of_learning():
    replay = TransitionConfig(min_size=200)
    config = DQNConfig(epsilon_start=0.9, epsilon_end=0.1, epsilon_decay_steps=1_000, replay=replay)
    schedule = acting.epsilon_schedule(config)
    told = [float(schedule(context(steps, 1))) for steps in (0, 200, 450, 700, 1_200, 1_201, 10**9)]
    np.testing.assert_allclose(told, [0.9, 0.9, 0.7, 0.5, 0.1, 0.1, 0.1], rtol=1e-6)


def test_an_end_of_zero_is_greedy_for_good():
    schedule = acting.epsilon_schedule(DQNConfig(epsilon_start=1.0, epsilon_end=0.0, epsilon_decay_steps=10))
    policy = acting.policy_of(acting.without_keys(NETWORK), schedule)
    q = jax.random.normal(jax.random.key(1), (N, 4))
    action, state, extras = jax.jit(policy.apply)({}, context(10_000), q, ())
    np.testing.assert_array_equal(action, jnp.argmax(q, axis=1))
    assert (state, extras) == ((), ())
    assert policy.init_state(5) == ()


def test_the_beginning_is_uniform():
    schedule = acting.epsilon_schedule(DQNConfig(epsilon_start=1.0, epsilon_decay_steps=100))
    policy = acting.policy_of(acting.without_keys(NETWORK), schedule)
    action, _, _ = policy.apply({}, context(0), jnp.tile(jnp.arange(4.0), (N, 1)), ())
    np.testing.assert_allclose(np.bincount(action) / N, 0.25, atol=0.02)


def test_epsilon_may_differ_between_environments():
    policy = acting.policy_of(acting.without_keys(NETWORK), lambda context: jnp.round(context.rank))
    action, _, _ = policy.apply({}, context(), jnp.tile(jnp.arange(4.0), (N, 1)), ())
    assert (action[: N // 2] == 3).all()
    assert (action[N // 2 :] != 3).any()


def test_evaluation_has_an_epsilon_of_its_own():
    config = DQNConfig(epsilon_start=1.0, epsilon_end=1.0, evaluation_epsilon=0.5)
    policy = acting.make_policy(NETWORK, config, evaluation=True)
    action, _, _ = policy.apply({}, context(), jnp.tile(jnp.arange(4.0), (N, 1)), ())
    np.testing.assert_allclose(np.mean(np.asarray(action) != 3), 0.5 * 0.75, atol=0.02)


def test_the_values_that_an_actor_acts_by_may_come_with_its_actions():
    epsilon = lambda context: jnp.float32(1)  # noqa: E731
    policy = acting.policy_of(acting.without_keys(NETWORK), epsilon, with_values=True)
    q = jax.random.normal(jax.random.key(1), (N, 4))
    action, _, extras = policy.apply({}, context(), q, ())
    np.testing.assert_array_equal(extras.taken, np.asarray(q)[np.arange(N), np.asarray(action)])
    np.testing.assert_array_equal(extras.best, q.max(axis=1))
