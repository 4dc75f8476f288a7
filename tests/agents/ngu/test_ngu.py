"""NGU's own part: the family of policies, the bonus as it acts, and what R2D2 is asked to learn."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spec_of

from acme_ext.acting.inference import InferenceCore, slot_keys
from acme_ext.agents.ngu import acting, config, learning
from acme_ext.agents.ngu.acting import NGUExtras
from acme_ext.agents.ngu.config import NGUConfig
from acme_ext.agents.r2d2 import acting as r2d2
from acme_ext.builders import NGU, R2D2
from acme_ext.errors import UsageError
from acme_ext.replay.config import SequenceConfig
from acme_ext.types import Sample, Sequence

SMALL = {
    "hidden_sizes": (8,),
    "core_size": 6,
    "batch_size": 3,
    "memory_rows": 16,
    "neighbours": 3,
    "replay": SequenceConfig(length=4, burn_in=2, period=2, prioritized=True),
}
SPEC = spec_of.discrete(3, (4,))
STEPS, BATCH = 6, 3


def test_the_family_is_the_published_one():
    betas, discounts = config.betas(32, 0.3), config.discounts(32, 0.997, 0.99)
    assert (betas[0], betas[-1]) == (0, np.float32(0.3))
    assert betas[15] == pytest.approx(0.15)
    assert (np.diff(betas) >= 0).all()
    assert discounts[16] == pytest.approx(0.99442, abs=1e-5)
    assert (discounts[0], discounts[-1]) == (pytest.approx(0.997), pytest.approx(0.99))
    assert (np.diff(discounts) < 0).all()
    np.testing.assert_array_equal(config.betas(2, 0.3), np.float32([0, 0.3]))
    np.testing.assert_array_equal(config.betas(1, 0.0), [0])


def test_the_preset_has_the_published_values_where_they_differ_from_r2d2s():
    found = config.ATARI
    assert (found.target_period, found.adam_epsilon, found.evaluation_epsilon) == (1_500, 1e-4, 0.01)
    assert (found.epsilon_base, found.epsilon_steepness) == (0.4, 8)
    assert (found.replay.min_size, found.replay.max_size * found.replay.period) == (6_250, 5_000_000)
    assert (found.learning_rate, found.max_gradient_norm, found.variable_period) == (1e-4, 40, 100)


def sequences(arm=(1, 0, 2), extras=True):
    """Three sequences of 6 steps: whole; ended by a termination after 4; and begun by padding."""
    rng = np.random.default_rng(0)
    mask = np.ones((STEPS, BATCH), np.float32)
    mask[4:, 1] = 0
    mask[:2, 2] = 0
    discount = mask.copy()
    discount[3, 1] = 0
    there = np.concatenate([mask > 0, np.ones((1, BATCH), bool)])
    there[4, 1], there[5:, 1] = True, False
    at_all = {
        name: (rng.uniform(0.2, 1, (STEPS + 1, BATCH)) * there).astype(np.float32)
        for name in ("taken", "best", "probability", "bonus")
    }
    return Sequence(
        observation=(rng.normal(size=(STEPS + 1, BATCH, 4)) * there[..., None]).astype(np.float32),
        reward=(rng.normal(size=(STEPS + 1, BATCH)) * there).astype(np.float32),
        first=np.arange(STEPS + 1)[:, None] == np.array([-1, 0, 2]),
        action=(rng.integers(3, size=(STEPS, BATCH)) * mask).astype(np.int32),
        discount=discount,
        mask=mask,
        extras=NGUExtras(**at_all, arm=(np.array(arm) * there).astype(np.int32)) if extras else (),
    )


def test_what_a_sequence_asks_to_be_learned():
    batch, c = sequences(), NGUConfig(num_arms=3, exploiting_share=0.0, **SMALL)
    inputs, steps, bonus, beta = learning.asked(batch, c)
    np.testing.assert_array_equal(beta, c.betas[[1, 0, 2]])
    # The bonus of a step came with the next timestep, also at the end of a sequence and of an episode.
    # Steps are those after a burn-in of 2.
    np.testing.assert_array_equal(bonus[:, 0], batch.extras.bonus[3:, 0])
    np.testing.assert_array_equal(bonus[:, 1], [*batch.extras.bonus[3:5, 1], 0, 0])
    np.testing.assert_array_equal(bonus[:, 2], batch.extras.bonus[3:, 2])
    assert bonus[3, 0] > 0
    assert bonus[1, 1] > 0
    np.testing.assert_array_equal(steps.mask, batch.mask[2:])
    np.testing.assert_array_equal(steps.reward, batch.reward[3:])
    np.testing.assert_allclose(steps.discount[:, 0], c.discounts[1])
    assert float(steps.discount[1, 1]) == 0
    np.testing.assert_array_equal(inputs.observation.arm[:, 2], [2] * 7)
    np.testing.assert_array_equal(inputs.observation.bonus, batch.extras.bonus)


def test_the_policy_without_a_bonus_may_learn_from_what_the_others_do():
    batch, c = sequences(arm=(1, 2, 2)), NGUConfig(num_arms=3, exploiting_share=0.7, **SMALL)
    inputs, steps, _, beta = learning.asked(batch, c)
    np.testing.assert_array_equal(beta, c.betas[[0, 0, 2]])
    np.testing.assert_array_equal(inputs.observation.arm, np.tile([0, 0, 2], (7, 1)))
    np.testing.assert_allclose(steps.discount[0, :2], c.discounts[0])
    # What came and what was probable as it acted stay as they were.
    np.testing.assert_array_equal(inputs.observation.bonus, batch.extras.bonus)
    np.testing.assert_array_equal(steps.probability, batch.extras.probability[2:-1])


@pytest.mark.release
def test_shuffled_bonuses_are_the_same_ones_at_other_steps():
    batch, c = sequences(), NGUConfig(num_arms=3, **SMALL)
    other = learning.shuffled(jax.random.key(0), batch)
    bonus, dealt = (acting.bonuses_of(each) for each in (batch, other))
    assert (np.asarray(bonus) != dealt).sum() > 6
    np.testing.assert_array_equal(np.sort(bonus, axis=None), np.sort(dealt, axis=None))
    np.testing.assert_array_equal(batch.mask, other.mask)
    np.testing.assert_array_equal(other.extras.bonus[0], batch.extras.bonus[0])
    states, losses = [], []
    for shuffled in (False, True):
        agent = NGU(dataclasses.replace(c, shuffled=shuffled)).make_agent(SPEC)
        data = batch._replace(state=jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.replay.example(3)).state)
        state, metrics, _ = agent.core.step(agent.core.init(jax.random.key(0)), Sample(data, np.ones(3, np.float32)))
        states.append((state.embedding, state.distillation.predictor, state.errors))
        losses.append(float(metrics["loss"]))
    assert losses[0] != losses[1]
    jax.tree.map(np.testing.assert_array_equal, *states)


def test_last_steps_are_of_each_sequence_its_own():
    steps = learning.last_steps(sequences(), 2)
    batch = sequences()
    np.testing.assert_array_equal(steps.before[:3], batch.observation[[5, 3, 5], [0, 1, 2]])
    np.testing.assert_array_equal(steps.after[:3], batch.observation[[6, 4, 6], [0, 1, 2]])
    np.testing.assert_array_equal(steps.action[3:], batch.action[[4, 2, 4], [0, 1, 2]])
    np.testing.assert_array_equal(learning.last_steps(batch, 5).mask.reshape(5, 3).sum(axis=0), [5, 4, 4])


@pytest.mark.slow
def test_a_family_of_one_without_bonus_is_r2d2_with_retrace():
    c = NGUConfig(num_arms=1, beta=0.0, **SMALL)
    kept = {field.name: getattr(c, field.name) for field in dataclasses.fields(R2D2().config)}
    ngu = NGU(c).make_agent(SPEC)
    r2d2 = R2D2(dataclasses.replace(R2D2().config, **kept), average_rate=None).make_agent(SPEC)
    state = ngu.core.init(jax.random.key(0))
    other = state.values
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), r2d2.replay.example(BATCH))
    batch = sequences(arm=(0, 0, 0))
    assert float(c.discounts[0]) == pytest.approx(c.discount)
    assert jax.tree.structure(other) == jax.tree.structure(r2d2.core.abstract_state())
    data = batch._replace(state=zeros.state)
    step, r2d2_step = jax.jit(ngu.core.step), jax.jit(r2d2.core.step)
    for _ in range(3):
        state, metrics, errors = step(state, Sample(data, np.ones(BATCH, np.float32)))
        # gamma is applied by the writer there.
        own = jax.tree.map(lambda x: x[:-1], data.extras)
        theirs = data._replace(discount=c.discounts[0] * data.discount, extras=own)
        other, other_metrics, other_errors = r2d2_step(other, Sample(theirs, np.ones(BATCH, np.float32)))
        np.testing.assert_allclose(errors, other_errors, rtol=1e-5)
        assert float(metrics["loss"]) == pytest.approx(float(other_metrics["loss"]), rel=1e-5)
    for mine, his in zip(jax.tree.leaves(state.values.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(mine, his, atol=1e-6)


def acted(builder, observations, firsts, **options):
    """Returns the extras of acting in 2 environments; every observation is a NumPy array [2, 4]."""
    agent = builder.make_agent(SPEC)
    params = agent.core.variables(agent.core.init(jax.random.key(1)))["policy"]
    policy = agent.policy
    core = InferenceCore(policy, 2)
    core.assign_slots(np.arange(2), slot_keys(jax.random.key(0), 2), np.zeros(2, np.float32))
    params = getattr(params, "policy", params)
    found = []
    for tick, (observation, first) in enumerate(zip(observations, firsts, strict=True)):
        reward = np.full(2, options.get("reward", 0.0), np.float32)
        extras = core.step_all(params, tick, 0, np.array(first), reward, observation).extras
        found.append(jax.tree.map(np.asarray, getattr(extras, "policy", extras)))
    return found, core


def test_the_bonus_is_of_what_the_episode_has_not_seen():
    rng = np.random.default_rng(0)
    same = np.ones((2, 4), np.float32)
    new = [rng.normal(size=(2, 4)).astype(np.float32) * 5 for _ in range(4)]
    observations = [same, same, same, same, *new, same]
    found, _ = acted(NGU(NGUConfig(num_arms=2, **SMALL)), observations, [[True, True]] + [[False, False]] * 8)
    bonus = np.stack([extras.bonus for extras in found])
    assert not bonus[:3].any()  # fewer embeddings than neighbours
    assert (bonus[3] > 0.3).all()  # all of them the same: 1 / (sqrt(3) + 0.001), at least
    assert (bonus[4:8] > 1.5 * bonus[3]).all()
    # A new episode forgets: of the first environment only.
    again, _ = acted(
        NGU(NGUConfig(num_arms=2, **SMALL)),
        [*observations, same],
        [[True, True]] + [[False, False]] * 8 + [[True, False]],
    )
    assert again[-1].bonus[0] == 0
    assert again[-1].bonus[1] > 0


def test_a_policy_plays_whole_episodes():
    firsts = [[i % 5 == 0, i % 7 == 0] for i in range(60)]
    found, _ = acted(NGU(NGUConfig(num_arms=4, **SMALL)), [np.zeros((2, 4), np.float32)] * 60, firsts)
    arms = np.stack([extras.arm for extras in found])
    for env, period in enumerate((5, 7)):
        changes = np.nonzero(np.diff(arms[:, env]))[0] + 1
        assert all(change % period == 0 for change in changes)
    assert set(arms.ravel()) == {0, 1, 2, 3}
    # epsilon 0.4: a greedy action has 0.6 + 0.4 / 3, any other 0.4 / 3.
    probabilities = np.unique(np.stack([extras.probability for extras in found]).round(4))
    np.testing.assert_allclose(probabilities, [0.4 / 3, 0.6 + 0.4 / 3], atol=1e-4)


def test_evaluation_exploits():
    agent = NGU(NGUConfig(num_arms=4, **SMALL)).make_agent(SPEC)
    params = agent.core.variables(agent.core.init(jax.random.key(1)))["policy"]
    core = InferenceCore(agent.evaluation_policy, 2)
    extras = core.step_all(params, 0, 0, np.ones(2, bool), np.zeros(2, np.float32), np.zeros((2, 4), np.float32)).extras
    extras = getattr(extras, "policy", extras)
    np.testing.assert_array_equal(extras.arm, [0, 0])
    np.testing.assert_array_equal(extras.probability, [1, 1])


def test_first_priorities_are_of_each_policys_own_reward_and_discount():
    c, batch = NGUConfig(num_arms=3, **SMALL), sequences()
    got = acting.first_error(batch, c)
    plain = acting.first_error(sequences(arm=(0, 0, 0)), c)
    assert got.shape == (BATCH,)
    assert got[1] == pytest.approx(plain[1])
    assert abs(got[0] - plain[0]) > 1e-4


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"least_discount": 0.999}, "discount"),
        ({"memory_rows": 0}, "neighbours"),
        ({"retrace_lambda": None}, "Retrace"),
    ],
)
def test_a_family_that_does_not_fit_its_discount_its_memory_or_retrace_is_refused(fields, field):
    with pytest.raises(UsageError, match=field):
        NGUConfig(**fields)


def test_each_policy_learns_from_the_reward_and_its_share_of_the_bonus(monkeypatch):
    c, batch, arm, given = NGUConfig(num_arms=3, exploiting_share=0.0, **SMALL), sequences(), [1, 0, 2], []

    def td_error(q, q_target, steps, config):
        given.append(steps.reward)
        return jnp.zeros_like(steps.mask)

    monkeypatch.setattr(learning.r2d2, "td_error", td_error)
    agent = NGU(c).make_agent(SPEC)
    data = batch._replace(state=jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.replay.example(3)).state)
    loss = []
    monkeypatch.setattr(learning.r2d2, "core_of_loss", lambda *given: loss.append(given[0]))
    monkeypatch.setattr(learning, "with_bonus", lambda values, *_: agent.core)
    networks = NGU(c).make_networks(SPEC)
    learning.make_core(networks, c, np.zeros((1, 4), np.float32))
    params = networks.values.init(jax.random.key(0), learning.example(np.zeros((1, 4), np.float32)))
    loss[0](params, params, data, np.ones(BATCH, np.float32), None)
    reward = batch.reward[1:] + c.betas[arm] * batch.extras.bonus[1:] * batch.mask
    np.testing.assert_allclose(given[0], reward[2:], rtol=1e-6)
    own = batch._replace(
        reward=np.concatenate([batch.reward[:1], reward]),
        discount=batch.discount * c.discounts[arm],
        extras=jax.tree.map(lambda x: x[:-1], batch.extras),
    )
    np.testing.assert_allclose(acting.first_error(batch, c), r2d2.first_error(own, c), rtol=1e-5)
    assert (agent.replay.discount, agent.replay.last_extras) == (1.0, True)  # `asked` applies each policy's own gamma


def test_the_lifelong_novelty_multiplies_the_bonus(monkeypatch):
    found = []
    new = [np.random.default_rng(t).normal(size=(2, 4)).astype(np.float32) for t in range(6)]
    for factor in (1.0, 3.0):
        monkeypatch.setattr(acting.intrinsic, "lifelong_factor", lambda error, *_, f=factor: jnp.full_like(error, f))
        extras, _ = acted(NGU(NGUConfig(num_arms=2, **SMALL)), new, [[t == 0] * 2 for t in range(6)])
        found.append(np.stack([e.bonus for e in extras]))
    assert found[0][-1].all()
    np.testing.assert_allclose(found[1], 3 * found[0], rtol=1e-5)


def test_the_bonus_networks_are_trained():
    from acme_ext.types import Sample

    agent = NGU(NGUConfig(num_arms=3, **SMALL)).make_agent(SPEC)
    data = sequences()._replace(state=jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.replay.example(3)).state)
    before = agent.core.init(jax.random.key(0))
    after, _, _ = jax.jit(agent.core.step)(before, Sample(data, np.ones(3, np.float32)))
    for part in (lambda s: s.embedding.params, lambda s: s.distillation.predictor.params, lambda s: s.values.params):
        moved = jax.tree.map(lambda a, b: bool((a != b).any()), part(before), part(after))
        assert any(jax.tree.leaves(moved))
