"""Agent57's own part: values apart, and the bandit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spec_of

from acme_ext.acting.inference import InferenceCore
from acme_ext.acting.policy import Context
from acme_ext.agents.agent57 import acting, learning
from acme_ext.agents.agent57.config import ATARI, Agent57Config
from acme_ext.builders import Agent57
from acme_ext.errors import UsageError
from acme_ext.ops import multistep
from acme_ext.replay.config import SequenceConfig
from acme_ext.types import Sample

SMALL = {
    "hidden_sizes": (8,),
    "core_size": 6,
    "batch_size": 3,
    "memory_rows": 16,
    "neighbours": 3,
    "replay": SequenceConfig(length=4, burn_in=2, period=2, prioritized=True),
}
SPEC = spec_of.discrete(3, (4,))


def test_the_published_discounts():
    gamma = ATARI.discounts
    assert gamma[0] == pytest.approx(0.9999)
    assert gamma[7] == gamma[8] == pytest.approx(0.997)
    assert gamma[20] == pytest.approx(0.99438, abs=1e-5)
    assert gamma[31] == pytest.approx(0.99)
    assert (np.diff(gamma[1:7]) > 0).all()  # as it is printed
    for num in range(1, 12):
        small = Agent57Config(num_arms=num).discounts
        assert len(small) == num
        assert small[0] == pytest.approx(0.997)
        assert num < 2 or small[-1] == pytest.approx(0.97)


def test_the_preset_has_the_published_values_where_they_differ_from_r2d2s():
    assert (ATARI.target_period, ATARI.adam_epsilon, ATARI.evaluation_epsilon) == (1_500, 1e-4, 0.01)
    assert (ATARI.replay.length, ATARI.replay.period, ATARI.replay.importance_exponent) == (160, 80, 0)
    assert (ATARI.replay.min_size, ATARI.replay.max_size * ATARI.replay.period) == (6_250, 5_000_000)


def test_combined_values_by_hand():
    plain = acting.combined_values((jnp.array([[1.0, 2.0]]), jnp.array([[4.0, 6.0]])), jnp.array([0.5]), None)
    np.testing.assert_allclose(plain, [[3, 5]])
    h = [multistep.signed_hyperbolic(jnp.array([[x]]), 1e-3) for x in (10.0, 20.0, 10.0 + 0.3 * 20.0)]
    got = acting.combined_values((h[0], h[1]), jnp.array([0.3]), 1e-3)
    np.testing.assert_allclose(got, h[2], rtol=1e-4)


def test_the_target_policy_of_retrace_prefers_the_combined_values(monkeypatch):
    config, given = Agent57Config(num_arms=3, exploiting_share=0.0, **SMALL), []
    data = sample(Agent57(config).make_agent(SPEC), 1)

    def td_error(q, q_target, steps, config, *, preferred):
        given.append((steps.reward, preferred))
        return jnp.zeros_like(steps.mask)

    monkeypatch.setattr(learning.r2d2, "td_error", td_error)
    values = tuple(np.random.default_rng(0).normal(size=(2, 5, 3, 3)).astype(np.float32))
    monkeypatch.setattr(learning.r2d2, "values_of", lambda *_: values)
    monkeypatch.setattr(learning.r2d2, "core_of_loss", lambda loss, *_: loss)
    monkeypatch.setattr(learning.ngu, "with_bonus", lambda loss, *_: loss)
    loss = learning.make_core(Agent57(config).make_networks(SPEC), config, np.zeros((1, 4), np.float32))
    loss({}, {}, data, np.ones(3, np.float32), None)
    expected = acting.combined_values(values, np.full(3, config.betas[1]), config.rescaling_epsilon)
    for (reward, preferred), own in zip(given, (data.reward, data.extras.bonus), strict=True):
        np.testing.assert_array_equal(reward, own[3:])
        np.testing.assert_allclose(preferred, expected, rtol=1e-5)


def sample(agent, beta_arm):
    rng = np.random.default_rng(0)
    data = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), agent.replay.example(3))
    ones = np.ones_like(data.mask)
    extras = data.extras._replace(
        probability=np.ones_like(data.extras.probability),
        arm=np.full_like(data.extras.arm, beta_arm),
        bonus=rng.uniform(size=data.extras.bonus.shape).astype(np.float32),
    )
    observation = rng.normal(size=data.observation.shape).astype(np.float32)
    return data._replace(observation=observation, mask=ones, discount=ones, extras=extras)


@pytest.mark.slow
def test_each_kind_of_values_learns_from_its_own_reward():
    agent = Agent57(Agent57Config(num_arms=2, **SMALL)).make_agent(SPEC)
    state, step = agent.core.init(jax.random.key(0)), jax.jit(agent.core.step)

    data = sample(agent, 0)
    ended = data.discount.copy()
    ended[-1] = 0  # Reward and bonus are inputs of both networks, but no values are used after a termination.

    def gradients(**fields):
        learned, _, _ = step(state, Sample(data._replace(discount=ended, **fields), np.ones(3, np.float32)))
        return learned.values.optimizer.inner_states

    def last(x):
        return np.concatenate([x[:-1], x[-1:] + 1])

    usual = gradients()
    assert set(usual) == {"extrinsic", "intrinsic"}
    rewarded = gradients(reward=last(data.reward))
    surprised = gradients(extras=data.extras._replace(bonus=last(data.extras.bonus)))
    for name, changed, unchanged in (("extrinsic", rewarded, surprised), ("intrinsic", surprised, rewarded)):
        pairs = zip(*map(jax.tree.leaves, (usual[name], changed[name])), strict=True)
        assert any(not np.allclose(a, b) for a, b in pairs)
        jax.tree.map(np.testing.assert_array_equal, usual[name], unchanged[name])


def context(first, reward, seed=0):
    keys = jax.random.split(jax.random.key(seed), len(first))
    zeros = np.zeros(len(first), np.float32)
    return Context(keys, 0, zeros, np.array(reward, np.float32), np.array(first))


def test_the_bandit_is_told_an_episodes_return_where_the_next_begins():
    choice = acting.by_bandit(Agent57Config(num_arms=2, bandit_epsilon=0.0))
    state, arms = choice.init(1), []
    # Episodes with rewards 1 + 2, and 5: policy 0, then 1. The rewards come with the timesteps after the first.
    for first, reward in ((True, 0), (False, 1), (False, 2), (True, 0), (False, 5), (True, 0)):
        now = context([first], [reward])
        arm, state = choice.select(now.key, now, state)
        arms.append(int(arm[0]))
    assert arms[:5] == [0, 0, 0, 1, 1]
    counts = acting.bandits.in_window(jax.device_get(state.run), 2)
    np.testing.assert_array_equal(counts.plays, [[1, 1]])  # at the very first there was nothing to tell
    np.testing.assert_array_equal(counts.total, [[3, 5]])
    assert arms[5] == 1


@pytest.mark.slow
def test_a_resumed_run_does_not_count_the_episode_that_was_cut():
    agent = Agent57(Agent57Config(num_arms=2, **SMALL)).make_agent(SPEC)
    params = agent.core.variables(agent.core.init(jax.random.key(1)))["policy"]

    def step(core, first, reward):
        core.step_all(params, 0, 0, np.array([first]), np.float32([reward]), np.zeros((1, 4), np.float32))

    core = InferenceCore(agent.policy, 1)
    for first, reward in ((True, 0), (False, 7), (True, 0), (False, -5)):
        step(core, first, reward)
    resumed = InferenceCore(agent.policy, 1)
    resumed.restore_memory(core.save_memory())
    for first, reward in ((True, 0), (False, 2), (True, 0)):
        step(resumed, first, reward)
    plays, returns, *_ = resumed.shared_statistics()
    assert (sum(plays), sum(returns)) == (2, 7 + 2)
    # Nor where an actor was started again, whose slot a server keeps.
    step(resumed, False, 3)
    resumed.assign_slots(np.arange(1), jax.random.split(jax.random.key(0), 1), np.zeros(1, np.float32))
    step(resumed, True, 0)
    plays, returns, *_ = resumed.shared_statistics()
    assert (sum(plays), sum(returns)) == (2, 7 + 2)


@pytest.mark.slow
def test_evaluation_plays_the_best_by_all_environments():
    agent = Agent57(Agent57Config(num_arms=3, **SMALL)).make_agent(SPEC)
    params = agent.core.variables(agent.core.init(jax.random.key(1)))["policy"]
    core = InferenceCore(agent.evaluation_policy, 2)

    def arm():
        zeros = np.zeros(2, np.float32)
        extras = core.step_all(params, 0, 0, np.ones(2, bool), zeros, np.zeros((2, 4), np.float32)).extras
        return np.asarray(getattr(extras, "policy", extras).arm).tolist()

    assert arm() == [0, 0]
    actors = InferenceCore(agent.policy, 2)
    assert np.sum(actors.shared_statistics()[0]) == 0
    core.brief([[5.0, 4.0, 0.0], [5.0, 8.0, 0.0], 0.0, 0.0])
    assert arm() == [1, 1]
    core.brief(None)
    assert arm() == [0, 0]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"middle_discount": 0.9}, "middle_discount is 0.9: it must lie between"),
        ({"bandit_window": 0}, "bandit_window is 0"),
        ({"bandit_window": 3, "num_arms": 4}, "bandit_window is 3: it must be at least num_arms, which is 4"),
        ({"bandit_epsilon": 2.0}, "bandit_epsilon"),
    ],
)
def test_what_can_be_no_config_is_refused(fields, says):
    with pytest.raises(UsageError, match=says):
        Agent57Config(**fields)
