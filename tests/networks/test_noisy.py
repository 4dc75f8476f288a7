import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.networks import noisy

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def build(size=2, sigma=0.5, layers=1):
    def function(x):
        for layer in noisy.noisy_linears([(x.shape[-1], size), *[(size, size)] * (layers - 1)], sigma):
            x = layer(x)
        return x

    network = hk.transform(function)
    return network, network.init(KEY, X)


def weights(params):
    """The mean's and the deviation's weights and biases of a network of one layer."""
    (mean,) = (leaves for name, leaves in params.items() if "mean" in name)
    (deviation,) = (leaves for name, leaves in params.items() if "deviation" in name)
    return (np.asarray(leaf) for leaf in (mean["w"], mean["b"], deviation["w"], deviation["b"]))


def test_without_a_key_the_layer_is_its_mean():
    network, params = build()
    mean_w, mean_b, _, _ = weights(params)
    np.testing.assert_allclose(network.apply(params, None, X), X @ mean_w + mean_b, rtol=1e-5, atol=1e-6)


def test_deviations_start_at_sigma_by_the_root_of_the_inputs():
    for sigma in (0.5, 0.1):
        _, _, deviation_w, deviation_b = weights(build(sigma=sigma)[1])
        np.testing.assert_allclose(deviation_w, np.full((3, 2), sigma / np.sqrt(3)), rtol=1e-6)
        np.testing.assert_allclose(deviation_b, np.full(2, sigma / np.sqrt(3)), rtol=1e-6)


def test_the_noise_is_factorised(monkeypatch):
    # With factors that are known, the weights by hand: w_ij = mu_ij + sigma_ij e_i e_j, b_j = mu_j + sigma_j e_j.
    of_inputs, of_outputs = np.array([1.0, -2.0, 0.5]), np.array([3.0, -1.0])
    factors = jnp.asarray(np.concatenate([of_inputs, of_outputs]), jnp.float32)
    monkeypatch.setattr(noisy, "factorised", lambda key, size: factors)
    network, params = build()
    params = jax.tree.map(lambda leaf: leaf + jnp.arange(leaf.size, dtype=leaf.dtype).reshape(leaf.shape), params)
    mean_w, mean_b, deviation_w, deviation_b = weights(params)
    w = mean_w + deviation_w * np.outer(of_inputs, of_outputs)
    b = mean_b + deviation_b * of_outputs
    np.testing.assert_allclose(network.apply(params, KEY, X), X @ w + b, rtol=1e-4, atol=1e-5)


def test_factors_are_roots_of_normals():
    factor = np.asarray(noisy.factorised(KEY, 200_000))
    normal = np.asarray(jax.random.normal(KEY, (200_000,)))
    np.testing.assert_allclose(factor, np.sign(normal) * np.sqrt(np.abs(normal)), rtol=1e-5)
    g = np.sign(factor) * factor**2
    np.testing.assert_allclose([g.mean(), g.std()], [0, 1], atol=0.01)
    np.testing.assert_allclose(np.mean(np.abs(g) < 1), 0.6827, atol=0.005)


def test_one_noise_serves_a_batch_and_another_key_gives_another():
    network, params = build(layers=2)
    same = network.apply(params, KEY, np.repeat(X[:1], 4, axis=0))
    np.testing.assert_allclose(same, np.repeat(same[:1], 4, axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(network.apply(params, KEY, X), network.apply(params, KEY, X))
    assert (network.apply(params, KEY, X) != network.apply(params, jax.random.key(1), X)).all()


def test_layers_have_noises_of_their_own():
    # The same input through two layers of the same parameters: only their noise differs.
    network = hk.transform(lambda x: [layer(x) for layer in noisy.noisy_linears([(3, 2), (3, 2)], 0.5)])
    params = network.init(KEY, X)
    params = jax.tree.map(jnp.ones_like, params)
    first, second = network.apply(params, KEY, X)
    assert (first != second).all()
    np.testing.assert_allclose(*network.apply(params, None, X), rtol=1e-5)


def test_own_noise_is_the_layer_with_each_rows_key():
    network, params = build(layers=2)
    keys = jax.random.split(jax.random.key(3), 5)
    outputs = noisy.own_noise(network).apply(params, keys, X)
    for i in range(5):
        np.testing.assert_allclose(outputs[i], network.apply(params, keys[i], X[i : i + 1])[0], rtol=1e-4, atol=1e-5)
    # So that it doesn't depend on who else is in the batch.
    few = noisy.own_noise(network).apply(params, keys[2:4], X[2:4])
    np.testing.assert_allclose(few, outputs[2:4], rtol=1e-4, atol=1e-5)
    same = noisy.own_noise(network).apply(params, keys, np.repeat(X[:1], 5, axis=0))
    assert len(np.unique(np.asarray(same)[:, 0])) == 5


def test_own_noise_makes_no_matrices_of_noise():
    network, params = build(size=64, layers=2)
    keys = jax.random.split(KEY, 5)
    jaxpr = str(jax.make_jaxpr(noisy.own_noise(network).apply)(params, keys, X))
    assert "f32[5,64]" in jaxpr or "f32[5,1,64]" in jaxpr
    assert "f32[5,64,64]" not in jaxpr
    assert "f32[5,3,64]" not in jaxpr


@pytest.mark.parametrize("key", [KEY, None])
def test_gradients_reach_the_deviations_through_the_noise_alone(key):
    network, params = build()
    gradient = jax.grad(lambda params: jnp.sum(network.apply(params, key, X) ** 2))(params)
    _, _, deviation_w, deviation_b = weights(gradient)
    assert deviation_w.any() == deviation_b.any() == (key is not None)
