import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.ops import multistep


def test_value_rescaling_by_hand():
    # sqrt(3 + 1) - 1 + 0.003, and -(sqrt(8 + 1) - 1) - 0.008.
    x = np.array([0.0, 3.0, -8.0], np.float32)
    np.testing.assert_allclose(multistep.signed_hyperbolic(x, 1e-3), [0, 1.003, -2.008], rtol=1e-6)
    np.testing.assert_allclose(multistep.signed_hyperbolic(x, 0.0), [0, 1, -2], rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_value_rescaling_is_undone(epsilon, array):
    sizes = np.logspace(-6, 6, 60, dtype=np.float32)
    x = array(np.concatenate([-sizes[::-1], [0], sizes]).astype(np.float32))
    squeezed = multistep.signed_hyperbolic(x, epsilon)
    back = multistep.signed_parabolic(squeezed, epsilon)
    assert isinstance(back, type(x))
    np.testing.assert_allclose(back, x, rtol=3e-6)
    assert (np.diff(squeezed) > 0).all()


def test_value_rescaling_agrees_with_rlax(rlax):
    x = jnp.linspace(-300, 300, 101)
    np.testing.assert_allclose(multistep.signed_hyperbolic(x, 1e-3), rlax.signed_hyperbolic(x, 1e-3), rtol=1e-5)
    np.testing.assert_allclose(multistep.signed_parabolic(x, 1e-3), rlax.signed_parabolic(x, 1e-3), rtol=1e-3)


def test_n_step_returns_by_hand():
    r_t = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    discount_t = np.full(4, 0.5, np.float32)
    v_t = np.array([10.0, 20.0, 30.0, 40.0], np.float32)
    # 1 + 0.5 (2 + 0.5 * 20);  2 + 0.5 (4 + 0.5 * 30);  4 + 0.5 (8 + 0.5 * 40);  8 + 0.5 * 40.
    np.testing.assert_allclose(multistep.n_step_returns(r_t, discount_t, v_t, np.arange(4) < 3, 2), [7, 11.5, 18, 28])
    # The third is no step: the second's return ends in its own value. 1 + 0.5 (2 + 0.5 * 20) and 2 + 0.5 * 20.
    continues = multistep.continues_of(np.array([1, 1, 0, 0]))
    np.testing.assert_allclose(multistep.n_step_returns(r_t, discount_t, v_t, continues, 3)[:2], [7, 12])
    # After a termination nothing counts. 1 + 0.5 * 2.
    discount_t[1] = 0
    np.testing.assert_allclose(multistep.n_step_returns(r_t, discount_t, v_t, np.arange(4) < 3, 4)[0], 2)


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_n_step_returns_agree_with_rlax(rlax, n):
    rng = np.random.default_rng(n)
    r_t, v_t = rng.normal(size=(2, 7, 3)).astype(np.float32)
    discount_t = rng.choice(np.float32([0, 0.9, 1]), (7, 3))
    mask = rng.choice(np.float32([0, 1, 1, 1]), (7, 3))
    continues = np.concatenate([mask[1:], np.zeros((1, 3))])
    expected = jax.vmap(rlax.n_step_bootstrapped_returns, (1, 1, 1, None, 1), 1)(r_t, discount_t, v_t, n, continues)
    for array in (np.asarray, jnp.asarray):
        r, discount, v, there = map(array, (r_t, discount_t, v_t, mask))
        got = multistep.n_step_returns(r, discount, v, multistep.continues_of(there), n)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        if n >= 7:
            no_limit = multistep.n_step_returns(r, discount, v, multistep.continues_of(there), None)
            assert isinstance(no_limit, type(r))
            np.testing.assert_array_equal(no_limit, got)


def test_returns_to_the_end_are_compiled_as_one_loop_whatever_the_length():
    def operations(length):
        x = jnp.ones((length, 2))
        traced = jax.make_jaxpr(lambda x: multistep.n_step_returns(x, x, x, x > 0, None))(x)
        return len(traced.jaxpr.eqns)

    assert operations(8) == operations(512) < 10


def test_retrace_by_hand():
    # Two steps; at their ends Q = [2, 4] and [6, 8]; pi takes action 1 there. The second action was 1, with mu 0.8, so
    # that c = 0.5 min(1, 1 / 0.8) = 0.5. G_1 = 3 + 0.5 * 8 = 7, and G_0 = 1 + 0.5 (4 - 0.5 * 4 + 0.5 * 7) = 3.75.
    arguments = {
        "q_t": jnp.array([[[2.0, 4.0]], [[6.0, 8.0]]]),
        "q_a_t": jnp.array([[4.0], [0.0]]),
        "c_t": multistep.retrace_factors(jnp.array([[1.0], [1.0]]), jnp.array([[0.8], [1.0]]), 0.5),
        "pi_t": jnp.array([[[0.0, 1.0]], [[0.0, 1.0]]]),
        "r_t": jnp.array([[1.0], [3.0]]),
        "discount_t": jnp.full((2, 1), 0.5),
    }
    got = multistep.retrace_targets(**arguments, continues=jnp.array([[True], [False]]), rescaling_epsilon=None)
    np.testing.assert_allclose(got, [[3.75], [7.0]])
    # Where the trace ends, the value alone is bootstrapped from: 1 + 0.5 * 4.
    got = multistep.retrace_targets(**arguments, continues=jnp.zeros((2, 1), bool), rescaling_epsilon=None)
    np.testing.assert_allclose(got, [[3.0], [7.0]])


@pytest.mark.parametrize("epsilon", [None, 1e-3])
def test_retrace_agrees_with_rlax(rlax, epsilon):
    rng = np.random.default_rng(0)
    steps, batch, actions, lambda_ = 9, 4, 3, 0.95
    q_tm1, q_t = rng.normal(scale=3, size=(2, steps, batch, actions)).astype(np.float32)
    a_tm1, a_t = rng.integers(actions, size=(2, steps, batch))
    r_t = rng.normal(size=(steps, batch)).astype(np.float32)
    discount_t = rng.choice(np.float32([0, 0.9, 0.9]), (steps, batch))
    pi_t = rng.dirichlet(np.ones(actions), (steps, batch)).astype(np.float32)
    mu_t = rng.uniform(0.1, 1, (steps, batch)).astype(np.float32)
    pair = rlax.IDENTITY_PAIR if epsilon is None else rlax.SIGNED_HYPERBOLIC_PAIR
    expected = jax.vmap(rlax.transformed_retrace, (1,) * 8 + (None, None, None, None), 1)(
        q_tm1, q_t, a_tm1, a_t, r_t, discount_t, pi_t, mu_t, lambda_, 1e-8, True, pair
    )
    taken = np.take_along_axis(q_t, a_t[..., None], -1)[..., 0]
    factors = multistep.retrace_factors(np.take_along_axis(pi_t, a_t[..., None], -1)[..., 0], mu_t, lambda_)
    continues = jnp.arange(steps)[:, None] < steps - 1
    got = multistep.retrace_targets(q_t, taken, factors, pi_t, r_t, discount_t, continues, epsilon)
    got -= np.take_along_axis(q_tm1, a_tm1[..., None], -1)[..., 0]
    np.testing.assert_allclose(got[:-1], expected[:-1], rtol=2e-3, atol=2e-4)
