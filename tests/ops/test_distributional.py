import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.ops import distributional as ops

ATOMS = jnp.array([-1.0, 0.0, 1.0, 2.0])


def one_hot(*indices):
    return jnp.eye(4)[jnp.array(indices)]


def test_the_mean_by_hand():
    # exp of the logits is 1, 3, 0, 0 and then 1, 1, 1, 1.
    logits = jnp.array([[0.0, np.log(3), -jnp.inf, -jnp.inf], [5.0, 5.0, 5.0, 5.0]])
    np.testing.assert_allclose(ops.categorical_mean(logits, ATOMS), [-0.25, 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, [0, 1, 0, 0]),  # on an atom
        (0.25, [0, 0.75, 0.25, 0]),  # between two, in proportion
        (-0.5, [0.5, 0.5, 0, 0]),
        (-1.0, [1, 0, 0, 0]),  # on the edges, where u = l + 1 or u = l would lose the mass
        (2.0, [0, 0, 0, 1]),
        (-7.0, [1, 0, 0, 0]),  # beyond them
        (2.5, [0, 0, 0, 1]),
    ],
)
def test_the_projection_of_one_value(value, expected):
    np.testing.assert_allclose(ops.categorical_projection(jnp.array([value]), jnp.ones(1), ATOMS), expected, atol=1e-6)


def test_the_projection_of_several_values_is_the_sum_of_each():
    # 0.5 at 0.25 gives 0.375 and 0.125; 0.3 at 2.5 goes to the last atom; 0.2 at -0.5 is halved.
    projected = ops.categorical_projection(jnp.array([0.25, 2.5, -0.5]), jnp.array([0.5, 0.3, 0.2]), ATOMS)
    np.testing.assert_allclose(projected, [0.1, 0.475, 0.125, 0.3], rtol=1e-5)


def test_a_projection_keeps_all_mass_and_inside_the_support_the_mean():
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 2, (64, 7)).astype(np.float32)
    probs = rng.dirichlet(np.ones(7), 64).astype(np.float32)
    projected = ops.categorical_projection(values, probs, ATOMS)
    np.testing.assert_allclose(projected.sum(-1), 1, rtol=1e-5)
    np.testing.assert_allclose(projected @ ATOMS, (values * probs).sum(-1), rtol=1e-4, atol=1e-5)
    outside = ops.categorical_projection(10 * values, probs, ATOMS)
    np.testing.assert_allclose(outside.sum(-1), 1, rtol=1e-5)


def test_the_target_by_hand():
    # All mass at 2: 0.5 + 0.25 * 2 = 1. All mass at 1, three steps of 0.9: 0.1 + 0.729 = 0.829. A termination: -0.5.
    target = ops.categorical_target(
        jnp.array([0.5, 0.1, -0.5]), jnp.array([0.25, 0.9**3, 0.0]), one_hot(3, 2, 0), ATOMS
    )
    np.testing.assert_allclose(target, [[0, 0, 1, 0], [0, 0.171, 0.829, 0], [0.5, 0.5, 0, 0]], atol=1e-6)


def test_a_target_without_reward_and_discount_of_one_is_the_distribution_itself():
    probs = jnp.array([[0.1, 0.2, 0.3, 0.4]])
    np.testing.assert_allclose(ops.categorical_target(jnp.zeros(1), jnp.ones(1), probs, ATOMS), probs, rtol=1e-6)


def test_cross_entropy_and_kl_by_hand():
    probs = jnp.array([[0.5, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    logits = jnp.log(jnp.array([[0.25, 0.5, 0.125, 0.125], [0.25, 0.5, 0.125, 0.125]]))
    # -(log 1/4 + log 1/2) / 2 and -log 1/2; the first target's entropy is log 2, the second's zero.
    np.testing.assert_allclose(ops.cross_entropy(probs, logits), [1.5 * np.log(2), np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(ops.categorical_kl(probs, logits), [0.5 * np.log(2), np.log(2)], rtol=1e-6)


def test_the_kl_is_zero_where_right_and_has_the_gradient_of_the_cross_entropy():
    logits = jnp.array([0.3, -1.0, 2.0, 0.0])
    np.testing.assert_allclose(ops.categorical_kl(jax.nn.softmax(logits), logits), 0, atol=1e-6)
    probs = jnp.array([0.0, 0.25, 0.75, 0.0])
    gradients = [jax.grad(loss, 1)(probs, logits) for loss in (ops.categorical_kl, ops.cross_entropy)]
    np.testing.assert_allclose(*gradients, rtol=1e-6)
    np.testing.assert_allclose(gradients[0], jax.nn.softmax(logits) - probs, atol=1e-6)


def test_midpoints_by_hand():
    np.testing.assert_allclose(ops.quantile_midpoints(4), [0.125, 0.375, 0.625, 0.875], rtol=1e-6)


@pytest.mark.parametrize(
    ("kappa", "expected"),
    [
        # u = targets - quantiles: [1, 4] for the first, [-2, 1] for the second; weights tau, or 1 - tau if negative.
        # |u|: 0.25 * (1 + 4) / 2 + ((1 - 0.75) * 2 + 0.75 * 1) / 2.
        (0.0, 0.625 + 0.625),
        # Huber of 1: 0.5, 3.5; 1.5, 0.5.
        (1.0, 0.25 * (0.5 + 3.5) / 2 + (0.25 * 1.5 + 0.75 * 0.5) / 2),
        # Huber of 2, divided by 2: 0.5 / 2, 6 / 2; 2 / 2, 0.5 / 2.
        (2.0, 0.25 * (0.25 + 3) / 2 + (0.25 * 1 + 0.75 * 0.25) / 2),
    ],
)
def test_the_quantile_loss_by_hand(kappa, expected):
    loss = ops.quantile_loss(jnp.array([[0.0, 3.0]]), jnp.array([0.25, 0.75]), jnp.array([[1.0, 4.0]]), kappa)
    np.testing.assert_allclose(loss, [expected], rtol=1e-6)


def test_the_quantile_loss_is_least_at_the_quantiles():
    targets = jnp.asarray(np.random.default_rng(0).normal(size=4001), jnp.float32)
    taus = ops.quantile_midpoints(5)
    quantiles, step = jnp.zeros(5), jax.jit(jax.grad(lambda q: ops.quantile_loss(q, taus, targets, 0.0)))
    for _ in range(400):
        quantiles -= 0.1 * step(quantiles)
    np.testing.assert_allclose(quantiles, np.quantile(targets, taus), atol=0.02)


def test_leading_axes_are_free():
    rng = np.random.default_rng(0)
    values, probs = rng.normal(size=(2, 3, 4)).astype(np.float32), rng.dirichlet(np.ones(4), (2, 3)).astype(np.float32)
    r, discount = values[..., 0], probs[..., 0]
    taus = rng.uniform(size=(2, 3, 4)).astype(np.float32)
    for function in (
        lambda v, p, r, d, t: ops.categorical_projection(v, p, ATOMS),
        lambda v, p, r, d, t: ops.categorical_target(r, d, p, ATOMS),
        lambda v, p, r, d, t: ops.categorical_kl(p, v),
        lambda v, p, r, d, t: ops.categorical_mean(v, ATOMS),
        lambda v, p, r, d, t: ops.quantile_loss(v, t, 2 * p, 1.0),
    ):
        arguments = (values, probs, r, discount, taus)
        one_by_one = jax.vmap(jax.vmap(function))(*arguments)
        np.testing.assert_allclose(function(*arguments), one_by_one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("v_min", "v_max", "count"),
    [pytest.param(-10.0, 10.0, 51, marks=pytest.mark.release), (0.0, 110.0, 51), (-1.0, 1.0, 2)],
)
def test_categorical_functions_agree_with_rlax(rlax, v_min, v_max, count):
    rng = np.random.default_rng(1)
    atoms = jnp.linspace(v_min, v_max, count)
    values = rng.uniform(1.5 * v_min - 1, 1.5 * v_max, (32, 20)).astype(np.float32)
    probs = rng.dirichlet(np.ones(20), 32).astype(np.float32)
    theirs = jax.vmap(rlax.categorical_l2_project, (0, 0, None))(values, probs, atoms)
    np.testing.assert_allclose(ops.categorical_projection(values, probs, atoms), theirs, atol=2e-5)

    logits_tm1, logits_t = (rng.normal(size=(32, count)).astype(np.float32) for _ in range(2))
    r, discount = rng.normal(size=32).astype(np.float32), rng.uniform(size=32).astype(np.float32)
    target = ops.categorical_target(r, discount, jax.nn.softmax(logits_t), atoms)
    theirs = jax.vmap(rlax.categorical_td_learning, (None, 0, 0, 0, None, 0))(
        atoms, logits_tm1, r, discount, atoms, logits_t
    )
    np.testing.assert_allclose(ops.cross_entropy(target, logits_tm1), theirs, rtol=1e-4)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0, 3.0])
def test_the_quantile_loss_agrees_with_rlax(rlax, kappa):
    rng = np.random.default_rng(1)
    quantiles, taus = rng.normal(size=(32, 8)).astype(np.float32), rng.uniform(size=(32, 8)).astype(np.float32)
    targets = 2 * rng.normal(size=(32, 5)).astype(np.float32)
    theirs = jax.vmap(rlax.quantile_q_learning, (0, 0, None, None, None, 0, 0, None))(
        quantiles[:, :, None], taus, 0, 0.0, 1.0, targets[:, :, None], targets[:, :, None], kappa
    )
    # rlax doesn't divide by kappa.
    np.testing.assert_allclose(ops.quantile_loss(quantiles, taus, targets, kappa) * (kappa or 1), theirs, rtol=1e-4)


def test_a_value_lies_on_the_two_whole_numbers_around_it():
    support = ops.Support(300, None)
    probs = support.probs(jnp.array([3.7, -300.0, 1_000.0]))
    np.testing.assert_allclose(probs[0, 303:305], [0.3, 0.7], atol=1e-5)  # Schrittwieser et al. 2020, appendix F
    assert probs[1, 0] == probs[2, -1] == 1
    np.testing.assert_allclose(probs.sum(-1), 1, rtol=1e-5)
    assert support.largest == 300


@pytest.mark.parametrize("epsilon", [None, 1e-3])
def test_a_support_gives_back_the_values_it_was_given(epsilon):
    support = ops.Support(20, epsilon)
    values = jnp.array([-15.0, -0.25, 0.0, 1.0, 7.3, 19.0])
    logits = jnp.log(support.probs(values) + 1e-12)
    np.testing.assert_allclose(support.mean(logits), values, atol=1e-3)
    assert support.num_atoms == 41
    assert support.mean(jnp.zeros(41)) == pytest.approx(0, abs=1e-4)


def test_what_a_support_holds_at_most():
    # h(x) = sqrt(x + 1) - 1 + x / 1000 is 20 at 422.4.
    assert ops.Support(20, 1e-3).largest == pytest.approx(422.4, abs=0.1)
