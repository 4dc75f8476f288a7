import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.ops import policy
from acme_ext.ops.policy import Categorical


def test_a_choice_by_hand():
    choice = Categorical(jnp.log(jnp.array([[1.0, 2.0, 5.0], [6.0, 1.0, 1.0]])))
    np.testing.assert_array_equal(choice.mode(), [2, 0])
    np.testing.assert_allclose(choice.log_prob(jnp.array([1, 0])), np.log([2 / 8, 6 / 8]), rtol=1e-6)
    p = np.array([[1, 2, 5], [6, 1, 1]]) / 8
    np.testing.assert_allclose(choice.entropy(), -np.sum(p * np.log(p), axis=1), rtol=1e-6)
    # Noise of 2 on the first action makes it as likely to win as exp(2) does, 7.4 against 5.
    np.testing.assert_array_equal(choice.sample(jnp.array([[2.0, 0, 0], [0, 0, 0]])), [0, 0])
    assert choice.mode().dtype == choice.sample(jnp.zeros((2, 3))).dtype == jnp.int32


def test_a_choice_is_distributed_as_it_says():
    choice = Categorical(jnp.tile(jnp.log(jnp.array([0.1, 0.2, 0.7])), (20_000, 1)))
    taken = choice.sample(jax.random.gumbel(jax.random.key(0), (20_000, 3)))
    np.testing.assert_allclose(np.bincount(taken) / 20_000, [0.1, 0.2, 0.7], atol=0.015)


def test_logits_may_be_far_apart():
    choice = Categorical(jnp.array([[1e4, 0.0]]))
    assert choice.entropy()[0] == 0
    np.testing.assert_allclose(choice.log_prob(jnp.array([1])), [-1e4])
    assert np.isfinite(jax.grad(lambda x: Categorical(x).entropy()[0])(choice.logits)).all()


def test_importance_ratios():
    ratios = policy.importance_ratios(jnp.log(jnp.array([0.5, 0.2])), jnp.log(jnp.array([0.25, 0.8])))
    np.testing.assert_allclose(ratios, [2, 0.25], rtol=1e-6)


# Three steps of one unroll: gamma 0.9, values V(x_0..x_3), rewards, and ratios of which the first is above 1 and the
# second below.
VALUES = np.array([1.0, 2.0, -1.0, 3.0])
REWARDS = np.array([1.0, 0.0, 2.0])
RATIOS = np.array([2.0, 0.5, 1.5])
GAMMA = 0.9


def columns(*arrays):
    return tuple(jnp.asarray(x, jnp.float32)[:, None] for x in arrays)


def vtrace(values=VALUES, rewards=REWARDS, discounts=(GAMMA,) * 3, ratios=RATIOS, **bounds):
    values, rewards, discounts, ratios = columns(values, rewards, discounts, ratios)
    return policy.vtrace_td_error_and_advantage(values[:-1], values[1:], rewards, discounts, ratios, **bounds)


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (1.6, 0.7), (10.0, 10.0)])
def test_vtrace_is_the_papers_sum(rho_bar, c_bar):
    """v_s = V_s + sum_{t=s}^{n-1} gamma^(t-s) (prod_{i=s}^{t-1} c_i) rho_t (r_t + gamma V_{t+1} - V_t), eq. 1."""
    rho, c = np.minimum(rho_bar, RATIOS), np.minimum(c_bar, RATIOS)
    delta = rho * (REWARDS + GAMMA * VALUES[1:] - VALUES[:-1])
    v0 = VALUES[0] + delta[0] + GAMMA * c[0] * delta[1] + GAMMA**2 * c[0] * c[1] * delta[2]
    v1 = VALUES[1] + delta[1] + GAMMA * c[1] * delta[2]
    v2 = VALUES[2] + delta[2]
    q = np.array([REWARDS[0] + GAMMA * v1, REWARDS[1] + GAMMA * v2, REWARDS[2] + GAMMA * VALUES[3]])
    found = vtrace(clip_rho_threshold=rho_bar, clip_c_threshold=c_bar)
    np.testing.assert_allclose(found.errors[:, 0], np.array([v0, v1, v2]) - VALUES[:3], rtol=1e-5)
    np.testing.assert_allclose(found.pg_advantage[:, 0], rho * (q - VALUES[:3]), rtol=1e-5)


def test_vtrace_in_numbers():
    """Both bounds 1: rho = c = (1, 0.5, 1); delta = (1.8, -1.45, 5.7)."""
    found = vtrace()
    e2 = 2 + 0.9 * 3 - -1
    e1 = 0.5 * (0 + 0.9 * -1 - 2) + 0.9 * 0.5 * e2
    e0 = (1 + 0.9 * 2 - 1) + 0.9 * e1
    np.testing.assert_allclose(found.errors[:, 0], [e0, e1, e2], rtol=1e-5)
    np.testing.assert_allclose([e0, e1, e2], [2.8035, 1.115, 5.7], rtol=1e-5)
    # The advantage of the second step is halved; the others are not doubled.
    np.testing.assert_allclose(
        found.pg_advantage[:, 0], [1 + 0.9 * 3.115 - 1, 0.5 * (0.9 * 4.7 - 2), 2 + 2.7 + 1], rtol=1e-5
    )


def test_on_policy_vtrace_is_the_n_step_return():
    found = vtrace(ratios=np.ones(3))
    full = 1 + 0.9 * 0 + 0.81 * 2 + 0.729 * 3
    np.testing.assert_allclose(found.errors[0, 0] + VALUES[0], full, rtol=1e-5)


@pytest.mark.parametrize("discount", [0.0, GAMMA])
def test_nothing_comes_back_over_an_episodes_end(discount):
    """The second step is the way from an episode's last timestep to the next one's first: its ratio is 0, and so are
    its reward and discount. The first ended the episode, by a termination or a truncation.
    """
    found = vtrace(rewards=[1.0, 0.0, 2.0], discounts=[discount, 0.0, GAMMA], ratios=[1.0, 0.0, 1.0])
    np.testing.assert_allclose(found.errors[:, 0], [1 + discount * 2 - 1, 0, 5.7], rtol=1e-5)
    np.testing.assert_allclose(found.pg_advantage[:, 0], [1 + discount * 2 - 1, 0, 5.7], rtol=1e-5)


def random_batch(shape=(7, 5)):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(shape[0] + 1, *shape[1:]))
    return tuple(
        x.astype(np.float32)
        for x in (values, rng.normal(size=shape), rng.uniform(0, 1, shape), np.exp(rng.normal(size=shape)))
    )


def test_vtrace_is_rlaxs(rlax):
    values, rewards, discounts, ratios = random_batch()
    ours = policy.vtrace_td_error_and_advantage(
        values[:-1], values[1:], rewards, discounts, ratios, clip_rho_threshold=1.3, clip_c_threshold=1.0
    )
    theirs = jax.vmap(
        lambda *x: rlax.vtrace_td_error_and_advantage(*x, clip_rho_threshold=1.3, clip_pg_rho_threshold=1.3),
        in_axes=1,
        out_axes=1,
    )(values[:-1], values[1:], rewards, discounts, ratios)
    for name in ours._fields:
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-4, atol=1e-5)


def test_generalized_advantages_by_hand():
    values, rewards, discounts, mask = columns(VALUES, REWARDS, [GAMMA] * 3, np.ones(3))
    delta = [1 + 0.9 * 2 - 1, 0 + 0.9 * -1 - 2, 2 + 0.9 * 3 + 1]
    expected = [delta[0] + 0.45 * (delta[1] + 0.45 * delta[2]), delta[1] + 0.45 * delta[2], delta[2]]
    found = policy.truncated_generalized_advantage_estimation(rewards, discounts, 0.5, values, mask)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("discount", [0.0, GAMMA])
def test_advantages_stop_at_an_episodes_end(discount):
    values, rewards, discounts, mask = columns(VALUES, [1, 0, 2], [discount, 0, GAMMA], [1, 0, 1])
    found = policy.truncated_generalized_advantage_estimation(rewards, discounts, 0.95, values, mask)
    np.testing.assert_allclose(found[:, 0], [discount * 2, 0, 5.7], rtol=1e-5)


def test_generalized_advantages_are_rlaxs(rlax):
    values, rewards, discounts, _ = random_batch()
    ours = policy.truncated_generalized_advantage_estimation(rewards, discounts, 0.9, values, np.ones_like(rewards))
    theirs = jax.vmap(
        lambda r, d, v: rlax.truncated_generalized_advantage_estimation(r, d, 0.9, v), in_axes=1, out_axes=1
    )(rewards, discounts, values)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_no_gradient_flows_through_targets():
    values, rewards, discounts, ratios = random_batch()

    def total(values, ratios):
        found = policy.vtrace_td_error_and_advantage(values[:-1], values[1:], rewards, discounts, ratios)
        gae = policy.truncated_generalized_advantage_estimation(rewards, discounts, 0.9, values, jnp.ones_like(ratios))
        return sum(jnp.sum(x) for x in found) + jnp.sum(gae)

    for gradient in jax.grad(total, (0, 1))(values, ratios):
        assert not np.any(gradient)
