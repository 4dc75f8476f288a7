"""Layers whose weights are noisy, so that an agent explores by them (Fortunato et al. 2018)."""

import functools
from collections.abc import Callable, Sequence

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.networks import layers
from acme_ext.types import Array


class NoisyLinear(hk.Module):
    """An affine layer with factorised Gaussian noise on weights and biases, `[..., F] -> [..., size]` (Fortunato et al.
    2018, eq. 9 to 11).

    y = (mu_w + sigma_w * e_out e_in^T) x + mu_b + sigma_b * e_out

    It is computed as mu_w x + mu_b + e_out * (sigma_w (e_in * x) + sigma_b), which is one more product and no matrix of
    noise.

    Args:
        size: outputs.
        sigma: sigma_0; every sigma starts at sigma_0 / sqrt(inputs).
    """

    def __init__(self, size: int, sigma: float, name: str | None = None):
        super().__init__(name)
        self._size, self._sigma = size, sigma

    def __call__(self, x: Array, noise: Array | None) -> Array:
        """Applies the layer with the factors `[F + size]` of its noise, e_in and e_out; None is the mean alone."""
        mean = layers.Linear(self._size, name="mean")(x)  # it starts as the paper's, in +-1/sqrt(inputs)
        if noise is None:
            return mean
        inputs = x.shape[-1]
        start = hk.initializers.Constant(self._sigma / np.sqrt(inputs))
        deviation = hk.Linear(self._size, w_init=start, b_init=start, name="deviation")
        return mean + noise[inputs:] * deviation(noise[:inputs] * x)


def noisy_linears(sizes: Sequence[tuple[int, int]], sigma: float) -> list[Callable[[Array], Array]]:
    """Returns a noisy layer for each pair of inputs and outputs.

    One noise is drawn for the whole batch that goes through, from the network's random key; without a key there is
    none. For a noise of each environment see `own_noise`. All layers' is drawn at once: XLA takes a third of a second
    to compile each draw of normals for a CPU.
    """
    key = hk.maybe_next_rng_key()
    noise = None if key is None else factorised(key, sum(map(sum, sizes)))
    made, start = [], 0
    for inputs, outputs in sizes:
        end = start + inputs + outputs
        made.append(functools.partial(NoisyLinear(outputs, sigma), noise=None if noise is None else noise[start:end]))
        start = end
    return made


def factorised(key: Array, size: int) -> Array:
    """Returns factors of noise, `[size]`: sign(g) sqrt(|g|) of standard normal g (Fortunato et al. 2018, eq. 10)."""
    g = jax.random.normal(key, (size,))
    return jnp.sign(g) * jnp.sqrt(jnp.abs(g))


def own_noise(network: hk.Transformed) -> hk.Transformed:
    """Returns the same network with `apply(params, keys [B], observation [B, ...])`: each row of the batch has the
    noise of its own key, and so never depends on the others.
    """

    def one(params, key, observation):
        out = network.apply(params, key, jax.tree.map(lambda leaf: leaf[None], observation))
        return jax.tree.map(lambda leaf: leaf[0], out)

    return network._replace(apply=jax.vmap(one, (None, 0, 0)))
