import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.agents.ppo import losses


def test_the_clipped_surrogate_by_hand():
    ratios = jnp.array([1.1, 1.5, 1.5, 0.5, 0.5, 0.9])
    advantages = jnp.array([2.0, 2.0, -2.0, 2.0, -2.0, -2.0])
    # A gain is followed up to a ratio of 1.2, or down to 0.8; a loss all the way.
    expected = [-2.2, -2.4, 3.0, -1.0, 1.6, 1.8]
    np.testing.assert_allclose(losses.clipped_surrogate_pg_loss(ratios, advantages, 0.2), expected, rtol=1e-6)
    slope = jax.grad(lambda r: jnp.sum(losses.clipped_surrogate_pg_loss(r, advantages, 0.2)))(ratios)
    np.testing.assert_allclose(slope, [-2, 0, 2, -2, 0, 2], rtol=1e-6)


def test_the_clipped_surrogate_is_rlaxs(rlax):
    rng = np.random.default_rng(0)
    ratios, advantages = np.exp(rng.normal(size=50)), rng.normal(size=50)
    ours = jnp.mean(losses.clipped_surrogate_pg_loss(ratios, advantages, 0.3))
    np.testing.assert_allclose(ours, rlax.clipped_surrogate_pg_loss(ratios, advantages, 0.3), rtol=1e-5)


def test_the_value_loss_by_hand():
    np.testing.assert_allclose(losses.value_loss(jnp.array([1.0, 2.0]), jnp.array([3.0, 1.5])), [4, 0.25])
