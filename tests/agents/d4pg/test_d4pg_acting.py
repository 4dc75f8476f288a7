import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.acting.policy import Context
from acme_ext.agents.d4pg import acting
from acme_ext.agents.d4pg.learning import PolicyVariables
from acme_ext.agents.d4pg.networks import Networks
from acme_ext.ops import critics
from acme_ext.specs import Bounds

N = 20_000
BOUNDS = Bounds(np.full(2, -2.0, np.float32), np.full(2, 3.0, np.float32))
# The policy's action is the observation; an action is worth its sum, plus ten times the observation's.
NETWORKS = Networks(
    hk.transform(lambda observation: observation),
    hk.transform(lambda observation, action: 10 * observation.sum(-1) + action.sum(-1)),
    critics.expected_value(),
)
PARAMS = PolicyVariables({}, {})


def context(count):
    return Context(jax.random.split(jax.random.key(0), count), jnp.int32(0), jnp.zeros(count), jnp.zeros(count))


def act(observation, noise_stddev, with_values=False):
    policy = acting.make_policy(NETWORKS, BOUNDS, noise_stddev, with_values=with_values)
    return jax.jit(policy.apply)(PARAMS, context(len(observation)), jnp.asarray(observation, jnp.float32), ())


def test_without_noise_the_policys_action_in_the_environments_units():
    action, state, extras = act([[0.0, 0.5], [-1.0, 1.0], [-7.0, 7.0]], 0.0)
    np.testing.assert_allclose(action, [[0.5, 1.75], [-2, 3], [-2, 3]], rtol=1e-6)
    assert (state, extras) == ((), ())


def test_the_noise_is_normal_in_the_agents_units_and_each_environments_own():
    action, _, _ = act(np.zeros((N, 2)), 0.3)
    action = np.asarray(action)
    # The range is 5 long, so 0.3 of [-1, 1] is 0.75.
    np.testing.assert_allclose(action.mean(0), 0.5, atol=0.02)
    np.testing.assert_allclose(action.std(0), 0.75, rtol=0.03)
    assert abs(np.corrcoef(action.T)[0, 1]) < 0.03
    few, _, _ = act(np.zeros((3, 2)), 0.3)
    assert len(np.unique(few)) == 6


def test_noise_is_clipped_to_the_bounds():
    action = np.asarray(act(np.full((N, 2), 0.9), 0.3)[0])
    assert action.max() == 3
    assert action.min() >= -2
    # Beyond 0.1 / 0.3 standard deviations: 37%.
    np.testing.assert_allclose(np.mean(action == 3), 0.37, atol=0.02)


def test_the_actors_own_values_come_with_the_action():
    observation = np.array([[0.1, 0.2], [0.95, -0.3]])
    action, _, extras = act(observation, 0.3, with_values=True)
    canonical = (np.asarray(action) - 0.5) / 2.5
    np.testing.assert_allclose(extras["q_taken"], 10 * observation.sum(1) + canonical.sum(1), rtol=1e-5)
    np.testing.assert_allclose(extras["q_policy"], 11 * observation.sum(1), rtol=1e-5)


def test_first_priorities_by_hand():
    # |1 + 0.5 * 4 - 2| + 0.01 and, after a termination, |-1 - 5| + 0.01.
    start = {"q_taken": np.array([2.0, 5.0]), "q_policy": np.array([100.0, 100.0])}
    end = {"q_taken": np.array([100.0, 100.0]), "q_policy": np.array([4.0, 100.0])}
    found = acting.first_priority(np.array([1.0, -1.0]), np.array([0.5, 0.0]), start, end, offset=0.01)
    np.testing.assert_allclose(found, [1.01, 6.01], rtol=1e-6)
