import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
import scipy.stats

from acme_ext.agents.mpo import losses
from acme_ext.ops.gaussian import Gaussian

# Two sampled actions [N] for each of two observations [B].
Q = jnp.array([[0.0, 3.0], [1.0, 1.0]])


def test_dual_variables_start_where_they_should():
    duals = losses.start_duals(10.0, 0.3, 1_000.0, action_size=2)
    values = duals.values()
    np.testing.assert_allclose(values.temperature, 10, rtol=1e-6)
    np.testing.assert_allclose(values.penalty_temperature, 10, rtol=1e-6)
    np.testing.assert_allclose(values.alpha_mean, [0.3, 0.3], rtol=1e-5)
    np.testing.assert_allclose(values.alpha_stddev, [1_000, 1_000], rtol=1e-6)


def test_dual_variables_are_projected_and_stay_positive():
    duals = losses.Duals(*(jnp.asarray(raw) for raw in (-500.0, 2.0, [-30.0, 1.0], [-18.0, -17.0])))
    projected = duals.projected()
    np.testing.assert_array_equal(projected.temperature, -18)
    np.testing.assert_array_equal(projected.penalty_temperature, 2)
    np.testing.assert_array_equal(projected.alpha_mean, [-18, 1])
    np.testing.assert_array_equal(projected.alpha_stddev, [-18, -17])
    for values in jax.tree.leaves(projected.values()):
        assert np.all(np.asarray(values) > 0)
    # From there, a step up is possible.
    assert jax.grad(lambda d: d.values().temperature)(projected).temperature > 0


def test_the_improved_weights_by_hand():
    # Temperature 0.5 doubles the values: softmax of (0, 2) and of (6, 2).
    up, down = 1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-4))
    weights = losses.improved_weights(Q, jnp.float32(0.5))
    np.testing.assert_allclose(weights, [[1 - up, down], [up, 1 - down]], rtol=1e-5)
    assert not jax.grad(lambda q: jnp.sum(losses.improved_weights(q, 0.5) * Q))(Q).any()


def test_the_temperatures_loss_by_hand():
    means = [np.log((1 + np.exp(2)) / 2), np.log((np.exp(6) + np.exp(2)) / 2)]
    loss = losses.temperature_loss(Q, jnp.float32(0.5), 0.1)
    np.testing.assert_allclose(loss, 0.5 * (0.1 + np.mean(means)), rtol=1e-5)
    assert not jax.grad(lambda q: losses.temperature_loss(q, 0.5, 0.1))(Q).any()


def dual(eta, q, epsilon):
    return eta * (epsilon + np.mean(np.log(np.mean(np.exp(q / eta), axis=0))))


def solve_dual(q, epsilon) -> Any:
    """What scipy finds: `x` the temperature, `fun` the dual's value there."""
    options = {"xatol": 1e-9}
    return scipy.optimize.minimize_scalar(dual, bounds=(1e-2, 50), args=(q, epsilon), method="bounded", options=options)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 0.5])
def test_the_temperature_of_two_actions_is_the_optimum_that_scipy_finds(epsilon):
    # One observation, two actions that are worth 0 and 1. At the dual's minimum the improved policy is at a divergence
    # of epsilon, so the better action's weight solves  w log 2w + (1 - w) log 2(1 - w) = epsilon, and is at the same
    # time 1 / (1 + exp(-1 / eta)).
    q = np.array([[0.0], [1.0]])
    solved = solve_dual(q, epsilon)

    def excess(w):
        return w * np.log(2 * w) + (1 - w) * np.log(2 * (1 - w)) - epsilon

    best: Any = scipy.optimize.brentq(excess, 0.5, 1 - 1e-12)
    np.testing.assert_allclose(1 / (1 + np.exp(-1 / solved.x)), best, rtol=1e-4)

    # Our loss has its minimum there, ...
    value, slope = jax.value_and_grad(lambda eta: losses.temperature_loss(q, eta, epsilon))(jnp.float32(solved.x))
    np.testing.assert_allclose(value, solved.fun, rtol=1e-5)
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    weights = losses.improved_weights(q, jnp.float32(solved.x))
    np.testing.assert_allclose(weights[:, 0], [1 - best, best], rtol=1e-4)
    np.testing.assert_allclose(losses.weights_kl(weights), epsilon, rtol=1e-3)

    # ... and descending it by the projected dual variable finds it.
    optimizer, duals = optax.adam(3e-2), losses.start_duals(10.0, 1.0, 1.0, 1)

    def descend(_, carry):
        duals, state = carry
        duals = duals.projected()
        gradient = jax.grad(lambda d: losses.temperature_loss(q, d.values().temperature, epsilon))(duals)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(duals, updates), state

    duals, _ = jax.jit(lambda carry: jax.lax.fori_loop(0, 2_000, descend, carry))((duals, optimizer.init(duals)))
    np.testing.assert_allclose(duals.values().temperature, solved.x, rtol=1e-2)


def test_the_temperature_of_many_observations_is_scipys_too():
    q = np.random.default_rng(0).normal(scale=3, size=(20, 32))
    solved = solve_dual(q, 0.1)
    slope = jax.grad(lambda eta: losses.temperature_loss(q, eta, 0.1))(jnp.float32(solved.x))
    np.testing.assert_allclose(slope, 0, atol=1e-4)
    # The bound is on the mean over observations.
    np.testing.assert_allclose(losses.weights_kl(losses.improved_weights(q, solved.x)), 0.1, rtol=1e-2)


def test_even_weights_have_no_divergence_and_a_certain_one_the_most():
    np.testing.assert_allclose(losses.weights_kl(jnp.full((4, 3), 0.25)), 0, atol=1e-6)
    np.testing.assert_allclose(losses.weights_kl(jnp.eye(4)), np.log(4), rtol=1e-6)


def test_the_cost_of_leaving_the_bounds():
    actions = jnp.array([[[0.0, 1.0], [4.0, -5.0]], [[1.0, -1.0], [0.5, -1.5]]])
    np.testing.assert_allclose(losses.bounds_cost(actions), [[0, -5], [0, -0.5]], rtol=1e-6)


POLICY = Gaussian(jnp.array([[0.0, 1.0], [0.5, -0.5]]), jnp.array([[1.0, 0.5], [0.2, 2.0]]))
TARGET = Gaussian(jnp.array([[0.5, 0.5], [0.5, 0.0]]), jnp.array([[0.5, 1.0], [0.4, 2.0]]))


def test_the_weighted_likelihood_is_scipys():
    actions = np.random.default_rng(0).normal(size=(3, 2, 2)).astype(np.float32)
    weights = np.array([[0.2, 0.5], [0.3, 0.25], [0.5, 0.25]], np.float32)
    normal: Any = scipy.stats.norm(np.asarray(POLICY.mean), np.asarray(POLICY.stddev))
    log_prob = normal.logpdf(actions).sum(-1)
    expected = np.mean(np.sum(weights * log_prob, axis=0))
    np.testing.assert_allclose(losses.weighted_log_likelihood(POLICY, actions, weights), expected, rtol=1e-5)


def test_the_bounds_divergences_by_hand():
    # ((0 - 0.5) / 0.5)**2 / 2 and 0; (0.5 / 1)**2 / 2 and (0.5 / 2)**2 / 2: means over the observations.
    np.testing.assert_allclose(losses.mean_kl(TARGET, POLICY.mean), [0.25, (0.125 + 0.03125) / 2], rtol=1e-6)
    # With the ratios 0.5, 2 and 2, 1: (r**2 - 1) / 2 - log r.
    half, double = -0.375 + np.log(2), 1.5 - np.log(2)
    np.testing.assert_allclose(losses.stddev_kl(TARGET, POLICY.stddev), [(half + double) / 2, double / 2], rtol=1e-5)


def test_both_divergences_are_those_of_normal_distributions(rlax):
    # With one of mean and standard deviation replaced at a time. rlax has brought the library along.
    normal = sys.modules["tensorflow_probability.substrates.jax.distributions"].Normal

    def kl(mean, stddev):
        return jnp.mean(normal(TARGET.mean, TARGET.stddev).kl_divergence(normal(mean, stddev)), axis=0)

    np.testing.assert_allclose(losses.mean_kl(TARGET, POLICY.mean), kl(POLICY.mean, TARGET.stddev), rtol=1e-5)
    np.testing.assert_allclose(losses.stddev_kl(TARGET, POLICY.stddev), kl(TARGET.mean, POLICY.stddev), rtol=1e-5)


def test_the_e_step_agrees_with_rlax(rlax):
    q, eta = jax.random.normal(jax.random.key(0), (20, 8)), jnp.float32(0.7)
    penalty = rlax.LagrangePenalty(alpha=eta, epsilon=jnp.float32(0.1))
    loss, weights, _ = rlax.mpo_compute_weights_and_temperature_loss(q, penalty, lambda x: x, sample_axis=0)
    np.testing.assert_allclose(losses.improved_weights(q, eta), weights, rtol=1e-5)
    np.testing.assert_allclose(losses.temperature_loss(q, eta, 0.1), jnp.mean(loss), rtol=1e-5)


def test_a_multiplier_goes_up_where_its_own_bound_is_broken():
    kl, alpha = jnp.array([0.5, 0.1]), jnp.array([2.0, 3.0])
    value, slope = jax.value_and_grad(losses.multiplier_loss, 1)(kl, alpha, 0.2)
    np.testing.assert_allclose(value, 2 * (0.2 - 0.5) + 3 * (0.2 - 0.1), rtol=1e-5)
    np.testing.assert_allclose(slope, [-0.3, 0.1], rtol=1e-5)  # descended: the first rises, the second falls
    assert not jax.grad(losses.multiplier_loss)(kl, alpha, 0.2).any()
