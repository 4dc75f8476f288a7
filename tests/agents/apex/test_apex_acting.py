import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context
from acme_ext.acting.values import ActorValues, first_error
from acme_ext.agents.apex import acting
from acme_ext.agents.apex.config import ApexConfig

N = 10_000
NETWORK = hk.transform(lambda observation: observation)  # the observation is the values


def act(q, rank, steps=10**6, **fields):
    policy = acting.make_policy(NETWORK, ApexConfig(**fields), evaluation=False)
    count = len(rank)
    context = Context(jax.random.split(jax.random.key(0), count), jnp.int32(steps), jnp.asarray(rank), jnp.zeros(count))
    return jax.jit(policy.apply)({}, context, jnp.asarray(q), policy.init_state(count))


def test_each_rank_has_its_epsilon_at_last():
    rank = np.repeat(np.float32([0.0, 1 / 3, 1.0]), N)
    q = np.tile(np.arange(4.0, dtype=np.float32), (3 * N, 1))
    action, _, _ = act(q, rank)
    explored = np.mean(np.asarray(action).reshape(3, N) != 3, axis=1)
    # A random action is another than the best three times out of four: 0.75 * 0.4, 0.75 * 0.16, 0.75 * 0.4**4.
    np.testing.assert_allclose(explored, [0.3, 0.12, 0.0192], atol=0.01)
    action, _, _ = act(q, rank, steps=0)
    np.testing.assert_allclose(np.mean(np.asarray(action).reshape(3, N) != 3, axis=1), 0.75, atol=0.02)


def test_base_and_steepness_are_the_configs():
    rank = np.repeat(np.float32([0.0, 1.0]), N)
    action, _, _ = act(np.tile(np.float32([0, 1]), (2 * N, 1)), rank, epsilon_base=0.5, epsilon_steepness=1.0)
    explored = np.mean(np.asarray(action).reshape(2, N) != 1, axis=1)
    np.testing.assert_allclose(explored, [0.25, 0.125], atol=0.02)


def test_an_action_comes_with_its_value_and_the_best():
    q = np.float32([[1.0, 7.0, 3.0], [5.0, -2.0, 4.0], [0.0, 0.5, 2.0]] * 50)
    action, state, extras = act(q, np.zeros(150, np.float32), epsilon_base=1.0)
    assert state == ()
    np.testing.assert_array_equal(extras.best, [7.0, 5.0, 2.0] * 50)
    np.testing.assert_array_equal(extras.taken, q[np.arange(150), np.asarray(action)])
    assert len(set(np.asarray(action).tolist())) == 3  # not the best alone


def test_first_priorities_by_hand():
    extras_tm1 = ActorValues(taken=np.float32([1.0, 2.0, 0.5]), best=np.float32([9.0, 9.0, 9.0]))
    extras_t = ActorValues(taken=np.float32([-9.0, -9.0, -9.0]), best=np.float32([3.0, 4.0, 8.0]))
    reward, discount = np.float32([1.0, -1.0, 0.25]), np.float32([0.5, 0.25, 0.0])
    # 1 + 0.5 * 3 - 1 = 1.5; -1 + 0.25 * 4 - 2 = -2; 0.25 + 0 - 0.5 = -0.25, for it ended.
    priority = first_error(reward, discount, extras_tm1, extras_t)
    np.testing.assert_allclose(priority, [1.5, 2.0, 0.25], rtol=1e-6)
