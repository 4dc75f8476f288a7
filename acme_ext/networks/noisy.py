"""Noisy layers, whose random weights make an agent explore (Fortunato et al. 2018)."""

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

    For several rows, the noisy weights are computed first, and then one matrix product. For one row, as in `own_noise`,
    the layer is computed as mu_w x + mu_b + e_out * (sigma_w (e_in * x) + sigma_b): then rows with noise of their own
    share two matrix products, and no matrix of noise is needed for each row.

    Args:
        size: number of outputs.
        sigma: sigma_0; every sigma is initialized to sigma_0 / sqrt(inputs).
    """

    def __init__(self, size: int, sigma: float, name: str | None = None):
        super().__init__(name)
        self._size, self._sigma = size, sigma

    def __call__(self, x: Array, noise: Array | None) -> Array:
        """Applies the layer with the noise factors `[F + size]`, e_in and e_out; None applies only the mean weights."""
        inputs = x.shape[-1]
        start = layers.uniform(inputs)  # initialized as in the paper, in +-1/sqrt(inputs)
        with hk.name_scope("mean"):
            w, b = _Affine(self._size, start, name="linear")(inputs)
        if noise is None:
            return x @ w + b
        start = hk.initializers.Constant(self._sigma / np.sqrt(inputs))
        sigma_w, sigma_b = _Affine(self._size, start, name="deviation")(inputs)
        e_in, e_out = noise[:inputs], noise[inputs:]
        if x.size == inputs:
            return x @ w + b + e_out * ((e_in * x) @ sigma_w + sigma_b)
        return x @ (w + sigma_w * (e_in[:, None] * e_out)) + b + sigma_b * e_out


class _Affine(hk.Module):
    """Weights `[F, size]` and biases `[size]`."""

    def __init__(self, size: int, start: hk.initializers.Initializer, name: str):
        super().__init__(name)
        self._size, self._start = size, start

    def __call__(self, inputs: int) -> tuple[Array, Array]:
        w = hk.get_parameter("w", (inputs, self._size), init=self._start)
        return w, hk.get_parameter("b", (self._size,), init=self._start)


def noisy_linears(sizes: Sequence[tuple[int, int]], sigma: float) -> list[Callable[[Array], Array]]:
    """Returns a noisy layer for each pair of numbers of inputs and outputs.

    The noise is sampled once for the whole batch, from the network's random key; without a key, there is no noise. For
    separate noise for each environment, see `own_noise`. The noise of all layers is sampled together, because XLA takes
    a third of a second to compile each sampling of normals for the CPU.
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
    """Returns noise factors `[size]`: sign(g) sqrt(|g|) for standard normal g (Fortunato et al. 2018, eq. 10).

    They are equal to those of g = `jax.random.normal(key, (size,))`. But sign(g) is computed without the inverse error
    function, which XLA would otherwise compute again for each row of a batch: on a CPU, a quarter of Rainbow's step.
    """
    u = jax.random.uniform(key, (size,), minval=np.nextafter(np.float32(-1), np.float32(0)), maxval=1.0)
    return jnp.sign(u) * jnp.sqrt(np.sqrt(2) * jax.lax.erf_inv(jnp.abs(u)))


def own_noise(network: hk.Transformed) -> hk.Transformed:
    """Returns the same network with `apply(params, keys [B], observation [B, ...])`.

    Each row of the batch has noise from its own key, so it doesn't depend on the other rows.
    """

    def one(params, key, observation):
        out = network.apply(params, key, jax.tree.map(lambda leaf: leaf[None], observation))
        return jax.tree.map(lambda leaf: leaf[0], out)

    return network._replace(apply=jax.vmap(one, (None, 0, 0)))
