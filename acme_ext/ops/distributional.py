"""Distributions of returns, on fixed atoms or as quantiles: targets, losses and means, batched.

A leading `...` stands for any number of axes, usually `[B]`. Nothing here stops a gradient: who bootstraps from what is
the agent's to say.
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
        logits: `[..., N]` of the atoms.
        atoms: `[N]` the values z_i that the atoms stand for.
    """
    return jax.nn.softmax(logits) @ atoms


def categorical_projection(values: Array, probs: Array, atoms: Array) -> Array:
    """Returns the probabilities `[..., N]` of a distribution projected onto a fixed support (Bellemare et al. 2017, eq.
    7).

    sum_j probs_j * clip(1 - |clip(values_j, z_1, z_N) - z_i| / dz, 0, 1): each value's probability is shared by the
    two atoms around it, in proportion to how near they are; what lies beyond the support goes to its ends.

    Args:
        values: `[..., M]` where the distribution has its mass.
        probs: `[..., M]` how much of it; sums to 1.
        atoms: `[N]` the support, ascending and evenly spaced, N of at least 2.
    """
    spacing = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    inside = jnp.clip(values, atoms[0], atoms[-1])
    share = jnp.clip(1 - jnp.abs(inside[..., :, None] - atoms) / spacing, 0, 1)
    return jnp.einsum("...m,...mn->...n", probs, share)


def categorical_target(r_t: Array, discount_t: Array, probs_t: Array, atoms: Array) -> Array:
    """Returns the probabilities `[..., N]` of the distributional Bellman target, R_t + gamma_t * Z_t on the support
    (Bellemare et al. 2017, algorithm 1). With n-step transitions `discount_t` is the discount of all n.

    Args:
        r_t: `[...]` rewards.
        discount_t: `[...]` discounts, zero after a termination.
        probs_t: `[..., N]` the distribution Z_t that is bootstrapped from.
        atoms: `[N]` its support, and the target's.
    """
    return categorical_projection(r_t[..., None] + discount_t[..., None] * atoms, probs_t, atoms)


class Support(NamedTuple):
    """The whole numbers from -size to size, on which a value x lies as h(x) (Schrittwieser et al. 2020, appendix F).

    A value between two atoms is shared by them, in proportion to how near they are: 3.7 is 0.3 on 3 and 0.7 on 4.
    """

    size: int
    epsilon: float | None  # of h, see `multistep.signed_hyperbolic`; None for values as they are

    @property
    def num_atoms(self) -> int:
        """How many atoms there are."""
        return 2 * self.size + 1

    @property
    def largest(self) -> float:
        """The largest value that lies on it."""
        size = np.float64(self.size)
        return float(size if self.epsilon is None else multistep.signed_parabolic(np.asarray(size), self.epsilon))

    def probs(self, x: Array) -> Array:
        """Returns the probabilities `[..., N]` that stand for values `[...]`; what lies beyond goes to the ends."""
        x = x if self.epsilon is None else multistep.signed_hyperbolic(x, self.epsilon)
        return categorical_projection(x[..., None], jnp.ones((*x.shape, 1)), self._atoms())

    def mean(self, logits: Array) -> Array:
        """Returns the values `[...]` of distributions `[..., N]`: h's inverse of the mean."""
        x = categorical_mean(logits, self._atoms())
        return x if self.epsilon is None else multistep.signed_parabolic(x, self.epsilon)

    def _atoms(self) -> Array:
        return jnp.arange(-self.size, self.size + 1, dtype=jnp.float32)


def cross_entropy(probs: Array, logits: Array) -> Array:
    """Returns -sum_i probs_i log softmax(logits)_i, `[...]`, of `[..., N]` each."""
    return -jnp.sum(probs * jax.nn.log_softmax(logits), axis=-1)


def categorical_kl(probs: Array, logits: Array) -> Array:
    """Returns KL(probs || softmax(logits)), `[...]`, of `[..., N]` each: the cross-entropy less the entropy of `probs`.

    By the logits it has the gradient of the cross-entropy, and it is zero where the prediction is right.
    """
    return cross_entropy(probs, logits) + jnp.sum(jax.scipy.special.xlogy(probs, probs), axis=-1)


def quantile_midpoints(count: int) -> Array:
    """Returns the fractions `[count]` whose quantiles stand best for a distribution, (2 i - 1) / (2 count) (Dabney et
    al. 2018a, lemma 2).
    """
    return (jnp.arange(count) + 0.5) / count


def quantile_loss(quantiles: Array, taus: Array, targets: Array, kappa: float) -> Array:
    """Returns the quantile regression loss `[...]` (Dabney et al. 2018a, eq. 10; 2018b, eq. 3).

    sum_i mean_j |tau_i - 1(u_ij < 0)| * huber_kappa(u_ij) / kappa with u_ij = targets_j - quantiles_i. The division,
    which is 2018b's, makes kappa of 0 the limit, |u| in place of the Huber loss.

    Args:
        quantiles: `[..., N]` predictions.
        taus: `[..., N]` or `[N]` the fraction in (0, 1) that each predicts the quantile of.
        targets: `[..., M]` samples or quantiles of what is to be predicted.
        kappa: where the Huber loss turns linear; at least 0.
    """
    u = targets[..., None, :] - quantiles[..., :, None]
    loss = value.huber(u, kappa) / kappa if kappa > 0 else jnp.abs(u)
    weight = jnp.abs(taus[..., :, None] - (u < 0))
    return jnp.sum(jnp.mean(weight * loss, axis=-1), axis=-1)
