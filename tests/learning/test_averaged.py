"""The parameters that evaluations act by, where they are averaged."""

import dataclasses
import itertools

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import continuous, discrete

from acme_ext import builders
from acme_ext.acting.policy import Context, Policy
from acme_ext.agents.dqn.config import DQNConfig
from acme_ext.builders import DQN
from acme_ext.errors import UsageError
from acme_ext.learning import optimizers
from acme_ext.learning.averaged import AveragedParams, averaged_core, averaged_policy
from acme_ext.learning.core import LearnerCore
from acme_ext.types import Sample, Transition

SIZES = {"policy_sizes": (8,), "critic_sizes": (8,)}
SMALL = {"DQN": {"hidden_sizes": (8,)}, "TD3": {"hidden_sizes": (8,)}, "D4PG": SIZES}
SAMPLE = Sample(np.zeros(2, np.float32), np.ones(2, np.float32))


def counting() -> LearnerCore:
    """Its parameters are how many steps were taken, from 100 on, as a float and as an integer."""

    def step(state, sample):
        return state + 1, {"loss": jnp.zeros(())}, sample.data

    def variables(state):
        return {"policy": {"float": state, "count": state.astype(jnp.int32)}}

    return LearnerCore(lambda key: jnp.float32(100), step, variables)


def averages(rate, steps):
    core = averaged_core(counting(), rate)
    state, found = core.init(jax.random.key(0)), []
    for _ in range(steps):
        state, _, errors = jax.jit(core.step)(state, SAMPLE)
        np.testing.assert_array_equal(errors, SAMPLE.data)
        found.append(core.variables(state)["policy"])
    return found


def test_the_first_averages_are_of_the_last_steps_so_far_and_not_of_the_start():
    found = averages(0.25, 4)
    # step t of T has the weight t (t + 1) (t + 2), over the sum of these
    np.testing.assert_allclose([p.average["float"] for p in found], [101, 101.8, 102.6, 103.4], rtol=1e-6)
    assert [int(p.average["count"]) for p in found] == [101, 102, 103, 104]  # not averaged
    assert [float(p.policy["float"]) for p in found] == [101, 102, 103, 104]


def test_later_the_newest_have_the_rate_for_their_share():
    found = [float(p.average["float"]) for p in averages(0.25, 16)]
    expected = 110.6  # of step 13, where 4 / (13 + 3) is the rate
    np.testing.assert_allclose(found[12], expected, rtol=1e-6)
    for newest, average in zip((114, 115, 116), found[13:], strict=True):
        expected += 0.25 * (newest - expected)
        np.testing.assert_allclose(average, expected, rtol=1e-6)


def test_evaluation_acts_by_the_average_and_training_by_the_newest():
    policy = Policy(lambda params, context, observation, state: (params["float"], state, ()))
    params = averages(0.25, 4)[-1]
    acting, evaluating = (averaged_policy(policy, evaluation=e).apply(params, None, None, ())[0] for e in (False, True))
    np.testing.assert_allclose([float(acting), float(evaluating)], [104, 103.4], rtol=1e-6)


@pytest.mark.parametrize("rate", [0, -0.1, 1.5])
def test_a_rate_that_is_none(rate):
    with pytest.raises(UsageError, match=f"average_rate is {rate}: it must"):
        builders.DQN(average_rate=rate)


def test_a_learning_rate_that_falls():
    assert optimizers.decayed(0.5, None) == 0.5
    rate = optimizers.decayed(0.5, 10, updates=1 / 2)  # by an optimizer that makes an update in every second step
    np.testing.assert_allclose([rate(n) for n in (0, 1, 5, 6)], [0.5, 0.4, 0, 0], atol=1e-7)


def batch_of(continuous_actions):
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    action = np.tanh(normal(4, 2)) if continuous_actions else rng.integers(0, 2, 4).astype(np.int32)
    data = Transition(normal(4, 3), action, normal(4), np.full(4, 0.9, np.float32), normal(4, 3))
    return Sample(data, np.ones(4, np.float32))


@pytest.mark.parametrize(
    "agent", [pytest.param(name, marks=() if name == "DQN" else pytest.mark.release) for name in SMALL]
)
def test_an_agent_whose_rate_has_fallen_to_0_learns_no_more(agent):
    builder = getattr(builders, agent)(average_rate=None)
    config = dataclasses.replace(
        builder.config, learning_rate_decay_steps=2, normalize_observations=False, **SMALL[agent]
    )
    continuous_actions = builder.actions == "continuous"
    spec = continuous(2) if continuous_actions else discrete(2)
    core = builder.replace(config=config).make_agent(spec).core
    state, step, seen = core.init(jax.random.key(0)), jax.jit(core.step), []
    for _ in range(4):
        seen.append(core.variables(state)["policy"])
        state, _, _ = step(state, batch_of(continuous_actions))
    seen.append(core.variables(state)["policy"])
    differs = [
        any(bool((a != b).any()) for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(y), strict=True))
        for x, y in itertools.pairwise(seen)
    ]
    # TD3's policy is updated in every second step.
    assert differs == ([False, True, False, False] if agent == "TD3" else [True, True, False, False])


def test_an_agents_evaluations_act_by_the_average_and_its_training_by_the_newest():
    def network(spec, config, torso=None):
        return hk.transform(lambda seen: jnp.tile(hk.get_parameter("q", (2,), init=jnp.zeros), (len(seen), 1)))

    config = DQNConfig(normalize_observations=False, epsilon_start=0.0, epsilon_end=0.0, evaluation_epsilon=0.0)
    agent = DQN(config, network=network, average_rate=0.1).make_agent(discrete(2))
    params = AveragedParams(*({"~": {"q": jnp.array(q)}} for q in ([1.0, 0.0], [0.0, 1.0])))
    context = Context(jax.random.split(jax.random.key(0), 3), jnp.int32(0), jnp.zeros(3), jnp.zeros(3))
    acted = [p.apply(params, context, jnp.zeros((3, 3)), ())[0] for p in (agent.policy, agent.evaluation_policy)]
    np.testing.assert_array_equal(acted, [[0] * 3, [1] * 3])
