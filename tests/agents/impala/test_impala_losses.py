import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.agents.impala import losses
from acme_ext.learning import normalize
from acme_ext.learning.normalize import Moments
from acme_ext.ops.policy import Categorical


def column(*values):
    return jnp.asarray(values, jnp.float32)[:, None]


# Two steps of one unroll; the policy now gives the actions 0.8 and 0.3, and gave them 0.4 and 0.6 when they were taken.
LOGITS = jnp.log(jnp.asarray([[[0.8, 0.2]], [[0.7, 0.3]]]))
BATCH = {
    "values": column(1.0, 2.0, -1.0),
    "a_tm1": jnp.asarray([[0], [1]]),
    "r_t": column(3.0, -1.0),
    "discount_t": column(0.9, 0.9),
    "behaviour_log_prob_tm1": jnp.log(column(0.4, 0.6)),
    "mask": column(1.0, 1.0),
}


def costs(max_rho=1.0, max_c=1.0, logits=LOGITS, **changed):
    return losses.impala_costs(Categorical(logits), **{**BATCH, **changed}, max_rho=max_rho, max_c=max_c)[0]


@pytest.mark.parametrize(("max_rho", "max_c"), [(1.0, 1.0), (1.5, 0.4)])
def test_the_costs_by_hand(max_rho, max_c):
    rho, c = np.minimum([2.0, 0.5], max_rho), np.minimum([2.0, 0.5], max_c)
    error_1 = rho[1] * (-1 + 0.9 * -1 - 2)
    error_0 = rho[0] * (3 + 0.9 * 2 - 1) + 0.9 * c[0] * error_1
    advantage = [rho[0] * (3 + 0.9 * (2 + error_1) - 1), rho[1] * (-1 + 0.9 * -1 - 2)]
    found = costs(max_rho, max_c)
    np.testing.assert_allclose(found.policy_gradient, -np.dot(advantage, np.log([0.8, 0.3])), rtol=1e-5)
    np.testing.assert_allclose(found.value, (error_0**2 + error_1**2) / 2, rtol=1e-5)
    p = np.array([[0.8, 0.2], [0.7, 0.3]])
    np.testing.assert_allclose(found.entropy, -np.sum(p * np.log(p)), rtol=1e-5)


def test_gradients_flow_to_policy_and_value_as_the_paper_has_them():
    by_values = jax.grad(lambda values: costs(values=values).value)(BATCH["values"])
    error_1 = 0.5 * -3.9
    # d/dV of (v_s - V)**2 / 2 with v_s a constant; nothing reaches the bootstrap value.
    np.testing.assert_allclose(by_values[:, 0], [-(3.8 + 0.9 * error_1), -error_1, 0], rtol=1e-5)
    assert not np.any(jax.grad(lambda values: costs(values=values).policy_gradient)(BATCH["values"]))
    by_logits = jax.grad(lambda logits: costs(logits=logits).policy_gradient)(LOGITS)
    advantage = np.array([3 + 0.9 * (2 + error_1) - 1, 0.5 * -3.9])
    expected = -advantage[:, None] * (np.eye(2)[[0, 1]] - np.array([[0.8, 0.2], [0.7, 0.3]]))
    np.testing.assert_allclose(by_logits[:, 0], expected, rtol=1e-5)
    assert not np.any(jax.grad(lambda logits: costs(logits=logits).value)(LOGITS))


def test_normalised_values_change_units_and_nothing_else():
    """Errors and advantages are those of the raw values, divided by the targets' standard deviation."""
    before = Moments(jnp.float32(6.0), jnp.float32(2.0), jnp.float32(9.0))
    raw = costs()
    found, after = losses.impala_costs(
        Categorical(LOGITS),
        **{**BATCH, "values": normalize.normalize(before, BATCH["values"])},
        moments=before,
        max_rho=1.0,
        max_c=1.0,
    )
    error_1 = 0.5 * -3.9
    targets = np.array([1 + 3.8 + 0.9 * error_1, 2 + error_1])
    seen = np.concatenate([[5.0, -1.0] * 3, targets])  # six values of mean 2 and variance 9, and the two targets
    np.testing.assert_allclose([after.count, after.mean, after.variance], [8, seen.mean(), seen.var()], rtol=1e-5)
    np.testing.assert_allclose(found.policy_gradient, raw.policy_gradient / seen.std(), rtol=1e-4)
    of_network = normalize.normalize(before, BATCH["values"])[:2, 0]
    expected = np.sum(((targets - seen.mean()) / seen.std() - of_network) ** 2) / 2
    np.testing.assert_allclose(found.value, expected, rtol=1e-4)
    assert found.entropy == raw.entropy


def test_what_is_no_step_costs_nothing():
    """The way from an episode's end to the next one's first, whatever action was named there."""
    mask = column(1.0, 0.0)
    gone = {"mask": mask, "r_t": column(3.0, 0.0), "discount_t": column(0.9, 0.0)}
    found = costs(**gone)
    np.testing.assert_allclose(found.value, 3.8**2 / 2, rtol=1e-5)
    np.testing.assert_allclose(found.policy_gradient, -3.8 * np.log(0.8), rtol=1e-5)
    np.testing.assert_allclose(found.entropy, -(0.8 * np.log(0.8) + 0.2 * np.log(0.2)), rtol=1e-5)
    by_logits = jax.grad(lambda logits: sum(costs(logits=logits, **gone)))(LOGITS)
    assert not np.any(by_logits[1])


def test_the_costs_are_rlaxs(rlax):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 3, 4)).astype(np.float32)
    values = rng.normal(size=(7, 3)).astype(np.float32)
    action = rng.integers(0, 4, (6, 3))
    reward = rng.normal(size=(6, 3)).astype(np.float32)
    discount = rng.uniform(0, 1, (6, 3)).astype(np.float32)
    behaviour = -rng.uniform(0.1, 3, (6, 3)).astype(np.float32)
    found, _ = losses.impala_costs(
        Categorical(logits), values, action, reward, discount, behaviour, np.ones((6, 3)), max_rho=1.0, max_c=1.0
    )

    def theirs(logits, values, action, reward, discount, behaviour):
        rho = jnp.exp(jax.nn.log_softmax(logits)[jnp.arange(6), action] - behaviour)
        vtrace = rlax.vtrace_td_error_and_advantage(values[:-1], values[1:], reward, discount, rho)
        ones = jnp.ones(6)
        pg = 6 * rlax.policy_gradient_loss(logits, action, vtrace.pg_advantage, ones)
        return pg, jnp.sum(vtrace.errors**2) / 2, -6 * rlax.entropy_loss(logits, ones)

    expected = jax.vmap(theirs, in_axes=1)(logits, values, action, reward, discount, behaviour)
    np.testing.assert_allclose(found, [jnp.sum(x) for x in expected], rtol=1e-4)


def test_rewards_are_clipped_as_named():
    rewards = jnp.asarray([-100.0, -1.0, 0.0, 0.5, 5.0, 100.0])
    np.testing.assert_array_equal(losses.clip_rewards(rewards, "none"), rewards)
    np.testing.assert_allclose(losses.clip_rewards(rewards, "abs_one"), [-1, -1, 0, 0.5, 1, 1])
    expected = [-1.5, -1.5 * np.tanh(0.2), 0, 5 * np.tanh(0.1), 5 * np.tanh(1), 5]
    np.testing.assert_allclose(losses.clip_rewards(rewards, "soft_asymmetric"), expected, rtol=1e-5)
