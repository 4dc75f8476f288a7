"""Random shifts of pictures, by which an agent that learns from them sees each at another place."""

import jax
import jax.numpy as jnp

from acme_ext.types import Array


def random_shift(key: Array, pictures: Array, most: int) -> Array:
    """Returns pictures `[B, H, W, C]`, each moved by a random number of pixels down and right, in [-most, most].

    What comes in at an edge repeats the edge: that is a picture padded by `most` pixels of its edge, and cut to its
    size at a random place (Kostrikov et al. 2020, section 4.1). All channels of a picture, and so all frames of a
    stack, move together.

    Args:
        key: a random key; the same one gives the same shifts.
        pictures: `[B, H, W, C]`, of any type, which they keep.
        most: pixels; 0 leaves the pictures as they are.
    """
    batch, height, width, _ = pictures.shape
    shifts = jax.random.randint(key, (2, batch, 1), -most, most + 1)
    rows = jnp.clip(jnp.arange(height) - shifts[0], 0, height - 1)
    columns = jnp.clip(jnp.arange(width) - shifts[1], 0, width - 1)
    return jnp.asarray(pictures)[jnp.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]
