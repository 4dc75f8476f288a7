import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.acting.exploration import (
    epsilon_greedy,
    epsilon_greedy_probabilities,
    ladder,
    ladder_epsilon,
    normal_noise,
    other_keys,
    uniform_noise,
)
from acme_ext.acting.policy import Context
from acme_ext.agents.apex.config import ApexConfig
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.replay.config import SequenceConfig, TransitionConfig

N = 10_000
choose = jax.jit(epsilon_greedy)


def keys(seed=0):
    return jax.random.split(jax.random.key(seed), N)


def shares(actions, count):
    return np.bincount(np.asarray(actions), minlength=count) / N


def test_zero_means_never_random():
    q = jax.random.normal(jax.random.key(1), (N, 6))
    np.testing.assert_array_equal(choose(keys(), q, 0.0), np.argmax(q, axis=1))


def test_one_means_uniform():
    actions = choose(keys(), jnp.tile(jnp.arange(5.0), (N, 1)), 1.0)
    assert actions.dtype == jnp.int32
    np.testing.assert_allclose(shares(actions, 5), 0.2, atol=0.02)  # five standard deviations


def test_between_the_greedy_action_is_random_too():
    # With epsilon 0.4 over 4 actions each random one has 0.1, and the best 0.6 + 0.1.
    actions = choose(keys(), jnp.tile(jnp.array([0.0, 2.0, 1.0, -1.0]), (N, 1)), 0.4)
    np.testing.assert_allclose(shares(actions, 4), [0.1, 0.7, 0.1, 0.1], atol=0.02)


def test_ties_are_broken_uniformly():
    actions = choose(keys(), jnp.tile(jnp.array([3.0, -1.0, 3.0, 3.0]), (N, 1)), 0.0)
    np.testing.assert_allclose(shares(actions, 4), [1 / 3, 0, 1 / 3, 1 / 3], atol=0.02)


def test_each_environment_may_have_its_own():
    epsilon = jnp.where(jnp.arange(N) % 2 == 0, 0.0, 1.0)
    actions = np.asarray(choose(keys(), jnp.tile(jnp.arange(4.0), (N, 1)), epsilon))
    assert (actions[::2] == 3).all()
    np.testing.assert_allclose(np.mean(actions[1::2] == 3), 0.25, atol=0.04)


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_a_row_depends_on_its_own_key_alone(epsilon):
    q = jax.random.normal(jax.random.key(1), (N, 6))
    whole = choose(keys(), q, epsilon)
    np.testing.assert_array_equal(whole[:100], epsilon_greedy(keys()[:100], q[:100], epsilon))


def test_the_ladder_of_horgan_et_al():
    # Rank i / (N - 1) of N = 8: 0.4**(1 + 7 i / 7), so each rung has 0.4 of the one before.
    epsilon = ladder_epsilon(jnp.linspace(0, 1, 8))
    np.testing.assert_allclose(epsilon[:3], [0.4, 0.16, 0.064], rtol=1e-5)
    np.testing.assert_allclose(epsilon[-1], 0.4**8, rtol=1e-5)


def test_a_lone_environment_stands_on_the_ladders_first_rung():
    np.testing.assert_allclose(ladder_epsilon(jnp.zeros(1)), [0.4], rtol=1e-6)


def test_a_ladder_may_be_of_another_base_and_steepness():
    np.testing.assert_allclose(ladder_epsilon(jnp.array([0.0, 1.0]), 0.5, 2.0), [0.5, 0.125], rtol=1e-6)


@pytest.mark.parametrize(
    "config",
    [
        ApexConfig(epsilon_decay_steps=100, replay=TransitionConfig(min_size=50)),
        R2D2Config(epsilon_decay_steps=100, replay=SequenceConfig(min_size=5, period=10)),
    ],
)
def test_every_epsilon_falls_to_its_own_from_the_start_of_learning_on(config):
    def of(config, steps, *, evaluation=False):
        context = Context(None, jnp.int32(steps), jnp.array([0.0, 1.0]), jnp.zeros(2))
        return ladder(config, evaluation=evaluation)(context)

    least = np.array([0.4, 0.4**4])
    for steps, left in ((0, 1.0), (50, 1.0), (75, 0.75), (150, 0.0), (10**6, 0.0)):
        np.testing.assert_allclose(of(config, steps), least + (1 - least) * left, rtol=1e-5)
    assert of(config, 0, evaluation=True) == 0
    assert of(dataclasses.replace(config, evaluation_epsilon=0.25), 0, evaluation=True) == 0.25
    np.testing.assert_allclose(of(dataclasses.replace(config, epsilon_decay_steps=0), 0), least, rtol=1e-5)


def test_normal_noise_is_standard_and_each_rows_own():
    noise = np.asarray(normal_noise(keys(), 2))
    np.testing.assert_allclose(noise.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(noise.std(0), 1, atol=0.04)
    np.testing.assert_allclose(np.corrcoef(noise.T)[0, 1], 0, atol=0.05)
    np.testing.assert_allclose(normal_noise(keys()[7:9], 2), noise[7:9], rtol=1e-5)


def test_uniform_noise_covers_from_minus_one_to_one():
    noise = np.asarray(uniform_noise(keys(), 2))
    assert (np.abs(noise) <= 1).all()
    np.testing.assert_allclose(np.quantile(noise, [0.0, 0.25, 0.5, 0.75, 1.0]), [-1, -0.5, 0, 0.5, 1], atol=0.04)
    np.testing.assert_allclose(uniform_noise(keys()[7:9], 2), noise[7:9], rtol=1e-5, atol=1e-6)


def test_epsilon_greedy_probabilities_by_hand():
    q = jnp.array([[1.0, 3.0, 2.0], [5.0, 5.0, 0.0]])
    got = epsilon_greedy_probabilities(q, jnp.array([0.3, 0.0]))
    np.testing.assert_allclose(got, [[0.1, 0.8, 0.1], [0.5, 0.5, 0.0]], rtol=1e-6)


def test_other_keys_are_none_that_a_choice_uses():
    keys = jax.random.split(jax.random.key(0), 3)
    used = jax.random.key_data(jax.vmap(jax.random.split)(keys)).reshape(-1, 2).tolist()
    others = [jax.random.key_data(other_keys(keys, number)).tolist() for number in range(3)]
    seen = used + [key for of_number in others for key in of_number]
    assert len({tuple(key) for key in seen}) == len(seen) == 15
