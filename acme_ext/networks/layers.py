"""Layers with the initialization of Mnih et al. 2015.

Haiku initializes biases to zero, so the kink of every ReLU is at the origin, where observations such as CartPole's are.
A Q-network is then almost linear there at first. These layers initialize weights and biases uniformly in
+-1/sqrt(inputs), as the agents of Mnih et al. 2015 did (Torch's default).
"""

from collections.abc import Sequence

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.networks import convolution
from acme_ext.types import Array

POLICY_W_INIT = hk.initializers.Orthogonal(0.01)
"""Initializes a policy's last layer with small weights: all actions are about equally likely at first."""


class Linear(hk.Module):
    """An affine layer, `[B, F] -> [B, size]`."""

    def __init__(self, size: int, name: str | None = None):
        super().__init__(name)
        self._size = size

    def __call__(self, x: Array) -> Array:
        init = uniform(x.shape[-1])
        return hk.Linear(self._size, w_init=init, b_init=init)(x)


def linears(sizes: Sequence[tuple[int, int]]) -> list[Linear]:
    """Returns an affine layer for each pair of numbers of inputs and outputs."""
    return [Linear(outputs) for _, outputs in sizes]


class Conv2D(hk.Module):
    """A convolution without padding, `[B, H, W, C] -> [B, H', W', channels]`.

    If `w_init` is given, it initializes the weights, and the biases are initialized to 0.
    """

    def __init__(
        self,
        channels: int,
        kernel: int,
        stride: int = 1,
        w_init: hk.initializers.Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name)
        self._channels, self._kernel, self._stride, self._w_init = channels, kernel, stride, w_init

    def __call__(self, x: Array) -> Array:
        weights = biases = uniform(x.shape[-1] * self._kernel**2)
        if self._w_init is not None:
            weights, biases = self._w_init, hk.initializers.Constant(0.0)
        layer = convolution.Conv2D(self._channels, self._kernel, self._stride, "VALID", w_init=weights, b_init=biases)
        return layer(x)


class MLP(hk.Module):
    """Affine layers, each followed by a ReLU, `[B, F] -> [B, sizes[-1]]`."""

    def __init__(self, sizes: Sequence[int], name: str | None = None):
        super().__init__(name)
        self._sizes = sizes

    def __call__(self, x: Array) -> Array:
        for size in self._sizes:
            x = jax.nn.relu(Linear(size)(x))
        return x


def uniform(inputs: int) -> hk.initializers.Initializer:
    """Returns the initializer of weights and biases for a layer with this number of inputs."""
    bound = 1 / np.sqrt(inputs)
    return hk.initializers.RandomUniform(-bound, bound)


def scaled_pixels(image: Array) -> Array:
    """Returns an image or grid as float32; uint8 values are divided by 255."""
    return image.astype(jnp.float32) / (255.0 if image.dtype == jnp.uint8 else 1.0)
