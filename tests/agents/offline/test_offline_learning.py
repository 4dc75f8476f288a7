"""A step of the agents that learn from recorded data, by hand."""

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_steps import BATCH

from acme_ext.agents.bc import learning as bc
from acme_ext.agents.bc.config import BCConfig
from acme_ext.agents.bc.networks import Network
from acme_ext.agents.bcq import learning as bcq
from acme_ext.agents.bcq.config import BCQConfig
from acme_ext.agents.bcq.networks import Output
from acme_ext.agents.cql import learning as cql
from acme_ext.agents.cql.config import CQLConfig
from acme_ext.agents.crr import learning as crr
from acme_ext.agents.crr.config import CRRConfig
from acme_ext.agents.discrete_cql import learning as discrete_cql
from acme_ext.agents.discrete_cql.config import DiscreteCQLConfig
from acme_ext.agents.iql import learning as iql
from acme_ext.agents.iql.config import IQLConfig
from acme_ext.agents.iql.networks import Networks
from acme_ext.errors import UsageError
from acme_ext.networks import continuous
from acme_ext.ops.gaussian import Gaussian, SquashedGaussian
from acme_ext.types import Sample

KEY = jax.random.key(0)
EXAMPLE = np.zeros((1, 2), np.float32)
RATE = 0.1
WEIGHT = np.array([1.0, 0.5], np.float32)
SAMPLE = Sample(BATCH, WEIGHT)
ONLINE = {"~": {"w": jnp.array([2.0, 1.0]), "b": jnp.array([0.0, 1.0])}}
TARGET = {"~": {"w": jnp.array([1.0, 3.0]), "b": jnp.array([2.0, 1.0])}}


def parameter(name, shape=()):
    return hk.get_parameter(name, shape, init=jnp.zeros)


def critic(observation, action):
    return parameter("w") * action[:, 0] + parameter("b")


def linear(stddev):
    """A policy whose mean is a parameter, critics q = w * a + b, and a value for each of the two observations."""

    def policy(observation):
        mean = jnp.full((len(observation), 1), parameter("mean"))
        return Gaussian(mean, jnp.full_like(mean, stddev))

    def value(observation):
        return observation @ parameter("v", (2,))

    return Networks(1, *map(hk.transform, (policy, critic, value)))


def with_params(state, **params):
    """A state in which some networks have other parameters."""
    return state._replace(**{name: getattr(state, name)._replace(params=new) for name, new in params.items()})


def weighed(errors):
    return np.sum(np.mean(WEIGHT * np.square(errors), axis=1))


def test_iql_learns_values_then_the_policy_then_critics():
    config = IQLConfig(
        learning_rate=RATE, target_rate=0.25, expectile=0.7, inverse_temperature=1.0, max_weight=5.0, reward_scale=2.0
    )
    core = iql.make_core(linear(1.0), config, EXAMPLE)
    state = with_params(core.init(KEY), critics=ONLINE, value={"~": {"v": jnp.array([1.0, 2.0])}})
    after, metrics, errors = core.step(state._replace(target_critics=TARGET), SAMPLE)
    # The target critics say at least 3 and -0.5 of the actions, and the values are 1 and 2.
    assert metrics["value_loss"] == pytest.approx((0.7 * 2**2 + 0.5 * 0.3 * 2.5**2) / 2, rel=1e-5)
    np.testing.assert_allclose(after.value.params["~"]["v"], [1.1, 1.9], rtol=1e-4)
    # By the new values, the advantages are 1.9 and -2.4; exp(1.9) is above the bound.
    better = np.array([5.0, np.exp(-2.4)])
    assert metrics["weight_mean"] == pytest.approx(better.mean(), rel=1e-4)
    log_prob = -0.5 * np.array([1.0, 0.25]) - 0.5 * np.log(2 * np.pi)
    assert metrics["policy_loss"] == pytest.approx(-np.mean(WEIGHT * better * log_prob), rel=1e-4)
    # The critics' targets are 2 + 0.5 * 1.9, and -2; they say 2 and 2 of the first action, -1 and 0.5 of the second.
    expected = np.array([[2.95 - 2, -2 + 1], [2.95 - 2, -2 - 0.5]])
    assert metrics["loss"] == pytest.approx(weighed(expected), rel=1e-4)
    np.testing.assert_allclose(errors, np.abs(expected).mean(0), rtol=1e-4)
    moved = jax.tree.map(lambda new, old: 0.25 * new + 0.75 * old, after.critics.params, TARGET)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), after.target_critics, moved)


def test_crr_bootstraps_by_its_targets_and_compares_by_what_it_learns():
    config = CRRConfig(learning_rate=RATE, target_rate=0.25, num_samples=2, reward_scale=2.0)
    core = crr.make_core(linear(1e-4), config, EXAMPLE)
    state = with_params(core.init(KEY), critics=ONLINE, policy={"~": {"mean": jnp.float32(0.8)}})
    state = state._replace(target_critics=TARGET, target_policy={"~": {"mean": jnp.float32(0.4)}})
    after, metrics, errors = core.step(state, SAMPLE)
    # The target critics say at least 2.2 of the target policy's action, 0.4; so the targets are 3.1 and -2.
    expected = np.array([[3.1 - 2, -2 + 1], [3.1 - 2, -2 - 0.5]])
    assert metrics["loss"] == pytest.approx(weighed(expected), rel=1e-3)
    np.testing.assert_allclose(errors, np.abs(expected).mean(0), rtol=1e-3)
    # The critics say at least 2 and -1 of the data's actions, and 1.6 of the policy's, 0.8.
    advantage = np.array([2 - 1.6, -1 - 1.6])
    assert metrics["advantage_mean"] == pytest.approx(advantage.mean(), rel=1e-3)
    assert metrics["weight_mean"] == pytest.approx(np.exp(advantage).mean(), rel=1e-3)
    # The first action, which is better, draws the policy to it.
    assert after.policy.params["~"]["mean"] == pytest.approx(0.9, rel=1e-4)
    assert after.target_policy["~"]["mean"] == pytest.approx(0.25 * 0.9 + 0.75 * 0.4, rel=1e-4)


def cql_metrics(slope, **fields):
    """The metrics of CQL's step with a policy of -0.9 at observations with a 1 first, and of 0.9 at others."""

    def policy(observation):
        mean = jnp.arctanh(0.9) * (observation[:, 1:] - observation[:, :1]) + parameter("mean")
        return SquashedGaussian(mean, jnp.full_like(mean, 1e-4))

    networks = continuous.Networks(1, hk.transform(policy), hk.transform(critic))
    core = cql.make_core(networks, CQLConfig(penalty_samples=1, **fields), EXAMPLE)
    critics = {"~": {"w": jnp.array([slope, slope]), "b": jnp.zeros(2)}}
    state = with_params(core.init(KEY), critics=critics)._replace(target_critics=critics)
    first, second = np.repeat(BATCH.observation, 2, axis=0).reshape(2, 2, 2)
    batch = BATCH._replace(observation=first, next_observation=second, action=np.zeros((2, 1), np.float32))
    return core.step(state, Sample(batch, WEIGHT))[1]


def test_cqls_targets_have_no_entropy():
    metrics = cql_metrics(1.0, penalty_coef=0.0, init_temperature=1.0)
    # The critics say 0 of the actions and 0.9 of what follows; of it, the entropy would be some -10.
    assert metrics["loss"] == pytest.approx(weighed([[1 + 0.5 * 0.9, -1.0]] * 2) / 2, rel=1e-2)


@pytest.mark.parametrize("slope", [-1e3, 1e3])
def test_cqls_penalty_is_of_the_policys_actions_here_and_next(slope):
    none, some = (cql_metrics(slope, penalty_coef=coef)["loss"] for coef in (0.0, 1.0))
    # Of the two critics, for the better one of -0.9 and 0.9: the density and the share of a third are small beside it.
    assert some - none == pytest.approx(np.mean(WEIGHT) * 2 * 900, abs=30)


def logits(*probs):
    return jnp.log(jnp.array(probs))


def discrete(network, learning, config, params, target):
    """The metrics of a step on discrete actions, and its errors."""
    core = learning.make_core(hk.transform(network), config, EXAMPLE)
    state = core.init(KEY)._replace(params={"~": params}, target_params={"~": target})
    batch = BATCH._replace(action=np.array([1, 0], np.int32))
    return core.step(state, Sample(batch, WEIGHT))[1:]


Q = jnp.array([[1.0, 2.0, 0.0], [3.0, 1.0, 2.0]])
TARGET_Q = jnp.array([[0.0, 1.0, 5.0], [2.0, 4.0, 1.0]])


def test_bcq_leaves_out_what_its_own_network_says_is_unlikely():
    def network(observation):
        return Output(observation @ parameter("q", (2, 3)), observation @ parameter("logits", (2, 3)))

    own, others = logits([0.6, 0.1, 0.3], [0.05, 0.6, 0.35]), logits([0.1, 0.8, 0.1], [0.8, 0.1, 0.1])
    params, target = {"q": Q, "logits": own}, {"q": TARGET_Q, "logits": others}
    metrics, errors = discrete(network, bcq, BCQConfig(threshold=0.3, logits_coef=0.01), params, target)
    # Of the next actions, the last two are likely, and the last is the better one: its target is 1 + 0.5 * 1.
    np.testing.assert_allclose(errors, [2 - 1.5, 3 + 1], rtol=1e-5)
    of_data = -np.mean(WEIGHT * np.log([0.1, 0.05]))
    assert metrics["imitation_loss"] == pytest.approx(of_data, rel=1e-5)
    of_td = np.mean(WEIGHT * 0.5 * np.square(errors))
    assert metrics["loss"] == pytest.approx(of_td + of_data + 0.01 * np.mean(np.square(own)), rel=1e-5)


def test_discrete_cqls_penalty_is_weighed():
    def network(observation):
        return observation @ parameter("q", (2, 3))

    config = DiscreteCQLConfig(penalty_coef=3.0)
    metrics, errors = discrete(network, discrete_cql, config, {"q": Q}, {"q": TARGET_Q})
    np.testing.assert_allclose(errors, [2 - (1 + 0.5 * 2), 3 + 1], rtol=1e-5)
    penalty = np.mean(WEIGHT * (np.log(np.exp(Q).sum(1)) - [2, 3]))
    assert metrics["penalty"] == pytest.approx(penalty, rel=1e-5)
    assert metrics["loss"] == pytest.approx(np.mean(WEIGHT * 0.5 * np.square(errors)) + 3 * penalty, rel=1e-5)


def test_cloning_is_weighed():
    network = Network(hk.transform(lambda observation: observation @ parameter("w", (2, 1))), discrete=False)
    core = bc.make_core(network, BCConfig(), EXAMPLE)
    state = core.init(KEY)._replace(params={"~": {"w": jnp.array([[0.0], [1.0]])}})
    _, metrics, _ = core.step(state, SAMPLE)
    assert metrics["loss"] == pytest.approx((1 + 0.5 * 1.5**2) / 2, rel=1e-5)


@pytest.mark.parametrize("config", [IQLConfig, CRRConfig])
def test_the_least_stddev_is_below_the_greatest(config):
    with pytest.raises(UsageError, match=r"^min_log_stddev is 2\.0: it must be less than 2\.0"):
        config(min_log_stddev=2.0)
