"""Targets, losses and means for distributions of returns, on fixed atoms or as quantiles, batched.

A leading `...` stands for any number of axes, usually `[B]`. These functions don't stop gradients; the agents do that.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from acme_ext.ops import multistep, value
from acme_ext.types import Array


def categorical_mean(logits: Array, atoms: Array) -> Array:
    """Returns the means `[...]` of categorical distributions, sum_i softmax(logits)_i z_i.

    Args:
        logits: `[..., N]` logits of the atoms.
        atoms: `[N]` the values z_i of the atoms.
    """
    return jax.nn.softmax(logits) @ atoms


def categorical_projection(values: Array, probs: Array, atoms: Array) -> Array:
    """Returns the probabilities `[..., N]` of a distribution projected onto a fixed support (Bellemare et al. 2017, eq.
    7).

    sum_j probs_j * clip(1 - |clip(values_j, z_1, z_N) - z_i| / dz, 0, 1): each value's probability is divided between
    the two nearest atoms by linear interpolation. Values outside the support are moved to its ends.

    Args:
        values: `[..., M]` the values of the distribution.
        probs: `[..., M]` their probabilities, which sum to 1.
        atoms: `[N]` the support, ascending and evenly spaced, with N of at least 2.
    """
    spacing = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    inside = jnp.clip(values, atoms[0], atoms[-1])
    share = jnp.clip(1 - jnp.abs(inside[..., :, None] - atoms) / spacing, 0, 1)
    return jnp.einsum("...m,...mn->...n", probs, share)


def categorical_target(r_t: Array, discount_t: Array, probs_t: Array, atoms: Array) -> Array:
    """Returns the probabilities `[..., N]` of the distributional Bellman target, R_t + gamma_t * Z_t on the support
    (Bellemare et al. 2017, algorithm 1). For n-step transitions, `discount_t` is the discount over all n steps.

    Args:
        r_t: `[...]` rewards.
        discount_t: `[...]` discounts, zero after a termination.
        probs_t: `[..., N]` the distribution Z_t to bootstrap from.
        atoms: `[N]` the support of Z_t and of the target.
    """
    return categorical_projection(r_t[..., None] + discount_t[..., None] * atoms, probs_t, atoms)


class Support(NamedTuple):
    """A support of the integers from -size to size, which represent values x as h(x) (Schrittwieser et al. 2020,
    appendix F).

    A value between two atoms is divided between them by linear interpolation: 3.7 is 0.3 on 3 and 0.7 on 4.
    """

    size: int
    epsilon: float | None  # epsilon of h, see `multistep.signed_hyperbolic`; None for unscaled values

    @property
    def num_atoms(self) -> int:
        """The number of atoms."""
        return 2 * self.size + 1

    @property
    def largest(self) -> float:
        """The largest value that the support can represent."""
        size = np.float64(self.size)
        return float(size if self.epsilon is None else multistep.signed_parabolic(np.asarray(size), self.epsilon))

    def probs(self, x: Array) -> Array:
        """Returns the probabilities `[..., N]` that represent values `[...]`; values outside are moved to the ends."""
        x = x if self.epsilon is None else multistep.signed_hyperbolic(x, self.epsilon)
        return categorical_projection(x[..., None], jnp.ones((*x.shape, 1)), self._atoms())

    def mean(self, logits: Array) -> Array:
        """Returns the values `[...]` of distributions with logits `[..., N]`: the inverse of h at their means."""
        x = categorical_mean(logits, self._atoms())
        return x if self.epsilon is None else multistep.signed_parabolic(x, self.epsilon)

    def _atoms(self) -> Array:
        return jnp.arange(-self.size, self.size + 1, dtype=jnp.float32)


def cross_entropy(probs: Array, logits: Array) -> Array:
    """Returns the cross-entropy -sum_i probs_i log softmax(logits)_i, `[...]`, for inputs `[..., N]`."""
    return -jnp.sum(probs * jax.nn.log_softmax(logits), axis=-1)


def categorical_kl(probs: Array, logits: Array) -> Array:
    """Returns KL(probs || softmax(logits)), `[...]`, for inputs `[..., N]`: cross-entropy minus the entropy of `probs`.

    It has the same gradient with respect to the logits as the cross-entropy, and is zero for a perfect prediction.
    """
    return cross_entropy(probs, logits) + jnp.sum(jax.scipy.special.xlogy(probs, probs), axis=-1)


def quantile_midpoints(count: int) -> Array:
    """Returns the fractions `[count]` whose quantiles approximate a distribution best, (2 i - 1) / (2 count) (Dabney et
    al. 2018a, lemma 2).
    """
    return (jnp.arange(count) + 0.5) / count


def quantile_loss(quantiles: Array, taus: Array, targets: Array, kappa: float) -> Array:
    """Returns the quantile regression loss `[...]` (Dabney et al. 2018a, eq. 10; 2018b, eq. 3).

    sum_i mean_j |tau_i - 1(u_ij < 0)| * huber_kappa(u_ij) / kappa, with u_ij = targets_j - quantiles_i. The division by
    kappa is from 2018b. With it, the limit for kappa = 0 is |u| instead of the Huber loss.

    Args:
        quantiles: `[..., N]` predicted quantiles.
        taus: `[..., N]` or `[N]` the fractions in (0, 1) of these quantiles.
        targets: `[..., M]` samples or quantiles of the target distribution.
        kappa: where the Huber loss becomes linear; at least 0.
    """
    u = targets[..., None, :] - quantiles[..., :, None]
    loss = value.huber(u, kappa) / kappa if kappa > 0 else jnp.abs(u)
    weight = jnp.abs(taus[..., :, None] - (u < 0))
    return jnp.sum(jnp.mean(weight * loss, axis=-1), axis=-1)
