import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_env import specs
from spec_of import continuous, discrete

from acme_ext.agents.ppo import networks
from acme_ext.agents.ppo.config import PPOConfig
from acme_ext.ops.gaussian import Gaussian
from acme_ext.ops.policy import Categorical

CONFIG = PPOConfig(hidden_sizes=(8, 8), image_features=16, init_stddev=0.5)


@pytest.mark.parametrize(
    "observation",
    [
        jnp.ones((4, 3)),
        *(
            pytest.param(observation, marks=pytest.mark.release)
            for observation in (
                {"a": jnp.ones((4, 2)), "b": jnp.ones(4)},
                jnp.ones((4, 10, 10, 6), jnp.bool_),
                jnp.ones((4, 40, 40, 3), jnp.uint8),
            )
        ),
    ],
)
@pytest.mark.parametrize(
    ("core", "make_spec"),
    [
        (None, discrete),
        (None, continuous),
        ("lstm", discrete),
        pytest.param("lstm", continuous, marks=pytest.mark.release),
        *(pytest.param("gru", make_spec, marks=pytest.mark.release) for make_spec in (discrete, continuous)),
    ],
)
def test_shapes(observation, make_spec, core):
    spec = make_spec(5)._replace(observations=jax.tree.map(lambda x: specs.Array(x.shape[1:], x.dtype), observation))
    network = networks.make_network(spec, CONFIG, core=core)
    params = network.init(jax.random.key(0), jax.tree.map(lambda x: x[:1], observation))
    output, memory = network.step(params, jnp.zeros(4), observation, network.init_memory(4))
    assert jax.tree.map(jnp.shape, memory) == jax.tree.map(np.shape, network.init_memory(4))
    assert output.value.shape == (4,)
    if make_spec is discrete:
        assert isinstance(output.policy, Categorical)
        assert output.policy.logits.shape == (4, 5)
    else:
        assert isinstance(output.policy, Gaussian)
        assert output.policy.mean.shape == output.policy.stddev.shape == (4, 5)
        np.testing.assert_allclose(output.policy.stddev, 0.5, rtol=1e-6)


def test_layers_start_orthogonal_and_all_actions_about_equally_likely():
    observation = jax.random.normal(jax.random.key(1), (200, 8))
    network = networks.make_network(discrete(4, (8,)), CONFIG)
    params = network.init(jax.random.key(0), observation[:1])
    gains = {}
    for layer, leaves in params.items():
        gram = leaves["w"].T @ leaves["w"] if leaves["w"].shape[0] >= leaves["w"].shape[1] else None
        assert gram is not None
        np.testing.assert_allclose(gram, gram[0, 0] * np.eye(len(gram)), atol=1e-5)
        gains[layer] = np.sqrt(gram[0, 0])
        assert not leaves["b"].any()
    np.testing.assert_allclose(sorted(gains.values()), [0.01, 1, *[2**0.5] * 4], rtol=1e-4)
    probs = jax.nn.softmax(network.step(params, jnp.zeros(200), observation, ())[0].policy.logits)
    np.testing.assert_allclose(probs, 0.25, atol=0.02)


@pytest.mark.slow
def test_policy_and_value_share_layers_only_for_images_and_where_asked():
    def parts(observation, config=CONFIG):
        network = networks.make_network(discrete(4, observation.shape[1:], observation.dtype), config)
        params = network.init(jax.random.key(0), observation[:1])
        output = lambda p: network.step(p, jnp.zeros(4), observation, ())[0]  # noqa: E731
        policy = jax.grad(lambda p: jnp.sum(output(p).policy.logits[:, 0]))(params)
        value = jax.grad(lambda p: jnp.sum(output(p).value))(params)

        def touched(gradient):
            return {name for name, leaves in gradient.items() if any(np.any(leaf) for leaf in leaves.values())}

        return touched(policy), touched(value)

    vectors = jax.random.normal(jax.random.key(1), (4, 3))
    policy, value = parts(vectors)
    assert not policy & value
    policy, value = parts(vectors, dataclasses.replace(CONFIG, share_layers=True))
    assert len(policy & value) == 2  # all but the heads
    assert len(policy - value) == len(value - policy) == 1
    policy, value = parts(jax.random.randint(jax.random.key(1), (4, 40, 40, 3), 0, 255).astype(jnp.uint8))
    assert len(policy & value) == 4  # three convolutions and a layer
