import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.networks import heads

FEATURES = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def transform(head):
    network = hk.without_apply_rng(hk.transform(lambda features: head()(features)))
    return network, network.init(jax.random.key(0), FEATURES)


def test_a_linear_head_is_one_layer():
    network, params = transform(lambda: heads.LinearQHead(3))
    (layer,) = params.values()
    np.testing.assert_allclose(
        network.apply(params, FEATURES), FEATURES @ layer["w"] + layer["b"], rtol=1e-5, atol=1e-6
    )


def test_a_dueling_head_is_value_plus_centred_advantage():
    network, params = transform(lambda: heads.DuelingQHead(3, 8))
    by_shape = [layer for name, layer in sorted(params.items())]
    assert sorted(layer["w"].shape for layer in by_shape) == [(4, 8), (4, 8), (8, 1), (8, 3)]
    hidden = [layer for layer in by_shape if layer["w"].shape == (4, 8)]
    (value,) = (layer for layer in by_shape if layer["w"].shape == (8, 1))
    (advantage,) = (layer for layer in by_shape if layer["w"].shape == (8, 3))

    def two_layers(first, second):
        return np.maximum(FEATURES @ first["w"] + first["b"], 0) @ second["w"] + second["b"]

    q = network.apply(params, FEATURES)
    candidates = []
    for of_value, of_advantage in (hidden, hidden[::-1]):  # whichever was made first
        a = two_layers(of_advantage, advantage)
        candidates.append(two_layers(of_value, value) + a - a.mean(axis=1, keepdims=True))
    assert any(np.allclose(q, candidate, rtol=1e-4, atol=1e-5) for candidate in candidates)


def test_the_mean_over_actions_is_the_value_alone():
    network, params = transform(lambda: heads.DuelingQHead(3, 8))
    before = network.apply(params, FEATURES)
    # What is added to every advantage is taken away again.
    moved = jax.tree.map(lambda leaf: leaf + 5.0 if leaf.shape == (3,) else leaf, params)
    np.testing.assert_allclose(network.apply(moved, FEATURES), before, rtol=1e-4, atol=1e-5)
    # What is added to the value is in the mean.
    moved = jax.tree.map(lambda leaf: leaf + 5.0 if leaf.shape == (1,) else leaf, params)
    np.testing.assert_allclose(jnp.mean(network.apply(moved, FEATURES), 1), jnp.mean(before, 1) + 5, rtol=1e-4)
