from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from unrolls import random_unrolls

from acme_ext.agents.ppo import learning, losses
from acme_ext.agents.ppo.config import PPOConfig
from acme_ext.agents.ppo.networks import Output
from acme_ext.learning.normalize import VALUE_LAYER
from acme_ext.networks.recurrent import NO_ACTION, RecurrentNetwork
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical
from acme_ext.replay.config import UnrollConfig
from acme_ext.types import Sample

KEY = jax.random.key(0)


def linear(inputs, state):
    """Logits `x * w`, one for each of 4 actions, and the value `x * v`, of the observation's first number x."""
    x = inputs.observation[..., 0]
    w = hk.get_parameter("w", (4,), init=jnp.zeros)
    v = hk.get_parameter("v", (), init=jnp.ones)
    return Output(Categorical(x[..., None] * w), v * x), state


def network_of(function, action=NO_ACTION):
    return RecurrentNetwork(hk.transform(function), None, np.asarray(action), lambda reward: reward)


PLAIN: dict[str, Any] = {
    "normalize_values": False,
    "normalize_advantages": False,
    "max_gradient_norm": None,
    "num_epochs": 1,
    "num_minibatches": 1,
    "entropy_coef": 0.0,
    "gae_lambda": 0.5,
    "replay": UnrollConfig(length=2),
    "batch_size": 1,
}
OBSERVATION = np.array([[[1.0]], [[2.0]], [[-1.0]]], np.float32)


def core_of(network=linear, observation=OBSERVATION[0], **fields):
    return learning.make_core(network_of(network), PPOConfig(**{**PLAIN, **fields}), observation)


def sample(unrolls):
    return Sample(unrolls, np.ones(unrolls.reward.shape[1], np.float32))


def unrolls(**fields):
    """One unroll of two steps: rewards 3 and -1, actions 0 and 2, discount 0.9."""
    reward = np.array([[9.0], [3.0], [-1.0]], np.float32)
    action = np.array([[0], [2]], np.int32)
    made = {"observation": OBSERVATION, "reward": reward, "action": action, **fields}
    return random_unrolls(len(made["action"]), 1, (1,), **made)


def test_losses_by_hand():
    # The values are 1, 2, -1: errors 3 + 0.9 * 2 - 1 and -1 + 0.9 * -1 - 2.
    delta = np.array([3.8, -3.9])
    advantage = np.array([delta[0] + 0.45 * delta[1], delta[1]])
    core = core_of()
    state, metrics, errors = jax.jit(core.step)(core.init(KEY), sample(unrolls()))
    assert errors is None
    np.testing.assert_allclose(metrics["policy_loss"], -np.mean(advantage), rtol=1e-5)  # the ratios are 1
    np.testing.assert_allclose(metrics["value_loss"], np.mean(advantage**2), rtol=1e-5)
    np.testing.assert_allclose(metrics["loss"], -np.mean(advantage) + 0.5 * np.mean(advantage**2), rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], np.log(4), rtol=1e-5)
    np.testing.assert_allclose(metrics["kl"], 0, atol=1e-6)
    # By w: -mean A_t x_t (1(a_t) - 1/4); by v: 0.5 * mean 2 (V - target) x, with V - target = -A.
    x, chosen = np.array([1.0, 2.0]), np.eye(4)[[0, 2]]
    by_w = -np.mean((advantage * x)[:, None] * (chosen - 0.25), axis=0)
    by_v = -np.mean(advantage * x)
    np.testing.assert_allclose(metrics["gradient_norm"], np.sqrt(np.sum(by_w**2) + by_v**2), rtol=1e-5)
    ((_, params),) = state.trained.params.items()
    # Adam's first step is the gradient's sign, times the learning rate.
    np.testing.assert_allclose(params["w"], -3e-4 * np.sign(by_w), rtol=1e-2)
    assert state.steps == 1


def test_entropy_makes_the_loss_smaller():
    core = core_of(entropy_coef=0.3)
    _, metrics, _ = core.step(core.init(KEY), sample(unrolls()))
    of_values = 0.5 * metrics["value_loss"]
    np.testing.assert_allclose(metrics["loss"], metrics["policy_loss"] + of_values - 0.3 * np.log(4), rtol=1e-5)


def test_the_ratio_is_to_the_probability_that_was_stored():
    log_prob = np.log([[0.125], [0.5]]).astype(np.float32)
    core = core_of(gae_lambda=0.0, value_coef=0.0)
    _, metrics, _ = core.step(core.init(KEY), sample(unrolls(extras={"log_prob": log_prob})))
    # The ratios are 2 and 1/2: clipped to 1.2 with a gain, and to 0.8 with a loss, where both are worse.
    np.testing.assert_allclose(metrics["loss"], np.mean([-1.2 * 3.8, 0.8 * 3.9]), rtol=1e-5)
    np.testing.assert_allclose(metrics["kl"], np.mean([2 - 1 - np.log(2), 0.5 - 1 + np.log(2)]), atol=1e-6)


def test_the_clip_falls_to_0():
    """With a clip of 0 a ratio that gains costs what a ratio of 1 does."""
    log_prob = np.log([[0.125], [0.5]]).astype(np.float32)
    core = core_of(gae_lambda=0.0, value_coef=0.0, clip_decay_steps=4)
    for steps, clip in ((0, 0.2), (2, 0.1), (9, 0.0)):
        state = core.init(KEY)._replace(steps=jnp.int32(steps))
        _, metrics, _ = core.step(state, sample(unrolls(extras={"log_prob": log_prob})))
        np.testing.assert_allclose(metrics["loss"], np.mean([-(1 + clip) * 3.8, (1 - clip) * 3.9]), rtol=1e-5)


def test_rewards_are_clipped_before_anything_else():
    core = core_of(max_abs_reward=1.0)
    _, metrics, _ = core.step(core.init(KEY), sample(unrolls()))
    clipped = np.array([[1.0], [1.0], [-1.0]], np.float32)
    _, expected, _ = core_of().step(core.init(KEY), sample(unrolls(reward=clipped)))
    np.testing.assert_array_equal(metrics["loss"], expected["loss"])


def test_a_clipped_value_costs_the_greater_of_two_errors():
    value, before = jnp.array([1.0, 1.0, 0.4, 3.0]), jnp.array([0.0, 2.0, 0.0, 0.0])
    target = jnp.array([2.0, 0.0, 0.0, 0.0])
    # Half of a unit from `before` at most: 0.5, 1.5, 0.4 and 0.5.
    found = losses.value_loss(value, target, before, 0.5)
    np.testing.assert_allclose(found, [1.5**2, 1.5**2, 0.4**2, 3.0**2], rtol=1e-6)
    np.testing.assert_allclose(losses.value_loss(value, target), np.square(value - target))


@pytest.mark.parametrize("popart", [False, True])
def test_values_have_not_moved_before_the_first_update(popart):
    """With a clip of next to nothing, the first minibatch then costs and teaches what it does without a clip."""

    def named(inputs, state):
        x = inputs.observation[..., 0]
        value = hk.Linear(1, w_init=jnp.ones, name=VALUE_LAYER)(x[..., None])[..., 0]
        return Output(Categorical(x[..., None] * hk.get_parameter("w", (4,), init=jnp.zeros)), value), state

    found = []
    for value_clip in (None, 1e-3):
        core = core_of(named, normalize_values=True, popart=popart, value_clip=value_clip)
        _, metrics, _ = core.step(core.init(KEY), sample(unrolls()))
        found.append((metrics["value_loss"], metrics["gradient_norm"]))
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_a_batch_is_left_when_the_policy_has_moved_too_far():
    fields: dict[str, Any] = {"num_epochs": 8, "learning_rate": 0.3}
    core, bounded = core_of(**fields), core_of(**fields, target_kl=0.01)
    _, metrics, _ = core.step(core.init(KEY), sample(unrolls()))
    after, found, _ = bounded.step(bounded.init(KEY), sample(unrolls()))
    once, _, _ = core_of(num_epochs=1, learning_rate=0.3).step(core.init(KEY), sample(unrolls()))
    # The first update, at a divergence of 0, is made; the second finds too large a one.
    jax.tree.map(np.testing.assert_array_equal, after.trained, once.trained)
    assert found["learned_share"] == 1 / 8
    assert "learned_share" not in metrics
    wide = core_of(**fields, target_kl=1e6)
    assert wide.step(wide.init(KEY), sample(unrolls()))[1]["learned_share"] == 1


def test_a_batch_that_was_left_is_not_taken_up_again():
    """Of two minibatches, one step each, the policy has moved far by the second alone."""
    log_prob = np.log([[0.25], [0.001]]).astype(np.float32)
    core = core_of(num_epochs=8, num_minibatches=2, target_kl=0.5)
    _, metrics, _ = core.step(core.init(KEY), sample(unrolls(extras={"log_prob": log_prob})))
    assert metrics["learned_share"] <= 1 / 16


@pytest.mark.parametrize("discount", [0.0, 0.9])
def test_what_is_no_step_is_not_learned_from(discount):
    """The second of three steps leads from an episode's end, a termination or a truncation, to the next one."""
    observation = np.array([1.0, 2.0, 5.0, 3.0], np.float32)[:, None, None]
    reward = np.array([[0.0], [3.0], [0.0], [1.0]], np.float32)
    masked = unrolls(
        observation=observation,
        reward=reward,
        action=np.array([[0], [1], [2]], np.int32),
        discount=np.array([[discount], [0.0], [0.9]], np.float32),
        mask=np.array([[1.0], [0.0], [1.0]], np.float32),
        extras={"log_prob": np.log([[0.25], [0.001], [0.25]]), "learner_steps": np.array([[0], [-99], [0]])},
    )
    core = core_of(gae_lambda=0.95, replay=UnrollConfig(length=3))
    _, metrics, _ = core.step(core.init(KEY), sample(masked))
    # A truncation bootstraps from the episode's last value 2.
    errors = np.array([3 + discount * 2 - 1, 1 + 0.9 * 3 - 5])
    np.testing.assert_allclose(metrics["policy_loss"], -np.mean(errors), rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], np.mean(errors**2), rtol=1e-5)
    assert metrics["lag"] == metrics["lag_max"] == 0


def test_each_epoch_learns_from_every_step_once():
    """With plain gradient descent that hardly moves, the epochs' updates add up to the whole batch's gradient each."""
    batch = random_unrolls(6, 4, (1,))
    found = []
    for epochs, parts in ((1, 1), (2, 6)):
        core = learning.core_of_policy_loss(
            lambda log_prob, behaviour, advantage, learner_steps: -log_prob * advantage,
            network_of(linear),
            PPOConfig(**{**PLAIN, "replay": UnrollConfig(length=6), "batch_size": 4}),
            optax.sgd(1e-6),
            np.zeros((1, 1), np.float32),
            epochs=epochs,
            parts=parts,
        )
        state = core.init(KEY)
        after, _, _ = core.step(state, sample(batch))
        # The policy's; the value's, beside its 1, is lost in rounding.
        (before,), (params,) = state.trained.params.values(), after.trained.params.values()
        found.append((params["w"] - before["w"]) / (epochs * parts))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3, atol=1e-10)


def test_the_learning_rate_falls_to_0_in_learner_steps_of_several_updates():
    core = core_of(num_epochs=2, num_minibatches=2, learning_rate_decay_steps=2)
    state, moved = core.init(KEY), []
    for _ in range(3):
        before, (state, _, _) = state, core.step(state, sample(unrolls()))
        moved.append(optax.tree.norm(jax.tree.map(jnp.subtract, state.trained.params, before.trained.params)))
    assert moved[1] > 0  # though the optimizer has made 4 updates by then
    assert moved[2] == 0


def test_the_learning_rate_falls_in_batches_that_are_left_too():
    fields: dict[str, Any] = {"num_epochs": 2, "num_minibatches": 2, "learning_rate_decay_steps": 3}
    core, bounded = core_of(**fields), core_of(**fields, target_kl=1e-9)
    state = bounded.init(KEY)
    for _ in range(3):
        state, metrics, _ = bounded.step(state, sample(unrolls()))
    assert metrics["learned_share"] == 0
    after, _, _ = core.step(state, sample(unrolls()))
    jax.tree.map(np.testing.assert_array_equal, after.trained.params, state.trained.params)


def test_values_are_learned_in_units_of_their_targets():
    core = core_of(normalize_values=True, gae_lambda=1.0)
    state = core.init(KEY)
    after, metrics, _ = core.step(state, sample(unrolls()))
    # The values were 1, 2, -1 in units of 1: the targets are the returns -1 + 0.9 * -1 and 3 + 0.9 * that.
    targets = np.array([3 + 0.9 * -1.9, -1.9])
    np.testing.assert_allclose(after.values.mean, targets.mean(), rtol=1e-5)
    np.testing.assert_allclose(after.values.variance, targets.var(), rtol=1e-5)
    # Normalised they are 1 and -1, and the network said 1 and 2.
    np.testing.assert_allclose(metrics["value_loss"], np.mean([0, 9]), rtol=1e-5, atol=1e-5)
    # The next batch's values are read in these units: with a discount of 0 an advantage is the reward less the value.
    again = unrolls(discount=np.zeros((2, 1), np.float32))
    last, metrics, _ = core.step(after, sample(again))
    values = targets.mean() + targets.std() * np.array([1.0, 2.0])
    advantage = ([3, -1] - values) / np.sqrt(last.values.variance)
    np.testing.assert_allclose(metrics["policy_loss"], -np.mean(advantage), rtol=1e-2)


def test_continuous_actions_are_those_that_were_sampled():
    def gaussian(inputs, state):
        x = inputs.observation[..., :1]
        mean = x * hk.get_parameter("w", (1,), init=jnp.ones)
        return Output(Gaussian(mean, jnp.full_like(mean, 2.0)), x[..., 0]), state

    sampled = np.array([[[1.5]], [[-4.0]]], np.float32)
    log_prob = np.asarray(Gaussian(OBSERVATION[:2], np.full((2, 1, 1), 2.0)).log_prob(sampled))
    config = PPOConfig(**PLAIN)
    core = learning.make_core(network_of(gaussian, np.zeros(1, np.float32)), config, OBSERVATION[0])
    _, metrics, _ = core.step(core.init(KEY), sample(unrolls(action=sampled, extras={"log_prob": log_prob})))
    np.testing.assert_allclose(metrics["kl"], 0, atol=1e-6)
    np.testing.assert_allclose(metrics["entropy"], np.log(2) + 0.5 * (1 + np.log(2 * np.pi)), rtol=1e-5)


def test_the_lag_is_the_age_of_the_policy_that_acted():
    core = core_of()
    state = core.init(KEY)._replace(steps=jnp.int32(7))
    batch = unrolls(extras={"learner_steps": np.array([[7], [4]], np.int32)})
    _, metrics, _ = core.step(state, sample(batch))
    assert (metrics["lag"], metrics["lag_max"]) == (1.5, 3)


def test_a_batch_is_shuffled_differently_each_time():
    core = core_of(num_minibatches=2, num_epochs=2, replay=UnrollConfig(length=8))
    batch = random_unrolls(8, 1, (1,))
    state = core.init(KEY)
    first, _, _ = core.step(state, sample(batch))
    other, _, _ = core.step(state._replace(key=jax.random.key(1)), sample(batch))
    again, _, _ = core.step(state, sample(batch))
    weights = [np.asarray(jax.tree.leaves(s.trained.params)[1]) for s in (first, other, again)]
    assert np.any(weights[0] != weights[1])
    np.testing.assert_array_equal(weights[0], weights[2])
    assert not np.array_equal(jax.random.key_data(first.key), jax.random.key_data(state.key))


def test_a_minibatch_has_the_state_of_each_of_its_unrolls():
    time = np.arange(6.0).reshape(2, 3)
    steps = learning.Steps(time, {"hidden": np.arange(3.0)}, *[time] * 6)
    taken = steps.take(np.array([2, 0]))
    np.testing.assert_array_equal(taken.state["hidden"], [2, 0])
    np.testing.assert_array_equal(taken.mask, time[:, [2, 0]])
