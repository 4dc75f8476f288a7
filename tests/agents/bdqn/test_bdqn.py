"""Bootstrapped DQN's own part: heads that share little, the steps that each learns from, and who acts when."""

import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import spec_of

from acme_ext import launch
from acme_ext.acting.inference import InferenceCore, slot_keys
from acme_ext.acting.policy import Context
from acme_ext.agents.bdqn.acting import BDQNExtras
from acme_ext.agents.bdqn.config import ATARI, BDQNConfig
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders import DQN, BootstrappedDQN
from acme_ext.errors import UsageError
from acme_ext.replay import fixed
from acme_ext.types import Sample, Transition

ACTIONS, HEADS, BATCH = 3, 4, 6
SPEC = spec_of.discrete(ACTIONS, (5,))
SMALL = {"hidden_sizes": (8,), "num_heads": HEADS, "batch_size": BATCH}


def transitions(mask=None, shape=(5,), dtype=np.float32):
    rng = np.random.default_rng(0)
    before, after = (rng.normal(size=(BATCH, *shape)).astype(dtype) for _ in range(2))
    mask = np.ones((BATCH, HEADS), bool) if mask is None else mask
    return Transition(
        before,
        rng.integers(ACTIONS, size=BATCH).astype(np.int32),
        rng.normal(size=BATCH).astype(np.float32),
        np.full(BATCH, 0.9, np.float32),
        after,
        BDQNExtras(mask),
    )


def of_head(params, head):
    return [np.asarray(leaf[head]) for leaf in jax.tree.leaves(params["heads"])]


def learned(config, data, spec=SPEC, steps=3):
    """Returns the learner's state before and after some steps, and what the last one gave besides."""
    core = BootstrappedDQN(config).make_agent(spec).core
    before = state = core.init(jax.random.key(0))
    step = jax.jit(core.step)
    metrics, errors = {}, None
    for _ in range(steps):
        state, metrics, errors = step(state, Sample(data, np.ones(BATCH, np.float32)))
    return before, state, metrics, errors


def test_one_head_without_a_prior_is_dqn():
    config = BDQNConfig(**{**SMALL, "num_heads": 1}, prior_scale=0.0)
    kept = {
        field.name: getattr(config, field.name)
        for field in dataclasses.fields(DQNConfig)
        if hasattr(config, field.name)
    }
    agent = BootstrappedDQN(config).make_agent(SPEC)
    network = BootstrappedDQN(config).make_networks(SPEC)

    def of_one(*_):
        return hk.Transformed(network.init, lambda *arguments: network.apply(*arguments)[:, 0])

    dqn = DQN(DQNConfig(**kept), network=of_one, average_rate=None).make_agent(SPEC)
    state = agent.core.init(jax.random.key(0))
    other, step, dqn_step = state.core, jax.jit(agent.core.step), jax.jit(dqn.core.step)
    data = transitions(np.ones((BATCH, 1), bool))
    for _ in range(3):
        sample = Sample(data, np.linspace(0.1, 1, BATCH, dtype=np.float32))
        state, metrics, errors = step(state, sample)
        other, dqn_metrics, dqn_errors = dqn_step(other, sample._replace(data=data._replace(extras=())))
        np.testing.assert_allclose(errors, dqn_errors, rtol=1e-5)
        assert float(metrics["loss"]) == pytest.approx(float(dqn_metrics["loss"]), rel=1e-5)
    for mine, his in zip(jax.tree.leaves(state.core.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(mine, his, atol=1e-6)


def test_a_head_learns_from_its_own_steps_alone():
    mask = np.ones((BATCH, HEADS), bool)
    mask[:, 1] = False
    mask[2:, 3] = False
    before, after, _, errors = learned(BDQNConfig(**SMALL), transitions(mask))
    for head, learns in enumerate((True, False, True, True)):
        pairs = zip(of_head(before.core.params, head), of_head(after.core.params, head), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs) != learns
    # What is not the head's own step says nothing to it.
    data = transitions(mask)
    changed = data._replace(reward=np.where(np.arange(BATCH) < 2, data.reward, -10 * data.reward).astype(np.float32))
    _, other, *_ = learned(BDQNConfig(**SMALL), changed)
    for mine, his in zip(of_head(after.core.params, 3), of_head(other.core.params, 3), strict=True):
        np.testing.assert_allclose(mine, his, atol=1e-6)
    assert np.abs(of_head(after.core.params, 0)[1] - of_head(other.core.params, 0)[1]).max() > 1e-3
    assert errors.shape == (BATCH,)
    # A step that no head learns from has no error.
    *_, errors = learned(BDQNConfig(**SMALL), transitions(np.zeros((BATCH, HEADS), bool)))
    np.testing.assert_array_equal(errors, 0)


def test_heads_and_priors_begin_apart_and_priors_stay():
    config = BDQNConfig(**SMALL, prior_scale=3.0)
    before, after, metrics, _ = learned(config, transitions())
    jax.tree.map(np.testing.assert_array_equal, before.prior, after.prior)
    weights = [of_head(params, head)[1] for params in (before.core.params, before.prior) for head in range(HEADS)]
    assert len({weight.tobytes() for weight in weights}) == 2 * HEADS
    assert float(metrics["q_spread"]) > 0
    # Q = f + 3 p is what is acted and learned by.
    builder = BootstrappedDQN(config)
    network, observation = builder.make_networks(SPEC), transitions().observation
    wanted = network.apply(before.core.params, None, observation) + 3 * network.apply(before.prior, None, observation)
    assert wanted.shape == (BATCH, HEADS, ACTIONS)
    *_, first_metrics, _ = learned(config, transitions(), steps=1)
    assert float(first_metrics["q_mean"]) == pytest.approx(float(wanted.mean()), rel=1e-5)


@pytest.mark.release
def test_pictures_go_through_one_torso_which_is_given_the_heads_mean_gradient():
    spec = spec_of.discrete(ACTIONS, (10, 10, 3))
    config = BDQNConfig(**SMALL, image_features=7)
    network = BootstrappedDQN(config).make_networks(spec)
    observation = np.random.default_rng(0).normal(size=(2, 10, 10, 3)).astype(np.float32)
    params = network.init(jax.random.key(0), observation)
    weights = {leaf.shape for leaf in jax.tree.leaves(params["torso"])}
    assert (3, 3, 3, 16) in weights
    assert all(len(leaf) == HEADS for leaf in jax.tree.leaves(params["heads"]))

    def gradient(chosen):
        return jax.grad(lambda params: network.apply(params, None, observation)[:, chosen].sum())(params)

    together, apart = gradient(slice(None)), [gradient(slice(head, head + 1)) for head in range(HEADS)]
    for leaf, *each in zip(*(jax.tree.leaves(g["torso"]) for g in (together, *apart)), strict=True):
        np.testing.assert_allclose(leaf, sum(each), rtol=1e-4, atol=1e-6)
    # A head's own gradient is whole, the torso's a share: without the torso's scale it would be K times this.
    x = jax.tree.leaves(apart[0]["heads"])
    assert all(np.any(leaf[0]) and not np.any(leaf[1:]) for leaf in x)


def by_heads(spec, config, torso=None):
    """A network whose head k prefers action k, of as many actions as heads."""
    values = jnp.eye(config.num_heads, spec.actions.num_values)
    return hk.Transformed(
        lambda key, observation: {}, lambda params, key, observation: jnp.tile(values, (len(observation), 1, 1))
    )


def acted(config, firsts):
    """Returns the actions and masks of acting in 2 environments, by heads that each have an action of their own."""
    builder = BootstrappedDQN(config, network=by_heads)
    agent = builder.make_agent(spec_of.discrete(HEADS, (5,)))
    params = agent.core.variables(agent.core.init(jax.random.key(0)))["policy"]
    core = InferenceCore(agent.policy, 2)
    core.assign_slots(np.arange(2), slot_keys(jax.random.key(0), 2), np.zeros(2, np.float32))
    zeros = np.zeros(2, np.float32), np.zeros((2, 5), np.float32)
    found = [core.step_all(params, tick, 0, np.array(first), *zeros) for tick, first in enumerate(firsts)]
    return np.stack([a.action for a in found]), np.stack([a.extras.mask for a in found])


def test_a_head_acts_for_whole_episodes():
    actions, masks = acted(BDQNConfig(**SMALL, mask_probability=0.25), [[i % 5 == 0, i % 7 == 0] for i in range(400)])
    for env, period in enumerate((5, 7)):
        changes = np.nonzero(np.diff(actions[:, env]))[0] + 1
        assert len(changes) > 20
        assert all(change % period == 0 for change in changes)
        assert set(actions[:, env]) == set(range(HEADS))
    assert masks.shape == (400, 2, HEADS)
    np.testing.assert_allclose(masks.mean(axis=(0, 1)), 0.25, atol=0.06)
    assert acted(BDQNConfig(**SMALL), [[True, True]])[1].all()


@pytest.mark.parametrize(("evaluation", "wanted"), [("vote", [1, 2]), ("mean", [0, 2])])
def test_evaluation_is_by_all_heads(evaluation, wanted):
    # The first: one head is sure of action 0, the three others prefer 1. The second: two against two, of which action 2
    # has the greater mean.
    q = jnp.array([[[9, 0, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]], [[0, 1, 0], [0, 1, 0], [0, 0, 3], [0, 0, 3]]], float)

    def given(spec, config, torso=None):
        return hk.Transformed(lambda key, observation: {}, lambda params, key, observation: q)

    config = BDQNConfig(**SMALL, evaluation=evaluation, prior_scale=0.0)
    agent = BootstrappedDQN(config, network=given).make_agent(SPEC)
    params = agent.core.variables(agent.core.init(jax.random.key(0)))["policy"]
    context = Context(jax.random.split(jax.random.key(0), 2), jnp.int32(0), jnp.zeros(2), jnp.zeros(2))
    action, _, extras = agent.evaluation_policy.apply(params, context, jnp.zeros((2, 5)), ())
    np.testing.assert_array_equal(action, wanted)
    assert extras == ()


def test_masks_are_stored_so_that_recorded_data_has_none():
    replay = BootstrappedDQN(BDQNConfig(**SMALL)).make_agent(SPEC).replay
    mask = replay.example(2).extras.mask
    assert (mask.shape, mask.dtype) == ((2, HEADS), bool)
    with pytest.raises(UsageError, match="values that its policy computed with each action"):
        fixed.check_recordable(replay)


def test_the_published_numbers():
    assert (ATARI.num_heads, ATARI.mask_probability, ATARI.replay.n_step) == (10, 1.0, 1)


@pytest.mark.release
@pytest.mark.usefixtures("no_figures")
def test_it_finds_what_ten_right_actions_in_a_row_lead_to(tmp_path):
    experiment = launch.Experiment(
        BootstrappedDQN(),
        "bsuite:deep_sea/0",
        steps=10_000,
        num_envs=8,
        evaluation=launch.Evaluation(every=0, final_episodes=5),
        run_dir=str(tmp_path / "run"),
    )
    result = launch.run(experiment, quiet=True)
    assert result.score is not None
    assert result.score.returns.mean() == pytest.approx(0.99, abs=1e-3)
