import dataclasses

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from spec_of import discrete

from acme_ext import builders
from acme_ext.errors import UsageError
from acme_ext.learning import normalize
from acme_ext.learning.normalize import Moments
from acme_ext.types import Sample

KEY = jax.random.key(0)
SPEC = discrete(3)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_values_stay_where_the_moments_move(shape):
    def network(x):
        return hk.Linear(shape[0] if shape else 1, name=normalize.VALUE_LAYER)(jnp.tanh(hk.Linear(8)(x)))

    made, x = hk.without_apply_rng(hk.transform(network)), np.random.default_rng(0).normal(size=(50, 4))
    params = made.init(KEY, x)
    before = Moments(jnp.float32(10), jnp.full(shape, 3.0), jnp.full(shape, 4.0))
    after = Moments(jnp.float32(20), jnp.full(shape, -50.0), jnp.linspace(900.0, 400.0, shape[0]) if shape else 900.0)
    corrected = normalize.corrected(params, before, after)
    stood, stands = (
        normalize.denormalize(moments, made.apply(p, x)) for moments, p in ((before, params), (after, corrected))
    )
    np.testing.assert_allclose(stands, stood, rtol=1e-5, atol=2e-5)
    # Which they would not, and nothing but the last layer is changed.
    assert np.abs(normalize.denormalize(after, made.apply(params, x)) - stood).min() > 10
    assert corrected["linear"] is params["linear"]


@pytest.mark.parametrize("params", [{"linear": {"w": 1, "b": 2}}, {"popart_value": {}, "other/popart_value": {}}])
def test_a_network_without_one_such_layer_is_refused(params):
    moments = normalize.init(np.zeros(()))
    with pytest.raises(UsageError, match=f"named 'popart_value', and the network has {2 * (len(params) == 2)}"):
        normalize.corrected(params, moments, moments)


def batch_of(agent):
    """A batch of zeros in which the rewards are 100, so that the moments of values move far."""
    size = agent.replay.batch_size
    data = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), agent.replay.example(size))
    rng = np.random.default_rng(0)
    seen = rng.normal(size=data.observation.shape).astype(np.float32)
    reward = rng.normal(100, 10, data.reward.shape).astype(np.float32)
    return Sample(
        data._replace(observation=seen, reward=reward, mask=np.ones_like(data.mask), discount=0.9 + 0 * data.discount),
        np.ones(size, np.float32),
    )


@pytest.mark.parametrize(
    "name",
    [
        "impala",
        *(pytest.param(name, marks=pytest.mark.release) for name in ("ppo", "a2c", "rnd")),
    ],
)
def test_a_step_moves_the_moments_and_leaves_the_values_where_they_were(name):
    """With a learning rate of next to nothing, all that a step does is to move the moments."""

    def step(popart):
        builder = builders.load(name)()
        config = dataclasses.replace(
            builder.config,
            popart=popart,
            normalize_values=True,
            normalize_observations=False,
            learning_rate=1e-20,
            batch_size=4,
            replay=dataclasses.replace(builder.config.replay, length=4),
        )
        builder = dataclasses.replace(builder, config=config, average_rate=None)
        agent = builder.make_agent(SPEC)
        network, sample = builder.make_networks(SPEC), batch_of(agent)
        before = agent.core.init(KEY)
        after, _, _ = jax.jit(agent.core.step)(before, sample)
        values = []
        for state in (before, after):
            state = getattr(state, "ppo", state)
            output = network.outputs(state.trained.params, sample.data)
            values.append(np.asarray(normalize.denormalize(state.values, output.value)))
        return values

    before, after = step(popart=True)
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=2e-3)
    before, after = step(popart=False)
    assert np.abs(after - before).max() > 10


@pytest.mark.parametrize("name", ["ppo", "a2c", "impala"])
def test_it_is_a_part_of_normalised_values(name):
    with pytest.raises(UsageError, match="popart is true: it is a part of normalize_values, which is false"):
        dataclasses.replace(builders.load(name)().config, popart=True, normalize_values=False)
