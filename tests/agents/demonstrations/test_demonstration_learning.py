"""The agents that learn from demonstrations, by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext.agents.dqfd import losses
from acme_ext.agents.dqfd.config import DQfDConfig
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.agents.sqil.config import DiscreteSQILConfig, SQILConfig
from acme_ext.agents.sqil.learning import rewarded
from acme_ext.builders import DQN, R2D2, R2D3, DQfD
from acme_ext.envs.specs import DISCOUNT, REWARD
from acme_ext.errors import UsageError
from acme_ext.interfaces import EnvironmentSpec
from acme_ext.learning.core import LearnerCore
from acme_ext.replay.config import TransitionConfig
from acme_ext.types import OneStep, Sample, Transition

SPEC = EnvironmentSpec(specs.Array((2,), np.float32), specs.DiscreteArray(3), REWARD, DISCOUNT)


def test_the_margin_loss():
    q = jnp.array([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    action = jnp.array([1, 0, 2])
    np.testing.assert_allclose(losses.margin_loss(q, action, 0.8), [0, 2 + 0.8 - 1, 0], rtol=1e-6)
    np.testing.assert_allclose(losses.margin_loss(q, action, 1.5), [0.5, 2.5, 0.5], rtol=1e-6)
    legal = jnp.array([[True, True, True], [True, False, True], [False, False, True]])
    np.testing.assert_allclose(losses.margin_loss(q, action, 0.8, legal), [0, 0, 0], atol=1e-6)


def batch() -> Transition:
    rng = np.random.default_rng(0)
    observation, following, last = rng.normal(size=(3, 4, 2)).astype(np.float32)
    reward, discount = rng.normal(size=4).astype(np.float32), np.full(4, 0.9, np.float32)
    one_step = OneStep(reward + 1, discount * 0.5, last)
    return Transition(observation, np.array([0, 1, 2, 1], np.int32), reward, discount, following, (), one_step)


def metrics_of(source, weight=1.0, **fields) -> dict[str, float]:
    config = DQfDConfig(hidden_sizes=(4,), normalize_observations=False, batch_size=4, **fields)
    core = DQfD(config).make_agent(SPEC).core
    sample = Sample(batch(), np.full(4, weight, np.float32), source)
    _, metrics, errors = core.step(core.init(jax.random.key(0)), sample)
    return {name: float(value) for name, value in metrics.items()} | {"errors": np.asarray(errors)}


@pytest.mark.slow
def test_dqfd_adds_the_losses_up_and_its_errors_are_those_of_one_step():
    none = {"n_step_coef": 0.0, "margin_coef": 0.0, "l2_coef": 0.0}
    source = np.array([0, 1, 1, 0], np.uint8)
    one = metrics_of(source, **none)
    n_step = metrics_of(source, **{**none, "n_step_coef": 1.0})
    margin = metrics_of(source, **{**none, "margin_coef": 2.0})
    all_of_them = metrics_of(source, **{**none, "n_step_coef": 1.0, "margin_coef": 2.0})
    np.testing.assert_allclose(one["loss"], 0.5 * np.mean(one["errors"] ** 2), rtol=1e-5)
    np.testing.assert_array_equal(one["errors"], n_step["errors"])
    assert n_step["loss"] > one["loss"]
    np.testing.assert_allclose(margin["loss"] - one["loss"], 2 * margin["margin_loss"], rtol=1e-4)
    np.testing.assert_allclose(all_of_them["loss"], n_step["loss"] + margin["loss"] - one["loss"], rtol=1e-5)
    assert metrics_of(source, **{**none, "l2_coef": 1.0})["loss"] > one["loss"]
    # The margin is of demonstrations alone.
    assert metrics_of(None)["margin_loss"] == metrics_of(np.zeros(4, np.uint8))["margin_loss"] == 0
    halves = [metrics_of(np.array(s, np.uint8))["margin_loss"] for s in ([0, 1, 1, 0], [1, 0, 0, 1])]
    np.testing.assert_allclose(sum(halves), metrics_of(np.ones(4, np.uint8))["margin_loss"], rtol=1e-5)


def test_dqfds_margin_is_weighed():
    ones = np.ones(4, np.uint8)
    whole, half = (metrics_of(ones, weight)["margin_loss"] for weight in (1.0, 0.5))
    np.testing.assert_allclose(half, whole / 2, rtol=1e-5)
    assert whole > 0


def test_r2d3_without_demonstrations_is_r2d2_but_for_exploration():
    mine, parents = R2D3(), R2D2()
    replay = dataclasses.replace(mine.config.replay, demo_ratio=parents.config.replay.demo_ratio)
    exploration = {"epsilon_steepness": 7.0, "epsilon_decay_steps": 0}
    assert vars(mine.config) | {"replay": replay} == vars(parents.config) | exploration
    for name in ("make_agent", "make_replay", "make_networks", "policy_of", "core_of", "network"):
        assert getattr(R2D3, name, None) is getattr(R2D2, name, None)


def test_dqfd_without_its_own_losses_and_demonstrations_is_dqn():
    fields = {"hidden_sizes": (4,), "normalize_observations": False, "batch_size": 4}
    both = batch()
    one = both._replace(**both.one_step._asdict(), one_step=())
    learned = []
    for builder, data in (
        (DQfD(DQfDConfig(n_step_coef=0.0, l2_coef=0.0, **fields)), both),
        (DQN(DQNConfig(replay=DQfDConfig.replay, **fields), average_rate=None), one),
    ):
        core = builder.make_agent(SPEC).core
        state, _, errors = core.step(core.init(jax.random.key(0)), Sample(data, np.ones(4, np.float32)))
        learned.append((core.variables(state), errors))
    jax.tree.map(np.testing.assert_array_equal, *learned)


def test_sqil_rewards_demonstrations_alone():
    seen = []

    def step(state, sample):
        seen.append(np.asarray(sample.data.reward))
        return state, {}, None

    core = rewarded(LearnerCore(lambda key: (), step, lambda state: {}))
    core.step((), Sample(batch(), np.ones(4, np.float32), np.array([0, 2, 1, 0], np.uint8)))
    core.step((), Sample(batch(), np.ones(4, np.float32)))
    np.testing.assert_array_equal(seen, [[0, 1, 1, 0], [0, 0, 0, 0]])


@pytest.mark.parametrize("config", [SQILConfig, DiscreteSQILConfig])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_step": 3}, "it must be 1"),
        ({"demo_ratio": 0.0}, "both demonstrations and its own experience"),
        ({"demo_ratio": 1.0}, "above 0 and below 1"),
    ],
)
def test_what_sqil_cannot_be_given_rewards_for_is_refused(config, fields, said):
    with pytest.raises(UsageError, match=said):
        config(replay=TransitionConfig(**{"demo_ratio": 0.5, **fields}))


def test_dqfds_n_step_loss_is_dqns_of_the_n_steps():
    none = {"n_step_coef": 0.0, "margin_coef": 0.0, "l2_coef": 0.0}
    one, both = metrics_of(None, **none), metrics_of(None, **{**none, "n_step_coef": 1.0})
    config = DQNConfig(replay=DQfDConfig.replay, hidden_sizes=(4,), normalize_observations=False, batch_size=4)
    core = DQN(config, average_rate=None).make_agent(SPEC).core
    sample = Sample(batch()._replace(one_step=()), np.ones(4, np.float32))
    _, metrics, _ = core.step(core.init(jax.random.key(0)), sample)
    np.testing.assert_allclose(both["loss"] - one["loss"], metrics["loss"], rtol=1e-4)
