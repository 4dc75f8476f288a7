import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context
from acme_ext.acting.values import ActorValues, first_error
from acme_ext.agents.d4pg import acting
from acme_ext.agents.d4pg.config import DPGConfig
from acme_ext.agents.d4pg.learning import PolicyParams
from acme_ext.agents.d4pg.networks import Networks
from acme_ext.ops import critics
from acme_ext.replay.config import TransitionConfig

N = 20_000
# The policy's action is the observation; an action is worth its sum, plus ten times the observation's.
NETWORKS = Networks(
    2,
    hk.transform(lambda observation: observation),
    hk.transform(lambda observation, action: 10 * observation.sum(-1) + action.sum(-1)),
    critics.expected_value(),
)
PARAMS = PolicyParams({}, {})


def context(count):
    return Context(jax.random.split(jax.random.key(0), count), jnp.int32(0), jnp.zeros(count), jnp.zeros(count))


def act(observation, noise_stddev, with_values=False):
    replay = TransitionConfig(prioritized=with_values)
    policy = acting.make_policy(NETWORKS, DPGConfig(noise_stddev=noise_stddev, replay=replay), evaluation=False)
    return jax.jit(policy.apply)(PARAMS, context(len(observation)), jnp.asarray(observation, jnp.float32), ())


def test_without_noise_the_policys_action():
    action, state, extras = act([[0.0, 0.5], [-1.0, 1.0], [-7.0, 7.0]], 0.0)
    np.testing.assert_allclose(action, [[0, 0.5], [-1, 1], [-1, 1]], rtol=1e-6)
    assert (state, extras) == ((), ())


def test_the_noise_is_normal_and_each_environments_own():
    action, _, _ = act(np.zeros((N, 2)), 0.3)
    action = np.asarray(action)
    np.testing.assert_allclose(action.mean(0), 0.0, atol=0.01)
    np.testing.assert_allclose(action.std(0), 0.3, rtol=0.03)
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.03
    few, _, _ = act(np.zeros((3, 2)), 0.3)
    assert len(np.unique(few)) == 6


def test_noise_is_clipped_to_the_bounds():
    action = np.asarray(act(np.full((N, 2), 0.9), 0.3)[0])
    assert action.max() == 1
    assert action.min() >= -1
    # Beyond 0.1 / 0.3 standard deviations: 37%.
    np.testing.assert_allclose(np.mean(action == 1), 0.37, atol=0.02)


def test_the_actors_own_values_come_with_the_action():
    observation = np.array([[0.1, 0.2], [0.95, -0.3]])
    action, _, extras = act(observation, 0.3, with_values=True)
    np.testing.assert_allclose(extras.taken, 10 * observation.sum(1) + np.asarray(action).sum(1), rtol=1e-5)
    np.testing.assert_allclose(extras.best, 11 * observation.sum(1), rtol=1e-5)


def test_first_priorities_by_hand():
    # |1 + 0.5 * 4 - 2| and, after a termination, |-1 - 5|.
    start = ActorValues(taken=np.array([2.0, 5.0]), best=np.array([100.0, 100.0]))
    end = ActorValues(taken=np.array([100.0, 100.0]), best=np.array([4.0, 100.0]))
    found = first_error(np.array([1.0, -1.0]), np.array([0.5, 0.0]), start, end)
    np.testing.assert_allclose(found, [1.0, 6.0], rtol=1e-6)
