"""Gaussian policies.

The caller provides the standard normal noise for samples. It uses one random key for a batch when learning, and one key
for each environment when acting.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.types import Array

_LOG_2PI = float(np.log(2 * np.pi))


class Gaussian(NamedTuple):
    """Independent normal values `[..., A]`."""

    mean: Array  # [..., A]
    stddev: Array  # [..., A]

    def mode(self) -> Array:
        """Returns the most likely action `[..., A]`."""
        return self.mean

    def sample(self, noise: Array) -> Array:
        """Returns actions `[..., A]`, given standard normal noise that broadcasts against them."""
        return self.mean + self.stddev * noise

    def log_prob(self, action: Array) -> Array:
        """Returns the log-density `[...]` of actions `[..., A]`."""
        z = (action - self.mean) / self.stddev
        return jnp.sum(-0.5 * z**2 - jnp.log(self.stddev) - 0.5 * _LOG_2PI, axis=-1)

    def entropy(self) -> Array:
        """Returns the entropy `[...]`, in nats."""
        return jnp.sum(jnp.log(self.stddev) + 0.5 * (1 + _LOG_2PI), axis=-1)


class SquashedGaussian(NamedTuple):
    """The tanh of independent normal values: actions `[..., A]` in [-1, 1] (Haarnoja et al. 2018a, appendix C)."""

    mean: Array  # [..., A] before the tanh
    stddev: Array  # [..., A] before the tanh

    def mode(self) -> Array:
        """Returns the tanh of the mean `[..., A]`, the median in each dimension."""
        return jnp.tanh(self.mean)

    def sample(self, noise: Array) -> Array:
        """Returns actions `[..., A]`, given standard normal noise that broadcasts against them."""
        return jnp.tanh(self.mean + self.stddev * noise)

    def sample_with_log_prob(self, noise: Array) -> tuple[Array, Array]:
        """Returns actions `[..., A]` and their log-densities `[...]`.

        log pi(a) = log N(u; mean, stddev) - sum_i log(1 - tanh(u_i)**2), with a = tanh(u)   (eq. 21). The last term is
        computed as 2 (log 2 - u - softplus(-2 u)), which keeps its precision and gradient even if tanh(u) rounds to 1.
        """
        u = self.mean + self.stddev * noise
        # u was sampled, so (u - mean) / stddev is the noise itself.
        log_normal = -0.5 * noise**2 - jnp.log(self.stddev) - 0.5 * _LOG_2PI
        log_slope = 2 * (np.log(2) - u - jax.nn.softplus(-2 * u))
        return jnp.tanh(u), jnp.sum(log_normal - log_slope, axis=-1)
