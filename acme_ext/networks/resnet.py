"""The deep residual torso of IMPALA."""

from collections.abc import Sequence

import haiku as hk
import jax

from acme_ext.networks import layers
from acme_ext.networks.convolution import Conv2D
from acme_ext.types import Array


class ResidualTorso(hk.Module):
    """The deep torso of Espeholt et al. 2018 (figure 3, right): images `[B, H, W, C]` -> `[B, F]`.

    For each number in `channels`, it has a convolution, a max pooling that halves the image, and two residual blocks of
    two convolutions. All kernels are 3x3. uint8 images are divided by 255.
    """

    def __init__(self, channels: Sequence[int] = (16, 32, 32), name: str | None = None):
        super().__init__(name)
        self._channels = channels

    def __call__(self, image: Array) -> Array:
        x = layers.scaled_pixels(image)
        for channels in self._channels:
            x = hk.max_pool(_convolution(x, channels), (3, 3, 1), (2, 2, 1), "SAME")
            for _ in range(2):
                x = x + _convolution(jax.nn.relu(_convolution(jax.nn.relu(x), channels)), channels)
        return jax.nn.relu(hk.Flatten()(x))


def _convolution(x: Array, channels: int) -> jax.Array:
    start = layers.uniform(9 * x.shape[-1])
    return Conv2D(channels, 3, w_init=start, b_init=start)(x)
