import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from acme_ext.networks import torsos

KEY = jax.random.key(0)


def build(observation, hidden_sizes=(16, 8), image_features=32):
    """Returns parameters by module and name, and features."""
    network = hk.without_apply_rng(hk.transform(lambda o: torsos.dense_features(None, o, hidden_sizes, image_features)))
    params = network.init(KEY, observation)
    shapes = [tuple(leaf.shape) for leaf in jax.tree.leaves(params) if leaf.ndim > 1]
    return shapes, network.apply(params, observation), params, network


@pytest.mark.parametrize(
    ("observation", "kernels", "features"),
    [
        # Nature: 84 pixels become 20, 9 and 7 by kernels of 8, 4 and 3 with strides of 4, 2 and 1; 7 * 7 * 64 = 3136.
        (np.zeros((2, 84, 84, 4), np.uint8), {(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (3136, 32)}, 32),
        # A single grey picture: 64 pixels become 15, 6 and 4.
        (np.zeros((2, 64, 64, 1), np.uint8), {(8, 8, 1, 32), (4, 4, 32, 64), (3, 3, 64, 64), (1024, 32)}, 32),
        # MinAtar: 10 cells become 8; 8 * 8 * 16 = 1024.
        (np.zeros((2, 10, 10, 7), np.bool_), {(3, 3, 7, 16), (1024, 32)}, 32),
        # Vectors, boards without channels (catch) and single numbers.
        (np.zeros((2, 5), np.float32), {(5, 16), (16, 8)}, 8),
        (np.zeros((2, 10, 5), np.float32), {(50, 16), (16, 8)}, 8),
        (np.zeros((2, 10, 5, 1), np.float32), {(50, 16), (16, 8)}, 8),
        (np.zeros((2,), np.int32), {(1, 16), (16, 8)}, 8),
        ({"b": np.zeros((2, 3), np.float32), "a": np.zeros((2, 2, 2), np.int32)}, {(7, 16), (16, 8)}, 8),
    ],
)
def test_the_observation_chooses(observation, kernels, features):
    shapes, out, _, _ = build(observation)
    assert set(shapes) == kernels
    assert len(shapes) == len(kernels)
    assert out.shape == (2, features)
    assert out.dtype == jnp.float32
    assert (out >= 0).all()  # behind a ReLU


def test_without_hidden_layers_features_are_the_observation():
    shapes, out, _, _ = build(np.array([[1.0, -2.0]], np.float32), hidden_sizes=())
    assert shapes == []
    np.testing.assert_array_equal(out, [[1, -2]])


@pytest.mark.parametrize(("side", "kernel", "features"), [(32, 4, 1024), (42, 4, 3136), (48, 8, 256), (84, 8, 3136)])
def test_small_pictures_keep_their_places(side, kernel, features):
    shapes, _, _, _ = build(np.zeros((2, side, side, 4), np.uint8))
    assert {(kernel, kernel, 4, 32), (features, 32)} <= set(shapes)


def test_pixels_are_scaled():
    # Without biases and negative weights the torso is linear: an image five times as bright gives five times as much.
    network = hk.without_apply_rng(hk.transform(lambda o: torsos.NatureTorso()(o)))
    dark, bright = np.full((1, 84, 84, 4), 51, np.uint8), np.full((1, 84, 84, 4), 255, np.uint8)
    params = network.init(KEY, dark)
    params = jax.tree.map(lambda leaf: jnp.abs(leaf) if leaf.ndim > 1 else jnp.zeros_like(leaf), params)
    np.testing.assert_allclose(network.apply(params, bright), 5 * network.apply(params, dark), rtol=1e-4)
    # The largest pixel is 1: the first layer's outputs are its kernels' sums.
    ones = hk.without_apply_rng(hk.transform(lambda o: torsos.NatureTorso()(o).sum()))
    first = next(leaf for leaf in jax.tree.leaves(params) if leaf.shape == (8, 8, 4, 32)).sum(axis=(0, 1, 2))
    second = next(leaf for leaf in jax.tree.leaves(params) if leaf.shape == (4, 4, 32, 64)).sum(axis=(0, 1))
    third = next(leaf for leaf in jax.tree.leaves(params) if leaf.shape == (3, 3, 64, 64)).sum(axis=(0, 1))
    np.testing.assert_allclose(ones.apply(params, bright), 49 * (first @ second @ third).sum(), rtol=1e-4)


@pytest.mark.parametrize("name", sorted(torsos.TORSOS.keys() - {"flat"}))
def test_only_bytes_are_divided_by_255(name):
    on = np.random.default_rng(0).random((2, 36, 36, 3)) < 0.5
    network = hk.without_apply_rng(hk.transform(lambda o: torsos.features(name, o)))
    params = network.init(KEY, on)
    expected = network.apply(params, (255 * on).astype(np.uint8))
    for picture in (on, on.astype(np.float32)):
        np.testing.assert_allclose(network.apply(params, picture), expected, rtol=1e-4, atol=1e-6)


def test_fields_are_joined_in_the_order_of_their_names():
    observation = {"b": np.array([[3, 4]], np.int32), "a": {"d": np.array([[[2.5]]]), "c": np.array([True])}}
    joined = torsos.flatten_observation(observation)
    assert joined.dtype == jnp.float32
    np.testing.assert_array_equal(joined, [[1, 2.5, 3, 4]])


def test_layers_start_within_the_inverse_root_of_their_inputs():
    # Biases too: with zeros every unit's kink would lie at the origin.
    _, _, params, _ = build(np.zeros((1, 100), np.float32), hidden_sizes=(400, 400))
    first, second = (params[name] for name in sorted(params))
    for layer, inputs in ((first, 100), (second, 400)):
        bound = 1 / np.sqrt(inputs)
        for leaf in layer.values():
            assert jnp.abs(leaf).max() <= bound
            np.testing.assert_allclose(jnp.std(leaf), bound / np.sqrt(3), rtol=0.1)  # uniform
            np.testing.assert_allclose(jnp.mean(leaf), 0, atol=bound / 5)
    _, _, params, _ = build(np.zeros((1, 84, 84, 4), np.uint8))
    kernel, bias = next((m["w"], m["b"]) for m in params.values() if m["w"].shape == (8, 8, 4, 32))
    assert jnp.abs(bias).max() <= 1 / 16 + 1e-6  # of 8 * 8 * 4 = 256 inputs
    np.testing.assert_allclose(jnp.abs(kernel).max(), 1 / 16, rtol=0.01)


@pytest.mark.parametrize(
    ("observation", "features"),
    [(np.zeros((2, 84, 84, 4), np.uint8), 3136), (np.zeros((2, 10, 10, 7), np.bool_), 1024), (np.zeros((2, 5)), 8)],
)
def test_features_lack_the_layer_behind_convolutions(observation, features):
    body = hk.without_apply_rng(hk.transform(lambda o: torsos.features(None, o, (16, 8))))
    params = body.init(KEY, observation)
    assert body.apply(params, observation).shape == (2, features)
    assert torsos.is_image(observation) == (features > 8)


@pytest.mark.parametrize("name", sorted(torsos.TORSOS))
def test_torsos_by_name_and_of_ones_own_take_the_place_of_the_default(name):
    picture = np.zeros((2, 36, 36, 3), np.uint8)

    def features(torso):
        network = hk.without_apply_rng(hk.transform(lambda o: torsos.dense_features(torso, o, (16,), 32)))
        return network.apply(network.init(KEY, picture), picture)

    assert features(name).ndim == 2
    assert features(name).shape == features(lambda: torsos.TORSOS[name](None)).shape
    assert features(lambda: lambda o: jnp.ones((len(o), 7))).shape == (2, 7)


@pytest.mark.parametrize("name", ["nature", "small", "grid"])
def test_torsos_by_name_start_as_the_agent_wants(name):
    picture = np.zeros((2, 36, 36, 3), np.uint8)
    w_init = hk.initializers.Constant(0.5)
    network = hk.transform(lambda o: torsos.features(name, o, w_init=w_init))
    for leaf in jax.tree.leaves(network.init(KEY, picture)):
        np.testing.assert_array_equal(leaf, 0.5 if leaf.ndim > 1 else 0.0)
