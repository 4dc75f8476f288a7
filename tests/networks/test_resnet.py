import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.networks.resnet import ResidualTorso


def test_the_published_sizes():
    """15 convolutions, and for Atari's pictures 11 * 11 * 32 features."""
    torso = hk.transform(lambda image: ResidualTorso()(image))
    params = jax.eval_shape(torso.init, jax.random.key(0), jnp.zeros((2, 84, 84, 4), jnp.uint8))
    shapes = [leaves["w"].shape for leaves in params.values()]
    assert len(shapes) == 15
    assert sorted(set(shapes)) == [(3, 3, 4, 16), (3, 3, 16, 16), (3, 3, 16, 32), (3, 3, 32, 32)]
    features = jax.eval_shape(torso.apply, params, None, jnp.zeros((2, 84, 84, 4), jnp.uint8))
    assert features.shape == (2, 11 * 11 * 32)


def test_blocks_add_to_what_went_in():
    """With the blocks' kernels zero, what the first convolution found is pooled and passed on."""
    torso = hk.transform(lambda image: ResidualTorso((1,))(image))
    image = jax.random.uniform(jax.random.key(1), (1, 4, 4, 1))
    params = torso.init(jax.random.key(0), image)
    params = jax.tree.map(jnp.zeros_like, params)
    first = min(params, key=len)
    kernel = jnp.zeros((3, 3, 1, 1)).at[1, 1, 0, 0].set(2.0)
    features = torso.apply({**params, first: {"w": kernel, "b": jnp.full(1, -0.5)}}, None, image)
    x = np.asarray(image)[0, :, :, 0]
    pooled = [[x[i : i + 3, j : j + 3].max() for j in (0, 2)] for i in (0, 2)]
    np.testing.assert_allclose(features[0], np.maximum(2 * np.ravel(pooled) - 0.5, 0), rtol=1e-5)


def test_bytes_are_scaled():
    torso = hk.transform(lambda image: ResidualTorso((2,))(image))
    image = jax.random.randint(jax.random.key(1), (1, 8, 8, 3), 0, 256).astype(jnp.uint8)
    params = torso.init(jax.random.key(0), image)
    np.testing.assert_allclose(
        torso.apply(params, None, image), torso.apply(params, None, image / jnp.float32(255)), rtol=1e-5
    )
