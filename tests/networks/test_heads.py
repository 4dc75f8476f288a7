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


def test_an_action_head_gives_every_action_its_numbers():
    network, params = transform(lambda: heads.ActionHead(3, 5, 8, dueling=False))
    assert sorted(layer["w"].shape for layer in params.values()) == [(4, 8), (8, 15)]
    (hidden,) = (layer for layer in params.values() if layer["w"].shape == (4, 8))
    (out,) = (layer for layer in params.values() if layer["w"].shape == (8, 15))
    expected = np.maximum(FEATURES @ hidden["w"] + hidden["b"], 0) @ out["w"] + out["b"]
    np.testing.assert_allclose(network.apply(params, FEATURES), expected.reshape(6, 3, 5), rtol=1e-4, atol=1e-5)


def test_a_dueling_action_head_joins_its_streams_for_each_number_alone():
    network, params = transform(lambda: heads.ActionHead(3, 5, 8, dueling=True))
    assert sorted(layer["w"].shape for layer in params.values()) == [(4, 8), (4, 8), (8, 5), (8, 15)]
    before = network.apply(params, FEATURES)
    assert before.shape == (6, 3, 5)
    # The mean over actions is the value: what moves one number of every action's advantage alike leaves all as it was,
    # what moves one number of the value moves that number of all actions.
    bump = jnp.zeros((3, 5)).at[:, 2].set(4.0).reshape(15)
    moved = jax.tree.map(lambda leaf: leaf + bump if leaf.shape == (15,) else leaf, params)
    np.testing.assert_allclose(network.apply(moved, FEATURES), before, rtol=1e-4, atol=1e-5)
    bump = jnp.zeros(5).at[2].set(4.0)
    moved = jax.tree.map(lambda leaf: leaf + bump if leaf.shape == (5,) else leaf, params)
    np.testing.assert_allclose(network.apply(moved, FEATURES), before + bump, rtol=1e-4, atol=1e-5)


def test_an_action_heads_layers_can_be_chosen_and_leading_axes_are_free():
    network, params = transform(
        lambda: heads.ActionHead(3, 1, 8, dueling=True, linears=lambda sizes: [hk.Linear(n) for _, n in sizes])
    )
    assert not any(name.endswith("linear/linear") for name in params)
    many = np.stack([FEATURES, 2 * FEATURES])
    out = network.apply(params, many)
    assert out.shape == (2, 6, 3, 1)
    np.testing.assert_allclose(out[1], network.apply(params, 2 * FEATURES), rtol=1e-4, atol=1e-5)


def test_the_cosine_embedding_by_hand():
    network = hk.without_apply_rng(hk.transform(lambda taus: heads.CosineEmbedding(2, num_cosines=3)(taus)))
    taus = np.array([[0.0, 0.5, 1.0]], np.float32)
    params = network.init(jax.random.key(0), taus)
    (layer,) = params.values()
    # cos(0), cos(pi tau) and cos(2 pi tau).
    cosines = np.array([[1, 1, 1], [1, 0, -1], [1, -1, 1]])
    expected = np.maximum(cosines @ layer["w"] + layer["b"], 0)[None]
    np.testing.assert_allclose(network.apply(params, taus), expected, atol=1e-6)
