import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.ops.gaussian import Gaussian, SquashedGaussian

LOG_2PI = np.log(2 * np.pi)


def test_a_gaussian_by_hand():
    policy = Gaussian(jnp.array([[1.0, -1.0]]), jnp.array([[2.0, 0.5]]))
    np.testing.assert_allclose(policy.mode(), [[1, -1]])
    np.testing.assert_allclose(policy.sample(jnp.array([[0.5, -2.0]])), [[2, -2]])
    # -(1/2)(0.5**2 + 2**2) - log(2 * 0.5) - log(2 pi)
    np.testing.assert_allclose(policy.log_prob(jnp.array([[2.0, -2.0]])), [-2.125 - LOG_2PI], rtol=1e-6)
    # Each dimension has log(stddev) + (1 + log(2 pi)) / 2, and the logarithms cancel.
    np.testing.assert_allclose(policy.entropy(), [1 + LOG_2PI], rtol=1e-6)


def test_a_squashed_gaussian_by_hand():
    policy = SquashedGaussian(jnp.array([[0.5, 0.0]]), jnp.array([[2.0, 0.5]]))
    np.testing.assert_allclose(policy.mode(), [[np.tanh(0.5), 0]], rtol=1e-6)
    action, log_prob = policy.sample_with_log_prob(jnp.array([[-1.0, 0.6]]))
    u = np.array([-1.5, 0.3])
    np.testing.assert_allclose(action, [np.tanh(u)], rtol=1e-6)
    np.testing.assert_allclose(policy.sample(jnp.array([[-1.0, 0.6]])), action)
    normal = -(1 + 0.36) / 2 - np.log(2.0 * 0.5) - LOG_2PI
    np.testing.assert_allclose(log_prob, [normal - np.sum(np.log(1 - np.tanh(u) ** 2))], rtol=1e-5)


@pytest.mark.parametrize(("mean", "stddev"), [(0.0, 1.0), (1.5, 0.4), (-0.3, 2.0)])
def test_the_squashed_density_integrates_to_one(mean, stddev):
    policy = SquashedGaussian(jnp.array([mean]), jnp.array([stddev]))
    # Over the pre-image: the density's integral over the actions is that of p(tanh u) tanh'(u) over u.
    u = np.linspace(mean - 8 * stddev, mean + 8 * stddev, 20_001)
    _, log_prob = policy.sample_with_log_prob(jnp.asarray((u - mean) / stddev)[:, None])
    density = np.exp(np.asarray(log_prob, np.float64)) * (1 - np.tanh(u) ** 2)
    np.testing.assert_allclose(np.sum(density) * (u[1] - u[0]), 1.0, rtol=1e-4)


@pytest.mark.parametrize("mean", [-40.0, -9.5, 9.5, 40.0])
def test_the_log_probability_stays_exact_where_tanh_rounds_to_one(mean):
    def log_prob(mean):
        return SquashedGaussian(mean, jnp.ones(1)).sample_with_log_prob(jnp.zeros(1))[1]

    # log(1 - tanh(u)**2) is log 4 - 2|u| out there, and its slope -2 sign(u).
    value, slope = jax.value_and_grad(log_prob)(jnp.full(1, mean))
    np.testing.assert_allclose(value, -0.5 * LOG_2PI - np.log(4) + 2 * abs(mean), rtol=1e-6)
    np.testing.assert_allclose(slope, [2 * np.sign(mean)], rtol=1e-6)


def test_samples_are_distributed_as_they_say():
    policy = Gaussian(jnp.array([1.0, -2.0]), jnp.array([0.5, 3.0]))
    samples = policy.sample(jax.random.normal(jax.random.key(0), (20_000, 2)))
    np.testing.assert_allclose(samples.mean(0), [1, -2], atol=0.1)
    np.testing.assert_allclose(samples.std(0), [0.5, 3.0], rtol=0.03)
    np.testing.assert_allclose(-policy.log_prob(samples).mean(), policy.entropy(), rtol=0.02)
