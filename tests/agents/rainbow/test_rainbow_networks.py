import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import discrete

from acme_ext.agents.rainbow import networks
from acme_ext.agents.rainbow.config import RainbowConfig

KEY = jax.random.key(0)
SMALL = {"hidden_sizes": (16, 8), "image_features": 24, "num_atoms": 7, "num_quantiles": 5}
OBSERVATION = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)


def build(observation=OBSERVATION, **fields):
    config = RainbowConfig(**{**SMALL, **fields})
    network = networks.make_network(discrete(3, observation.shape[1:]), config)
    return network, network.init(KEY, observation), config


_DISTRIBUTIONS = [("none", 1), ("categorical", 7), ("quantile", 5), ("implicit", 5)]
_FEW = [(False, False, ("none", 1)), (False, True, ("quantile", 5)), (True, False, ("implicit", 5))]
_COMBINATIONS = [
    *(
        pytest.param((4,), *each, marks=() if each in _FEW else pytest.mark.release)
        for each in itertools.product([False, True], [False, True], _DISTRIBUTIONS)
    ),
    pytest.param((10, 10, 3), True, True, ("categorical", 7), marks=pytest.mark.slow),  # the defaults
    *(
        pytest.param((10, 10, 3), noisy, dueling, distribution, marks=pytest.mark.release)
        for noisy, dueling, distribution in itertools.product([False, True], [False, True], _DISTRIBUTIONS)
        if not (noisy and dueling and distribution[0] == "categorical")
    ),
]


@pytest.mark.parametrize(("shape", "noisy", "dueling", "distribution"), _COMBINATIONS)
def test_every_combination_gives_every_action_a_value(shape, noisy, dueling, distribution):
    distribution, count = distribution
    observation = np.zeros((2, *shape), np.float32)
    network, params, _ = build(observation, noisy=noisy, dueling=dueling, distribution=distribution)
    for key in (KEY, None):
        out = network.apply(params, key, observation)
        assert out.q.shape == (2, 3)
        assert out.values.shape == (2, 3, count)
        assert out.taus.shape == (2, 5)
    assert any("noisy" in name for name in params) == noisy
    # Two hidden layers, as wide as the last number of units, or one.
    width = 24 if len(shape) == 3 else 8
    assert [leaf.shape[-1] for leaf in jax.tree.leaves(params) if leaf.ndim == 2].count(width) == (1 + dueling) * (
        1 + noisy
    )


def test_values_are_the_means_of_the_distribution():
    network, params, config = build(v_min=-2.0, v_max=4.0)
    out = network.apply(params, KEY, OBSERVATION)
    probs = np.exp(out.values) / np.exp(out.values).sum(-1, keepdims=True)
    np.testing.assert_allclose(out.q, probs @ np.linspace(-2, 4, 7), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(networks.support(config), np.linspace(-2, 4, 7), rtol=1e-6)
    for distribution in ("quantile", "implicit", "none"):
        network, params, _ = build(distribution=distribution)
        out = network.apply(params, KEY, OBSERVATION)
        np.testing.assert_allclose(out.q, out.values.mean(-1), rtol=1e-5)
        np.testing.assert_allclose(networks.q_network(network).apply(params, KEY, OBSERVATION), out.q, rtol=1e-5)


def test_fractions_are_drawn_where_they_are_implicit_and_else_midpoints():
    midpoints = np.tile([0.1, 0.3, 0.5, 0.7, 0.9], (2, 1))
    network, params, _ = build(distribution="quantile")
    np.testing.assert_allclose(network.apply(params, KEY, OBSERVATION).taus, midpoints, rtol=1e-6)
    network, params, _ = build(distribution="implicit")
    np.testing.assert_allclose(network.apply(params, None, OBSERVATION).taus, midpoints, rtol=1e-6)
    drawn = network.apply(params, KEY, OBSERVATION).taus
    assert len(np.unique(drawn)) == drawn.size
    assert (network.apply(params, jax.random.key(1), OBSERVATION).taus != drawn).all()


def test_implicit_quantiles_depend_on_their_fractions_alone():
    network, params, _ = build(distribution="implicit", noisy=False)
    first = network.apply(params, None, OBSERVATION).values
    np.testing.assert_allclose(network.apply(params, None, OBSERVATION[1:]).values, first[1:], rtol=1e-5, atol=1e-6)
    assert len(np.unique(first[0, 0])) == 5
    # The same function of the fraction, however many are asked for.
    more, _, _ = build(distribution="implicit", noisy=False, num_quantiles=15)
    np.testing.assert_allclose(
        more.apply(params, None, OBSERVATION).values[..., 1::3], first, rtol=1e-4, atol=1e-5
    )  # (2 * 2 - 1) / 30 = 1 / 10, and so on


def test_noise_is_the_keys_and_without_one_there_is_none():
    network, params, _ = build()
    values = [network.apply(params, key, OBSERVATION).values for key in (KEY, jax.random.key(1), None)]
    assert all((a != b).all() for a, b in [(values[0], values[1]), (values[0], values[2])])
    still, params, _ = build(noisy=False)
    outs = [still.apply(params, key, OBSERVATION).values for key in (KEY, jax.random.key(1), None)]
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])
    assert jnp.isfinite(outs[0]).all()
