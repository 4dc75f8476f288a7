"""The losses of the agents that learn from recorded data, by hand, and BCQ's network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spec_of

from acme_ext.agents.bc import losses as bc
from acme_ext.agents.bcq import losses as bcq
from acme_ext.agents.bcq.config import BCQConfig
from acme_ext.agents.bcq.networks import make_network
from acme_ext.agents.cql import losses as cql
from acme_ext.agents.crr import losses as crr
from acme_ext.agents.discrete_cql import losses as discrete_cql
from acme_ext.agents.iql import losses as iql
from acme_ext.agents.td3_bc import losses as td3_bc


def test_cloning():
    logits = jnp.log(jnp.array([[0.8, 0.2], [0.5, 0.5]]))
    found = bc.imitation_loss(logits, jnp.array([1, 0]), discrete=True)
    np.testing.assert_allclose(found, -np.log([0.2, 0.5]), rtol=1e-5)
    found = bc.imitation_loss(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 2.0]]), discrete=False)
    np.testing.assert_allclose(found, [(1 + 4) / 2])


def test_td3_bc_weighs_values_by_their_size_which_has_no_gradient():
    q, action, data = jnp.array([1.0, -3.0]), jnp.array([[0.5], [0.0]]), jnp.array([[0.0], [0.0]])
    loss, slope = jax.value_and_grad(td3_bc.policy_loss)(q, action, data, 2.5)
    np.testing.assert_allclose(loss, -(2.5 / 2) * -1 + 0.125, rtol=1e-6)
    np.testing.assert_allclose(slope, [-2.5 / 2 / 2] * 2, rtol=1e-6)


def test_the_expectile_loss_is_least_at_the_expectile():
    np.testing.assert_allclose(iql.expectile_loss(jnp.array([2.0, -2.0]), 0.7), [0.7 * 4, 0.3 * 4], rtol=1e-6)
    values = jnp.linspace(0, 1, 1001)
    data = jnp.array([0.0, 1.0])
    total = jax.vmap(lambda v: jnp.mean(iql.expectile_loss(data - v, 0.9)))(values)
    assert float(values[jnp.argmin(total)]) == pytest.approx(0.9)


def test_better_actions_count_more_up_to_a_bound():
    found = iql.advantage_weights(jnp.array([0.0, 1.0, 100.0]), 2.0, 50.0)
    np.testing.assert_allclose(found, [1, np.exp(2), 50], rtol=1e-6)


def test_the_conservative_penalty_estimates_a_soft_maximum():
    """With one sample of each of four actions, each drawn with a probability of a quarter."""
    q = jnp.array([1.0, 2.0, 0.0, -1.0])
    sampled, density = q[None, :, None], jnp.full((4, 1), np.log(0.25))
    found = cql.conservative_penalty(sampled, density, jnp.array([[2.0]]))
    np.testing.assert_allclose(found, [np.log(np.sum(np.exp(q))) - 2], rtol=1e-5)
    same = discrete_cql.conservative_penalty(q[None], jnp.array([1]))
    np.testing.assert_allclose(same, found, rtol=1e-5)


def test_unlikely_actions_are_left_out():
    q, logits = jnp.array([[1.0, 5.0, 3.0]]), jnp.log(jnp.array([[0.6, 0.1, 0.3]]))
    assert jnp.argmax(bcq.allowed_values(q, logits, 0.3)) == 2
    assert jnp.argmax(bcq.allowed_values(q, logits, 0.1)) == 1
    assert jnp.argmax(bcq.allowed_values(q, logits, 0.6)) == 0


@pytest.mark.parametrize(("shape", "dtype"), [((3,), np.float32), ((10, 10, 4), np.bool_)])
def test_bcqs_values_have_a_dueling_head_where_they_are_to(shape, dtype):
    spec, sizes = spec_of.discrete(3, shape, dtype), []
    for dueling in (False, True):
        network = make_network(spec, BCQConfig(dueling=dueling, hidden_sizes=(8,), image_features=8))
        params = jax.eval_shape(network.init, jax.random.key(0), np.zeros((1, *shape), dtype))
        assert any("dueling" in name for name in params) == dueling
        sizes.append(sum(leaf.size for leaf in jax.tree.leaves(params)))
    # Two hidden layers, the state's value, and the advantages in place of the values.
    assert sizes[1] - sizes[0] == 2 * (8 * 8 + 8) + 8 + 1


def test_illegal_actions_make_no_others_unlikely():
    q, logits, legal = jnp.array([[9.0, 2.0, 3.0]]), jnp.array([[5.0, 0.0, 0.0]]), jnp.array([[False, True, True]])
    for threshold in (0.0, 0.3):
        found = bcq.allowed_values(q, logits, threshold, legal)
        np.testing.assert_array_equal(found[0, 1:], [2, 3])
        assert found[0, 0] < -1e8


def test_crr_counts_what_is_better_than_the_policys_own():
    q, sampled = jnp.array([1.0, 2.0]), jnp.array([[0.0, 1.0], [1.0, 4.0]])
    np.testing.assert_allclose(crr.advantage(q, sampled, "mean"), [0.5, -0.5])
    np.testing.assert_allclose(crr.advantage(q, sampled, "max"), [0, -2])
    advantage = jnp.array([-1.0, 0.0, 0.5, 100.0])
    np.testing.assert_array_equal(crr.weights(advantage, "binary", 1.0, 20.0), [0, 0, 1, 1])
    np.testing.assert_allclose(crr.weights(advantage, "exp", 0.5, 20.0), [np.exp(-2), 1, np.e, 20], rtol=1e-6)
    for weighting in ("binary", "exp"):
        assert jax.grad(lambda a, w=weighting: crr.weights(a, w, 1.0, 20.0))(0.5) == 0
