import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.agents.d4pg import losses

A = jnp.array([[0.5, -0.5], [0.0, 1.0]])
DQDA = jnp.array([[3.0, -0.5], [0.25, -4.0]])


def test_the_gradient_is_the_critics():
    gradient = jax.grad(lambda a: jnp.sum(losses.dpg_loss(a, DQDA)))(A)
    np.testing.assert_allclose(gradient, -DQDA, rtol=1e-5)
    np.testing.assert_allclose(losses.dpg_loss(A, DQDA), [(9 + 0.25) / 2, (0.0625 + 16) / 2], rtol=1e-5)


def test_nothing_flows_into_the_critic():
    assert not jax.grad(lambda dqda: jnp.sum(losses.dpg_loss(A, dqda)))(DQDA).any()


def test_agrees_with_rlax(rlax):
    ours = jax.value_and_grad(lambda a: jnp.sum(losses.dpg_loss(a, DQDA)))(A)
    theirs = jax.value_and_grad(lambda a: jnp.sum(jax.vmap(rlax.dpg_loss)(a, DQDA)))(A)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5)
