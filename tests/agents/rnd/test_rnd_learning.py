"""RND's own part: the bonus, and what PPO is given of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spec_of

from acme_ext.agents.rnd import learning
from acme_ext.agents.rnd.config import RNDConfig
from acme_ext.builders import PPO, RND
from acme_ext.errors import UsageError
from acme_ext.learning import intrinsic, normalize
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.intrinsic import Distillation, DistillationConfig
from acme_ext.ops.intrinsic import continuing_advantages
from acme_ext.ops.policy import truncated_generalized_advantage_estimation
from acme_ext.replay.config import UnrollConfig
from acme_ext.types import Sample

SMALL = {"batch_size": 4, "num_minibatches": 2, "num_epochs": 1, "replay": UnrollConfig(length=8), "hidden_sizes": (8,)}
SPEC = spec_of.discrete(3, (5,))


def unrolls(agent, seed=0, **fields):
    rng = np.random.default_rng(seed)
    data = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.replay.example(4))
    data = data._replace(
        observation=rng.normal(size=data.observation.shape).astype(np.float32),
        discount=np.full(data.discount.shape, 0.9, np.float32),
        mask=np.ones(data.mask.shape, np.float32),
        extras=data.extras._replace(log_prob=np.full(data.mask.shape, np.log(1 / 3), np.float32)),
    )
    return Sample(data._replace(**fields), np.ones(4, np.float32))


PLAIN = {**SMALL, "normalize_observations": False}


@pytest.mark.slow
def test_without_a_bonus_it_is_ppo():
    """With the bonus's advantage weighed by 0, the reward's by 1, and no loss of its value, both take the same step."""
    config = RNDConfig(extrinsic_coef=1.0, intrinsic_coef=0.0, normalize_values=False, value_coef=0.0, **PLAIN)
    ppo = PPO().config.__class__(normalize_values=False, value_coef=0.0, **PLAIN)
    one = RND(config, average_rate=None).make_agent(SPEC)
    other = PPO(ppo, average_rate=None).make_agent(SPEC)
    mine, theirs = (agent.core.init(jax.random.key(0)) for agent in (one, other))
    sample = unrolls(one, reward=np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32))

    def shared(params):
        return {name: leaf for name, leaf in params.items() if name != list(params)[-1]}

    trained = mine.ppo.trained
    # The same policy, and of the two values the first.
    start = jax.tree.map(
        lambda ours, his: ours if ours.shape == his.shape else his[..., :1], trained.params, theirs.trained.params
    )
    theirs = theirs._replace(trained=theirs.trained._replace(params=start), key=mine.ppo.key)
    start = jax.tree.map(
        lambda ours, his: ours if ours.shape == his.shape else ours[..., :1], trained.params, theirs.trained.params
    )
    theirs = theirs._replace(trained=theirs.trained._replace(params=start))
    (mine, metrics, _), (theirs, other_metrics, _) = one.core.step(mine, sample), other.core.step(theirs, sample)
    assert float(metrics["policy_loss"]) == pytest.approx(float(other_metrics["policy_loss"]), rel=1e-4, abs=1e-6)
    for ours, his in zip(jax.tree.leaves(mine.ppo.trained.params), jax.tree.leaves(theirs.trained.params), strict=True):
        if ours.shape == his.shape:
            np.testing.assert_allclose(ours, his, atol=1e-6)


def test_the_bonus_is_quiet_first_then_for_what_is_new():
    config = RNDConfig(distillation=DistillationConfig(learning_rate=1e-2), **SMALL)
    agent = RND(config, average_rate=None).make_agent(SPEC)
    step, state, bonuses = jax.jit(agent.core.step), agent.core.init(jax.random.key(0)), []
    for number in range(60):
        state, metrics, _ = step(state, unrolls(agent))
        assert (state.core.scale.bonus.count > 0) == (number >= 2)
        bonuses.append(float(metrics["bonus"]))
        assert np.isfinite(float(metrics["loss"]))
    assert bonuses[:2] == [0, 0]
    assert bonuses[2] > 3 * bonuses[-1] > 0


def test_shuffled_bonuses_are_the_same_ones_at_other_steps():
    rng = np.random.default_rng(0)
    bonus, mask = rng.normal(size=(9, 4)).astype(np.float32), (rng.random((9, 4)) < 0.7).astype(np.float32)
    given = np.asarray(intrinsic.shuffle(jax.random.key(0), bonus, mask))
    there = mask > 0
    np.testing.assert_array_equal(given[~there], bonus[~there])
    np.testing.assert_array_equal(np.sort(given[there]), np.sort(bonus[there]))
    assert (given[there] != bonus[there]).mean() > 0.8
    assert (given != np.asarray(intrinsic.shuffle(jax.random.key(1), bonus, mask))).any()


@pytest.mark.release
def test_learning_from_shuffled_bonuses_differs_in_nothing_else():
    found = []
    for shuffled in (False, True):
        agent = RND(RNDConfig(quiet_steps=0, shuffled=shuffled, **SMALL), average_rate=None).make_agent(SPEC)
        found.append(agent.core.step(agent.core.init(jax.random.key(0)), unrolls(agent)))
    (plain, metrics, _), (other, others, _) = found
    assert float(metrics["bonus"]) == float(others["bonus"]) > 0
    jax.tree.map(np.testing.assert_array_equal, *(state.core.distillation.predictor.params for state in (plain, other)))
    assert float(metrics["value_loss"]) != float(others["value_loss"])


def test_nothing_else_has_the_key_of_the_shuffle(monkeypatch):
    keys, shuffle = [], intrinsic.shuffle
    monkeypatch.setattr(intrinsic, "shuffle", lambda key, *given: keys.append(key) or shuffle(key, *given))
    core = RND(RNDConfig(quiet_steps=0, shuffled=True, **SMALL), average_rate=None).make_agent(SPEC).core
    state = core.init(jax.random.key(0))
    sample = unrolls(RND(RNDConfig(**SMALL)).make_agent(SPEC))
    after, _, _ = core.step(state, sample)
    before, later = (each.core.distillation.key for each in (state, after))
    others = [before, later, *jax.random.split(before, 3), *jax.random.split(later, 3)]
    (key,) = (tuple(jax.random.key_data(key).tolist()) for key in keys)
    assert key not in [tuple(jax.random.key_data(other).tolist()) for other in others]


def test_the_reward_is_clipped_where_it_is_to_be():
    agent = RND(RNDConfig(max_abs_reward=1.0, **SMALL)).make_agent(SPEC)
    state = agent.core.init(jax.random.key(0))
    results = [agent.core.step(state, unrolls(agent, reward=np.full((9, 4), r, np.float32)))[1] for r in (1.0, 50.0)]
    assert float(results[0]["loss"]) == pytest.approx(float(results[1]["loss"]))


def test_errors_are_of_normalised_observations_and_of_each_alone():
    part = Distillation(DistillationConfig(), np.zeros((1, 5), np.float32))
    state, rng = part.init(jax.random.key(0)), np.random.default_rng(0)
    seen = rng.normal(3, 7, (64, 5)).astype(np.float32)
    state = part.seen(state, seen, np.ones(64, np.float32))
    np.testing.assert_allclose(state.observations.mean, seen.mean(axis=0), rtol=1e-4)
    errors = part.errors(state.params, seen)
    assert errors.shape == (64,)
    np.testing.assert_allclose(part.errors(state.params, seen.reshape(8, 8, 5)), errors.reshape(8, 8), rtol=1e-4)
    # A unit of the observation is none of the error: the same in other units, counted anew.
    other = part.seen(part.init(jax.random.key(0)), 10 * seen, np.ones(64, np.float32))
    np.testing.assert_allclose(part.errors(other.params, 10 * seen), errors, rtol=1e-3)


@pytest.mark.release
def test_pixels_are_normalised_too_and_the_newest_frame_is_taken():
    pixels = np.random.default_rng(0).integers(0, 255, (16, 12, 12, 4)).astype(np.uint8)
    part = Distillation(DistillationConfig(newest_frame=True), np.zeros((1, 12, 12, 4), np.uint8))
    state = part.seen(part.init(jax.random.key(0)), pixels, np.ones(16, np.float32))
    assert state.observations.mean.shape == (12, 12, 1)
    older = pixels.copy()
    older[..., :3] = 0
    np.testing.assert_array_equal(part.errors(state.params, older), part.errors(state.params, pixels))
    newest = np.where(np.arange(4) == 3, 0, pixels)
    assert (part.errors(state.params, newest) != part.errors(state.params, pixels)).all()


def test_the_newest_frame_is_of_pictures():
    seen = {"place": np.arange(6, dtype=np.float32).reshape(2, 3), "picture": np.zeros((2, 6, 6, 4), np.float32)}
    part = Distillation(DistillationConfig(newest_frame=True), jax.tree.map(lambda x: x[:1], seen))
    moments = part.init(jax.random.key(0)).observations
    assert jax.tree.map(jnp.shape, moments.mean) == {"place": (3,), "picture": (6, 6, 1)}
    with pytest.raises(UsageError, match="newest_frame is true: it is for images with channels"):
        Distillation(DistillationConfig(newest_frame=True), np.zeros((1, 3), np.float32))


def test_the_predictor_learns_what_it_is_shown_and_what_counts():
    part = Distillation(DistillationConfig(learning_rate=1e-2), np.zeros((1, 4), np.float32))
    state, eye = part.init(jax.random.key(0)), np.eye(4, dtype=np.float32)
    state = part.seen(state, eye, np.ones(4, np.float32))
    before, train = part.errors(state.params, eye), jax.jit(part.train)
    for _ in range(100):
        state, _ = train(state, eye, np.float32([1, 1, 1, 0]))
    after = part.errors(state.params, eye)
    assert (after[:3] < 0.1 * before[:3]).all()
    assert after[3] > 3 * after[:3].max()


def test_bonuses_are_scaled_by_the_deviation_of_their_sums():
    rng = np.random.default_rng(0)
    scale, mask = intrinsic.init_scale(), np.ones((100, 4), np.float32)
    for _ in range(20):
        bonus = rng.exponential(5.0, (100, 4)).astype(np.float32)
        scaled, scale = intrinsic.scaled(scale, bonus, mask, 0.9)
    # A sum of independent numbers of variance 25: 25 / (1 - 0.9**2), near enough from sums that begin at their mean.
    assert float(scale.returns.variance) == pytest.approx(25 / (1 - 0.81), rel=0.15)
    np.testing.assert_allclose(scaled, bonus / np.sqrt(float(scale.returns.variance)), rtol=1e-4)
    assert isinstance(scale.bonus, normalize.Moments)
    padded, _ = intrinsic.scaled(scale, bonus, mask * (np.arange(4) > 0), 0.9)
    assert not padded[:, 0].any()


def test_padding_changes_no_sums():
    bonus, mask = np.float32([5, 1, 9, 2])[:, None], np.float32([1, 1, 0, 1])[:, None]
    there = mask[:, 0] > 0
    padded, scale = intrinsic.scaled(intrinsic.init_scale(), bonus, mask, 0.9)
    alone, expected = intrinsic.scaled(intrinsic.init_scale(), bonus[there], mask[there], 0.9)
    np.testing.assert_allclose(padded[there], alone, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), scale, expected)


def test_small_pictures_have_bonuses_of_their_own():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 1)).astype(np.uint8)
    part = Distillation(DistillationConfig(), pixels[:1])
    state = part.seen(part.init(jax.random.key(0)), pixels, np.ones(4, np.float32))
    assert len(np.unique(part.errors(state.params, pixels))) == 4


@pytest.mark.parametrize("fields", [pytest.param({}, marks=pytest.mark.release), {"player": np.zeros(4, np.int32)}])
def test_the_rules_fields_beside_a_picture_are_left_out(fields):
    board = np.random.default_rng(0).integers(0, 2, (4, 6, 7, 2)).astype(np.bool_)
    observation = {"board": board, "action_mask": np.ones((4, 7), np.bool_), **fields}
    found = []
    for seen in (board, observation):
        part = Distillation(DistillationConfig(newest_frame=True), jax.tree.map(lambda x: x[:1], seen))
        state = part.seen(part.init(jax.random.key(0)), seen, np.ones(4, np.float32))
        state, _ = part.train(state, seen, np.ones(4, np.float32))
        found.append(part.errors(state.params, jax.tree.map(lambda x: x.reshape(2, 2, *x.shape[1:]), seen)))
    assert found[0].shape == (2, 2)
    np.testing.assert_array_equal(*found)


def test_the_published_agent_has_the_published_sizes():
    agent = RND().for_environment("atari:montezuma_revenge").make_agent(spec_of.discrete(4, (84, 84, 4), np.uint8))
    state = agent.core.abstract_state()
    target = jax.tree.leaves(state.distillation.target)
    assert sorted(leaf.shape for leaf in target if len(leaf.shape) == 4) == [
        (3, 3, 64, 64),
        (4, 4, 32, 64),
        (8, 8, 1, 32),
    ]
    assert (512, 512) in [leaf.shape for leaf in jax.tree.leaves(state.distillation.predictor.params)]
    assert state.ppo.values.mean.shape == (2,)


def test_more_distillation_updates_than_steps_in_a_batch_are_refused():
    with pytest.raises(UsageError, match=r"^distillation_updates is 1025"):
        RNDConfig(distillation_updates=1_025)  # a batch has 8 * 128 steps


def test_a_distillation_without_features_is_refused():
    with pytest.raises(UsageError, match="features is 0"):
        DistillationConfig(features=0)


def test_the_advantage_is_a_weighted_sum_of_the_rewards_and_the_bonuses(monkeypatch):
    found, rng = [], np.random.default_rng(0)

    def make_core(*_, advantages, **__):
        found.append(advantages)
        return LearnerCore(None, None, None)

    monkeypatch.setattr(learning.ppo, "make_core", make_core)
    config = RNDConfig(extrinsic_coef=2.0, intrinsic_coef=0.5, intrinsic_discount=0.8, gae_lambda=0.7, **SMALL)
    agent = RND(config, average_rate=None).make_agent(SPEC)
    data = unrolls(agent, reward=rng.normal(size=(9, 4)).astype(np.float32)).data
    bonus, values = rng.random((8, 4)).astype(np.float32), rng.normal(size=(9, 4, 2)).astype(np.float32)
    data = data._replace(extras=learning.RewardedBehaviour(data.extras.log_prob, data.extras.learner_steps, bonus))
    got, targets = found[0](data, values)
    of_reward = truncated_generalized_advantage_estimation(
        data.reward[1:], data.discount, 0.7, values[..., 0], data.mask
    )
    of_bonus = continuing_advantages(bonus, 0.8, 0.7, values[..., 1], data.mask, data.first)
    np.testing.assert_allclose(got, 2 * of_reward + 0.5 * of_bonus, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(targets[..., 1], of_bonus + values[:-1, :, 1], rtol=1e-5, atol=1e-6)
