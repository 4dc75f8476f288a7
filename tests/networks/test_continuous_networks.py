import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spec_of

from acme_ext.agents.sac import networks as sac
from acme_ext.agents.sac.config import SACConfig
from acme_ext.agents.td3 import networks as td3
from acme_ext.agents.td3.config import TD3Config
from acme_ext.networks import continuous

KEY = jax.random.key(0)
OBSERVATION = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
ACTION = np.random.default_rng(1).uniform(-1, 1, (5, 2)).astype(np.float32)


def apply(module, *inputs):
    network = hk.transform(lambda *inputs: module()(*inputs))
    params = network.init(KEY, *inputs)
    return network.apply(params, None, *inputs), params


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_critic_gives_a_number_or_as_many_as_asked(layer_norm):
    q, _ = apply(lambda: continuous.Critic((8, 6), layer_norm=layer_norm), OBSERVATION, ACTION)
    assert q.shape == (5,)
    logits, _ = apply(lambda: continuous.Critic((8, 6), outputs=11, layer_norm=layer_norm), OBSERVATION, ACTION)
    assert logits.shape == (5, 11)


def test_a_critic_looks_at_both():
    network = hk.transform(lambda o, a: continuous.Critic((16,))(o, a))
    params = network.init(KEY, OBSERVATION, ACTION)
    by_observation, by_action = jax.grad(lambda o, a: network.apply(params, None, o, a).sum(), (0, 1))(
        OBSERVATION, ACTION
    )
    assert (jnp.abs(by_observation).sum(0) > 0).all()
    assert (jnp.abs(by_action).sum(0) > 0).all()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_policies(layer_norm):
    action, _ = apply(lambda: continuous.DeterministicPolicy(2, (8,), layer_norm=layer_norm), 100 * OBSERVATION)
    assert action.shape == (5, 2)
    assert (jnp.abs(action) <= 1).all()
    for module in (continuous.SquashedGaussianPolicy, continuous.GaussianPolicy):
        policy, _ = apply(lambda module=module: module(2, (8,), layer_norm=layer_norm), OBSERVATION)
        assert policy.mean.shape == policy.stddev.shape == (5, 2)
        assert (policy.stddev > 0).all()


def test_a_gaussian_starts_near_its_stddev_and_stays_above_the_least():
    make = lambda: continuous.GaussianPolicy(2, (256, 256), init_stddev=0.25, min_stddev=0.01)  # noqa: E731
    policy, params = apply(make, OBSERVATION)
    np.testing.assert_allclose(policy.stddev, 0.25, rtol=0.5)
    zero, _ = apply(make, 0 * OBSERVATION)
    assert zero.mean.shape == (5, 2)
    network = hk.transform(lambda o: make()(o))
    far = network.apply(jax.tree.map(lambda leaf: leaf - 100.0, params), None, jnp.abs(OBSERVATION))
    assert (far.stddev >= 0.01).all()


def test_the_squashed_stddev_keeps_to_its_range():
    network = hk.transform(lambda o: continuous.SquashedGaussianPolicy(2, (8,), log_stddev_range=(-1.0, 1.0))(o))
    params = network.init(KEY, OBSERVATION)
    large = network.apply(jax.tree.map(lambda leaf: 1e3 * leaf, params), None, OBSERVATION).stddev
    assert (large >= np.exp(-1) * 0.999).all()
    assert (large <= np.exp(1) * 1.001).all()
    assert large.max() > large.min()


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(("agent", "config"), [(sac, SACConfig), (td3, TD3Config)])
def test_layer_norm_is_in_the_policy_and_the_critics(agent, config, layer_norm):
    networks = agent.make_networks(spec_of.continuous(2, (3,)), config(hidden_sizes=(4,), layer_norm=layer_norm))
    params = networks.policy.init(KEY, OBSERVATION), networks.critic.init(KEY, OBSERVATION, ACTION)
    assert [any("layer_norm" in name for name in each) for each in params] == [layer_norm] * 2


def test_layer_norm_makes_the_scale_of_observations_matter_little():
    torso = hk.transform(lambda x: continuous.MLP((16, 8), layer_norm=True)(x))
    params = torso.init(KEY, OBSERVATION)
    # Without biases, which are not scaled.
    params = {k: {n: leaf * (n != "b") for n, leaf in layer.items()} for k, layer in params.items()}
    np.testing.assert_allclose(
        torso.apply(params, None, 1e3 * OBSERVATION), torso.apply(params, None, OBSERVATION), atol=1e-3
    )


def test_dicts_are_joined_by_name():
    observation = {"velocity": OBSERVATION[:, 2:], "arm": OBSERVATION[:, :2]}
    network = hk.transform(lambda o: continuous.DeterministicPolicy(2, (8,))(o))
    params = network.init(KEY, OBSERVATION)
    joined = network.apply(params, None, observation)
    np.testing.assert_allclose(joined, network.apply(params, None, OBSERVATION), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(84, 84, 3), (10, 10, 4)])
def test_pictures_go_through_convolutions(shape):
    picture = np.random.default_rng(0).integers(0, 256, (5, *shape)).astype(np.uint8)
    q, params = apply(lambda: continuous.Critic((8,)), picture, ACTION)
    assert q.shape == (5,)
    assert any(leaf.ndim == 4 for leaf in jax.tree.leaves(params))
    action, _ = apply(lambda: continuous.DeterministicPolicy(2, (8,)), picture)
    assert (jnp.abs(action) < 1).all()  # unscaled pixels would saturate the tanh


def test_a_torso_of_ones_own_comes_first():
    q, params = apply(lambda: continuous.Critic((8,), torso=lambda: lambda o: o[:, :1]), OBSERVATION, ACTION)
    assert q.shape == (5,)
    assert (3, 8) in [leaf.shape for leaf in jax.tree.leaves(params)]  # one feature, and the action's two values


def test_twins_are_each_of_their_networks():
    network = hk.transform(lambda o, a: continuous.Critic((8, 6))(o, a))
    params = continuous.init_twins(network.init, KEY, OBSERVATION, ACTION)
    q = continuous.apply_twins(network.apply, params, OBSERVATION, ACTION)
    assert q.shape == (2, 5)
    for i in range(2):
        one = network.apply(jax.tree.map(lambda leaf, i=i: leaf[i], params), None, OBSERVATION, ACTION)
        np.testing.assert_allclose(q[i], one, rtol=1e-5, atol=1e-6)
    assert jnp.abs(q[0] - q[1]).min() > 0
