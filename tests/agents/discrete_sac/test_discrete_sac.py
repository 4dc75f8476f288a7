import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import discrete

from acme_ext.acting.policy import Context
from acme_ext.agents.discrete_sac import acting, learning, losses
from acme_ext.agents.discrete_sac.config import DiscreteSACConfig
from acme_ext.agents.discrete_sac.networks import Networks, make_networks
from acme_ext.agents.sac import losses as sac
from acme_ext.errors import UsageError
from acme_ext.ops import masking
from acme_ext.types import Sample, Transition

KEY = jax.random.key(0)
RATE = 0.1
OBSERVATION = np.zeros((1, 2), np.float32)
PROBS = np.array([0.5, 0.3, 0.2])
Q = np.array([[[1.0, 4.0, 0.0]], [[2.0, 3.0, 5.0]]])  # of two critics


def test_expectations_by_hand():
    q, log_prob = losses.expected(np.log(PROBS)[None], Q)
    # The smaller of the critics, action by action: 1, 3 and 0.
    np.testing.assert_allclose(q, [[0.5 + 0.9]], rtol=1e-6)
    np.testing.assert_allclose(log_prob, [np.sum(PROBS * np.log(PROBS))], rtol=1e-6)


def test_expectations_are_the_means_of_sacs_samples():
    actions = jax.random.categorical(KEY, jnp.log(PROBS), shape=(100_000,))
    temperature = jnp.float32(0.7)
    sampled = sac.policy_loss(jnp.asarray(Q[:, 0])[:, actions], jnp.log(PROBS)[actions], temperature)
    exact = sac.policy_loss(*losses.expected(np.log(PROBS)[None], Q), temperature)
    assert sampled == pytest.approx(float(exact), abs=0.02)


@pytest.mark.parametrize("illegal", [0.0, 1_000.0, -1_000.0])
def test_what_is_said_of_an_illegal_action_counts_for_nothing(illegal):
    legal = np.array([[True, True, False]])

    def loss(logits, q):
        return sac.policy_loss(*losses.expected(masking.masked(logits, legal), q), jnp.float32(0.7))

    logits = np.array([[0.1, -0.4, illegal]], np.float32)
    q = np.concatenate([Q[..., :2], np.full((2, 1, 1), illegal)], axis=-1)
    value, (by_logits, by_q) = jax.value_and_grad(loss, (0, 1))(logits, q)
    expected, (of_two, _) = jax.value_and_grad(
        lambda logits, q: sac.policy_loss(*losses.expected(logits, q), jnp.float32(0.7)), (0, 1)
    )(logits[:, :2], Q[..., :2])
    assert value == pytest.approx(float(expected), rel=1e-6)
    np.testing.assert_allclose(by_logits, np.append(of_two, 0.0)[None], rtol=1e-5, atol=1e-7)
    assert not np.any(by_q[..., 2])


def test_the_entropy_to_keep_is_a_share_of_that_of_the_legal_actions():
    assert losses.target_entropy(0.98, 4, None) == pytest.approx(0.98 * np.log(4))
    legal = np.array([[True, True, False], [True, False, False], [False, False, False]])
    np.testing.assert_allclose(losses.target_entropy(0.5, 3, legal), [0.5 * np.log(2), 0, 0])


def tabular():
    """A policy and critics that say the same of every observation: their parameters."""

    def constant(observation):
        return jnp.broadcast_to(hk.get_parameter("w", (3,), init=jnp.zeros), (len(observation), 3))

    return Networks(3, hk.transform(constant), hk.transform(constant))


def test_a_step_by_hand():
    config = DiscreteSACConfig(learning_rate=RATE, target_rate=0.25, target_entropy_share=0.5)
    core = learning.make_core(tabular(), config, OBSERVATION)
    state = core.init(KEY)
    online = jnp.array([[1.0, 4.0, 0.0], [2.0, 3.0, 5.0]])
    target = jnp.array([[2.0, 0.0, 1.0], [1.0, 1.0, 3.0]])
    temperature = 0.5
    state = state._replace(
        policy=state.policy._replace(params={"~": {"w": jnp.log(jnp.array(PROBS, jnp.float32))}}),
        critics=state.critics._replace(params={"~": {"w": online}}),
        target_critics={"~": {"w": target}},
        log_temperature=state.log_temperature._replace(params=jnp.log(temperature)),
    )
    seen = np.zeros((2, 2), np.float32)
    batch = Transition(seen, np.array([1, 2]), np.array([1.0, -1.0]), np.array([0.5, 0.0]), seen)
    after, metrics, errors = core.step(state, Sample(batch, np.array([1.0, 0.5])))
    entropy = -np.sum(PROBS * np.log(PROBS))
    # The smaller targets are 1, 0 and 1; the second transition ended.
    y = 1 + 0.5 * (0.5 + 0.2 + temperature * entropy)
    of_each = np.array([[y - 4, -1 - 0], [y - 3, -1 - 5]])
    np.testing.assert_allclose(errors, np.abs(of_each).mean(0), rtol=1e-5)
    assert metrics["loss"] == pytest.approx(np.sum(of_each**2 * [1.0, 0.5]) / 4, rel=1e-5)
    # Adam's first step is the learning rate against the gradient's sign; action 0 was not taken.
    moved = np.asarray(online) + RATE * np.sign(np.stack([np.zeros(2), *of_each.T], axis=-1))
    np.testing.assert_allclose(after.critics.params["~"]["w"], moved, rtol=1e-5)
    # The policy goes towards the smaller of the new critics.
    value = moved.min(0) - temperature * np.log(PROBS)
    gradient = -PROBS * (value - PROBS @ value)
    assert metrics["policy_loss"] == pytest.approx(-PROBS @ value, rel=1e-5)
    np.testing.assert_allclose(after.policy.params["~"]["w"], np.log(PROBS) - RATE * np.sign(gradient), rtol=1e-4)
    # The entropy is above half of log 3, so the temperature falls.
    assert metrics["entropy"] == pytest.approx(entropy, rel=1e-5)
    assert entropy > 0.5 * np.log(3)
    assert after.log_temperature.params == pytest.approx(np.log(temperature) - RATE, rel=1e-4)
    np.testing.assert_allclose(after.target_critics["~"]["w"], 0.25 * moved + 0.75 * np.asarray(target), rtol=1e-5)


def test_the_entropy_comes_to_its_target():
    config = DiscreteSACConfig(learning_rate=1e-2, target_entropy_share=0.4)
    core = learning.make_core(tabular(), config, OBSERVATION)
    seen = np.zeros((3, 2), np.float32)
    batch = Transition(seen, np.arange(3), np.array([1.0, 0.5, -1.0]), np.zeros(3), seen)
    sample = Sample(batch, np.ones(3))

    @jax.jit
    def steps(state):
        return jax.lax.scan(lambda state, _: core.step(state, sample)[:2], state, None, length=3_000)

    _, metrics = steps(core.init(KEY))
    assert np.mean(metrics["entropy"][-500:]) == pytest.approx(0.4 * np.log(3), abs=0.02)


def test_it_samples_in_training_and_takes_the_likeliest_in_evaluation():
    count = 20_000
    params = {"~": {"w": jnp.log(jnp.array(PROBS, jnp.float32))}}
    context = Context(jax.random.split(KEY, count), jnp.int32(0), jnp.zeros(count), jnp.zeros(count))
    observation = np.zeros((count, 2), np.float32)
    taken = {
        evaluation: acting.make_policy(tabular(), DiscreteSACConfig(), evaluation=evaluation).apply(
            params, context, observation, ()
        )[0]
        for evaluation in (False, True)
    }
    np.testing.assert_allclose(np.bincount(taken[False]) / count, PROBS, atol=0.015)
    assert np.all(taken[True] == 0)


def test_pictures_go_through_convolutions_with_a_layer_after_them():
    networks = make_networks(discrete(4, (12, 12, 2), np.uint8), DiscreteSACConfig(image_features=32))
    params = networks.policy.init(KEY, np.zeros((1, 12, 12, 2), np.uint8))
    assert any(leaf.shape[-1] == 32 for leaf in jax.tree.leaves(params))
    assert networks.policy.apply(params, None, np.zeros((5, 12, 12, 2), np.uint8)).shape == (5, 4)


@pytest.mark.parametrize(("field", "value"), [("target_entropy_share", 1.2), ("init_temperature", 0.0)])
def test_settings_that_make_no_sense_are_refused(field, value):
    with pytest.raises(UsageError, match=field):
        DiscreteSACConfig(**{field: value})
