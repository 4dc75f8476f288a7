import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.errors import UsageError
from acme_ext.ops import critics

R_T = jnp.array([1.0, -1.0])
DISCOUNT_T = jnp.array([0.5, 0.0])


def logits_of(probs):
    return jnp.log(jnp.asarray(probs, jnp.float32))


def test_expected_values_by_hand():
    # Two sampled actions' values have means 3 and 50; the second transition ends with a termination.
    # 1 + 0.5 * 3 - 2 = 0.5 and -1 - 0.5 = -1.5.
    model = critics.expected_value()
    found = model.loss(jnp.array([2.0, 0.5]), R_T, DISCOUNT_T, jnp.array([[2.0, 0.0], [4.0, 100.0]]))
    np.testing.assert_allclose(found.td_error, [0.5, -1.5], rtol=1e-6)
    np.testing.assert_allclose(found.loss, [0.125, 1.125], rtol=1e-6)
    assert found.metrics == {}
    assert model.outputs is None
    np.testing.assert_array_equal(model.mean(R_T), R_T)


def test_a_distribution_by_hand():
    # Atoms 0, 1, 2. The two actions' distributions mix to (0.25, 0.5, 0.25); R + gamma Z lies at 1, 1.5, 2, so the
    # target is (0, 0.25 + 0.25, 0.25 + 0.25). The second ends at -1, below the support: all of it goes to atom 0.
    model = critics.categorical_value(0.0, 2.0, 3)
    logits_t = jnp.stack([logits_of([[0.5, 0.5, 1e-9], [1, 1, 1]]), logits_of([[1e-9, 0.5, 0.5], [1, 1, 1]])])
    prediction = [[0.2, 0.3, 0.5], [0.5, 0.25, 0.25]]
    found = model.loss(logits_of(prediction), R_T, DISCOUNT_T, logits_t)
    np.testing.assert_allclose(found.loss, [-0.5 * np.log(0.3) - 0.5 * np.log(0.5), -np.log(0.5)], rtol=1e-5)
    # The target's mean less the prediction's: 1.5 - 1.3 and 0 - 0.75.
    np.testing.assert_allclose(found.td_error, [0.2, -0.75], rtol=1e-5)
    np.testing.assert_allclose(found.metrics["clipped_mass"], [0.0, 1.0], atol=1e-6)
    assert model.outputs == 3
    np.testing.assert_allclose(model.mean(logits_of(prediction)), [1.3, 0.75], rtol=1e-6)


@pytest.mark.parametrize(
    ("v_min", "v_max", "expected"),
    [
        (-10.0, 10.0, 0.0),
        # Rewards of 1 with gamma 0.5 are worth 2: that support is exactly wide enough.
        (0.0, 2.0, 0.0),
        # The mass is at the highest atom, which the reward pushes beyond.
        (0.0, 1.5, 1.0),
        (-1.0, 0.5, 1.0),
    ],
)
def test_a_support_that_is_too_narrow_is_told(v_min, v_max, expected):
    model = critics.categorical_value(v_min, v_max, 5)
    atoms = np.linspace(v_min, v_max, 5)
    certain = jnp.asarray(np.where(np.arange(5) == np.argmin(np.abs(atoms - 2)), 50.0, 0.0), jnp.float32)[None]
    found = model.loss(certain, jnp.ones(1), jnp.full(1, 0.5), certain[None])
    np.testing.assert_allclose(found.metrics["clipped_mass"], [expected], atol=1e-6)


@pytest.mark.parametrize("model", [critics.expected_value(), critics.categorical_value(-5.0, 5.0, 7)])
def test_the_gradient_flows_through_the_prediction_alone(model):
    shape = (2,) if model.outputs is None else (2, model.outputs)
    tm1, t = jax.random.normal(jax.random.key(0), shape), jax.random.normal(jax.random.key(1), (3, *shape))

    def total(tm1, r_t, t):
        return jnp.sum(model.loss(tm1, r_t, DISCOUNT_T, t).loss)

    of_tm1, of_r, of_t = jax.grad(total, (0, 1, 2))(tm1, R_T, t)
    assert np.all(np.any(np.asarray(of_tm1).reshape(2, -1) != 0, axis=1))
    assert not of_r.any()
    assert not of_t.any()


def test_agrees_with_rlax(rlax):
    rng = np.random.default_rng(0)
    tm1, t = (rng.normal(size=(16, 11)).astype(np.float32) for _ in range(2))
    r_t, discount_t = rng.normal(size=16).astype(np.float32), rng.uniform(size=16).astype(np.float32)
    atoms = np.linspace(-3, 3, 11).astype(np.float32)

    def theirs(tm1):
        return jax.vmap(rlax.categorical_td_learning, (None, 0, 0, 0, None, 0))(atoms, tm1, r_t, discount_t, atoms, t)

    def ours(tm1):
        return critics.categorical_value(-3.0, 3.0, 11).loss(tm1, r_t, discount_t, t[None]).loss

    np.testing.assert_allclose(ours(tm1), theirs(tm1), rtol=1e-4)
    gradients = (jax.grad(lambda x, f=f: jnp.sum(f(x)))(tm1) for f in (ours, theirs))
    np.testing.assert_allclose(*gradients, rtol=1e-3, atol=1e-5)
    q_tm1, q_t = tm1[:, 0], t[:, 0]
    td_error = jax.vmap(rlax.td_learning)(q_tm1, r_t, discount_t, q_t)
    found = critics.expected_value().loss(q_tm1, r_t, discount_t, q_t[None])
    np.testing.assert_allclose(found.td_error, td_error, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("support", "message"),
    [
        ((1.0, 1.0, 51), "v_min is 1.0 and v_max is 1.0: both must be finite, and v_min the smaller"),
        ((2.0, 1.0, 51), "v_min the smaller"),
        ((float("-inf"), 1.0, 51), "must be finite"),
        ((0.0, float("nan"), 51), "must be finite"),
        ((0.0, 1.0, 1), "num_atoms is 1: it must be at least 2"),
    ],
)
def test_a_support_that_is_none_is_refused(support, message):
    with pytest.raises(UsageError, match=message):
        critics.check_support(*support)
