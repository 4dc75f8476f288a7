"""Images in observations, and their random shifts, a data augmentation for learning from pixels."""

import jax
import jax.numpy as jnp

from acme_ext.types import Array


def is_picture(field: Array) -> bool:
    """Whether a batch of a field `[B, ...]` of observations has images `[H, W, C]`; grids with channels count too."""
    return field.ndim == 4


def random_shift(key: Array, pictures: Array, most: int) -> Array:
    """Returns images `[B, H, W, C]`, each shifted down and right by random numbers of pixels in [-most, most].

    Pixels that come in at an edge repeat the edge. This is the same as padding the image by `most` pixels of its edge,
    and cropping it to its size at a random place (Kostrikov et al. 2020, section 4.1). All channels of an image, and so
    all frames of a stack, are shifted together.

    Args:
        key: a random key.
        pictures: `[B, H, W, C]`, of any dtype; the result has the same dtype.
        most: maximum shift in pixels; 0 leaves the images unchanged.
    """
    batch, height, width, _ = pictures.shape
    shifts = jax.random.randint(key, (2, batch, 1), -most, most + 1)
    rows = jnp.clip(jnp.arange(height) - shifts[0], 0, height - 1)
    columns = jnp.clip(jnp.arange(width) - shifts[1], 0, width - 1)
    return jnp.asarray(pictures)[jnp.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]
