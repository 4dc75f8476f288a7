import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.agents.rainbow import losses

ATOMS = jnp.array([-1.0, 0.0, 1.0, 2.0])


def certain(*atoms):
    """Logits `[..., 4]` that put all mass on an atom."""
    return jnp.where(jnp.eye(4)[jnp.array(atoms)] == 1, 0.0, -100.0)


# Two transitions with two actions each.
LOGITS_T = jnp.stack([certain(3, 0), certain(1, 2)])
R_T, DISCOUNT_T = jnp.array([0.5, -0.75]), jnp.array([0.25, 1.0])


def quantile_double_q_loss(quantiles_tm1, taus, a_tm1, r_t, discount_t, quantiles_t, selector, kappa):
    target = losses.quantile_double_q_target(r_t, discount_t, quantiles_t, selector)
    return losses.quantile_q_loss(quantiles_tm1, taus, a_tm1, target, kappa)


def test_the_target_by_hand():
    # The selector's best are the actions 0 and 1: 0.5 + 0.25 * 2 = 1, and -0.75 + 1 = 0.25 between two atoms.
    selector = jnp.array([[7.0, 3.0], [1.0, 2.0]])
    target = losses.categorical_double_q_target(R_T, DISCOUNT_T, LOGITS_T, selector, ATOMS)
    np.testing.assert_allclose(target, [[0, 0, 1, 0], [0, 0.75, 0.25, 0]], atol=1e-6)
    # And of the other actions: 0.5 - 0.25 = 0.25, and -0.75.
    target = losses.categorical_double_q_target(R_T, DISCOUNT_T, LOGITS_T, -selector, ATOMS)
    np.testing.assert_allclose(target, [[0, 0.75, 0.25, 0], [0.75, 0.25, 0, 0]], atol=1e-6)


def test_a_termination_bootstraps_nothing():
    target = losses.categorical_double_q_target(R_T, jnp.zeros(2), LOGITS_T, jnp.zeros((2, 2)), ATOMS)
    np.testing.assert_allclose(target, [[0, 0.5, 0.5, 0], [0.75, 0.25, 0, 0]], atol=1e-6)


def test_the_categorical_loss_by_hand():
    probs = jnp.array([[[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]], [[0.7, 0.1, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1]]])
    target = jnp.array([[0.0, 0.0, 1.0, 0.0], [0.0, 0.75, 0.25, 0.0]])
    loss = losses.categorical_q_loss(jnp.log(probs), jnp.array([0, 1]), target)
    # -log 0.3, and 0.75 log(0.75 / 0.6) + 0.25 log(0.25 / 0.2).
    np.testing.assert_allclose(loss, [-np.log(0.3), np.log(1.25)], rtol=1e-5)


def test_gradients_flow_through_the_first_prediction_of_the_action_taken_alone():
    def categorical(tm1, t, selector):
        target = losses.categorical_double_q_target(R_T, DISCOUNT_T, t, selector, ATOMS)
        return jnp.sum(losses.categorical_q_loss(tm1, jnp.array([0, 1]), target))

    def quantile(tm1, t, selector):
        taus = jnp.full((2, 4), 0.5)
        return jnp.sum(quantile_double_q_loss(tm1, taus, jnp.array([0, 1]), R_T, DISCOUNT_T, t, selector, 1.0))

    rng = np.random.default_rng(0)
    tm1, t = (rng.normal(size=(2, 2, 4)).astype(np.float32) for _ in range(2))
    for loss in (categorical, quantile):
        first, target, selector = jax.grad(loss, (0, 1, 2))(tm1, t, t.mean(-1))
        np.testing.assert_array_equal(first.any(-1), [[True, False], [False, True]])
        assert not target.any()
        assert not selector.any()


def test_the_quantile_loss_by_hand():
    quantiles_tm1 = jnp.array([[[0.0, 2.0], [9.0, 9.0]]])
    quantiles_t = jnp.array([[[9.0, 9.0], [2.0, 6.0]]])
    # Targets 1 + 0.5 * (2, 6) = 2 and 4 of action 1; errors 2, 4 of the first and 0, 2 of the second.
    loss = quantile_double_q_loss(
        quantiles_tm1,
        jnp.array([[0.25, 0.75]]),
        jnp.array([0]),
        jnp.array([1.0]),
        jnp.array([0.5]),
        quantiles_t,
        jnp.array([[0.0, 1.0]]),
        1.0,
    )
    np.testing.assert_allclose(loss, [0.25 * (1.5 + 3.5) / 2 + 0.75 * (0 + 1.5) / 2], rtol=1e-6)


def data(seed=0, size=32, actions=3, count=11):
    rng = np.random.default_rng(seed)
    tm1, t = (rng.normal(size=(size, actions, count)).astype(np.float32) for _ in range(2))
    selector = rng.normal(size=(size, actions)).astype(np.float32)
    r, discount = rng.normal(size=size).astype(np.float32), rng.uniform(size=size).astype(np.float32)
    return tm1, rng.integers(0, actions, size), r, discount, t, selector


def test_the_categorical_loss_agrees_with_rlax(rlax):
    tm1, a, r, discount, t, selector = data()
    atoms = jnp.linspace(-2.0, 3.0, 11)

    def ours(tm1):
        target = losses.categorical_double_q_target(r, discount, t, selector, atoms)
        return jnp.sum(losses.categorical_q_loss(tm1, a, target))

    def theirs(tm1):
        each = jax.vmap(rlax.categorical_double_q_learning, (None, 0, 0, 0, 0, None, 0, 0))
        return jnp.sum(each(atoms, tm1, a, r, discount, atoms, t, selector))

    # rlax's is the cross-entropy: it differs from the KL by the target's entropy, and not in its gradient.
    target = losses.categorical_double_q_target(r, discount, t, selector, atoms)
    entropy = -jnp.sum(jax.scipy.special.xlogy(target, target))
    np.testing.assert_allclose(ours(tm1) + entropy, theirs(tm1), rtol=1e-5)
    np.testing.assert_allclose(jax.grad(ours)(tm1), jax.grad(theirs)(tm1), atol=1e-5)


@pytest.mark.parametrize("kappa", [0.0, 1.0])
def test_the_quantile_loss_agrees_with_rlax(rlax, kappa):
    tm1, a, r, discount, t, _ = data()
    selector = data(1)[0]
    taus = np.random.default_rng(2).uniform(size=(32, 11)).astype(np.float32)

    def ours(tm1):
        return jnp.sum(quantile_double_q_loss(tm1, taus, a, r, discount, t, selector.mean(axis=-1), kappa))

    def theirs(tm1):
        def one(tm1, taus, a, r, discount, selector, t):
            return rlax.quantile_q_learning(tm1.T, taus, a, r, discount, selector.T, t.T, kappa)

        return jnp.sum(jax.vmap(one)(tm1, taus, a, r, discount, selector, t))

    for mine, other in zip(jax.value_and_grad(ours)(tm1), jax.value_and_grad(theirs)(tm1), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
