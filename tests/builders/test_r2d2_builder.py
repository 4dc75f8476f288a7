import dataclasses

import acme.specs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs

from acme_ext.acting.policy import Context
from acme_ext.agents.r2d2.config import R2D2Config
from acme_ext.builders import R2D2
from acme_ext.replay.config import SequenceConfig
from acme_ext.replay.limits import RateLimit
from acme_ext.types import Sample

CONFIG = R2D2Config(
    replay=SequenceConfig(length=3, burn_in=2, period=3, prioritized=True), hidden_sizes=(5,), core_size=4
)


def spec_of(actions: specs.Array | None = None) -> acme.specs.EnvironmentSpec:
    return acme.specs.EnvironmentSpec(
        observations=specs.Array((3,), np.float32),
        actions=actions or specs.DiscreteArray(4),
        rewards=specs.Array((), np.float32),
        discounts=specs.BoundedArray((), np.float32, 0, 1),
    )


def test_the_replay_is_the_configs():
    config = dataclasses.replace(
        CONFIG,
        batch_size=7,
        discount=0.5,
        replay=dataclasses.replace(
            CONFIG.replay, max_size=30, min_size=20, samples_per_insert=3.0, priority_exponent=0.25
        ),
    )
    replay = R2D2(config).make_agent(spec_of()).replay
    assert replay.limit == RateLimit(3.0, 20)
    assert replay.prioritized
    assert (replay.length, replay.burn_in, replay.period, replay.cross_episodes) == (5, 2, 3, False)
    assert (replay.batch_size, replay.discount, replay.max_size, replay.priority_exponent) == (7, 0.5, 30, 0.25)
    assert replay.extras == ()
    assert replay.state.core.hidden.shape == replay.state.core.cell.shape == (4,)
    assert replay.state.action.dtype == np.int32


def test_the_parts_fit_together():
    builder = R2D2(CONFIG)
    core, replay = builder.make_agent(spec_of()).core, builder.make_agent(spec_of()).replay
    state = core.init(jax.random.key(0))
    rows = np.zeros((6, replay._layout.nbytes), np.uint8)
    after, metrics, errors = jax.jit(lambda s, r: core.step(s, Sample(replay.decode(r), jnp.ones(6))))(state, rows)
    assert int(after.steps) == 1
    assert metrics["loss"] == 0  # there is no step in these
    np.testing.assert_allclose(errors, 0)
    policy = builder.make_agent(spec_of()).policy
    context = Context(jax.random.split(jax.random.key(1), 2), jnp.int32(0), jnp.zeros(2), jnp.zeros(2))
    before = policy.init_state(2)
    action, remembered, extras = policy.apply(core.variables(after)["policy"], context, jnp.ones((2, 3)), before)
    assert action.shape == extras.taken.shape == extras.best.shape == (2,)
    np.testing.assert_array_equal(remembered.action, action)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), remembered) == jax.tree.map(lambda x: (x.shape, x.dtype), before)


@pytest.mark.parametrize(("rank", "epsilon"), [(0.0, 0.4), (1.0, 0.4**4)])
def test_every_environment_explores_by_its_own_epsilon(rank, epsilon):
    builder, batch = R2D2(CONFIG, average_rate=None), 4_000
    params = builder.make_agent(spec_of()).core.init(jax.random.key(0)).params
    ranks = jnp.full(batch, rank)
    context = Context(jax.random.split(jax.random.key(1), batch), jnp.int32(10**6), ranks, jnp.zeros(batch))

    def share_of_others(policy) -> float:
        _, _, extras = jax.jit(policy.apply)(params, context, jnp.ones((batch, 3)), policy.init_state(batch))
        return float(np.mean(extras.taken < extras.best))

    assert share_of_others(builder.make_agent(spec_of()).policy) == pytest.approx(0.75 * epsilon, abs=0.03)
    assert share_of_others(builder.make_agent(spec_of()).evaluation_policy) == 0


def test_the_call_of_the_config_reaches_the_run():
    agent = R2D2(dataclasses.replace(CONFIG, sgd_steps_per_call=3, variable_period=9)).make_agent(spec_of())
    assert (agent.sgd_steps_per_call, agent.variable_period) == (3, 9)
