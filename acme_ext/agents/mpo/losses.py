"""MPO's losses; the critic's are in `acme_ext/ops/critics.py`.

N actions are sampled for each of B observations; an action has A values. The E-step is section 4.1 of Abdolmaleki et
al. 2018a, and the M-step with its two bounds is in the section of 2018b on fitting an improved Gaussian policy.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array

_LEAST = 1e-8  # minimum of a dual variable; keeps values divided by a temperature finite
_LEAST_RAW = -18.0  # minimum before the softplus, which is then about 1.5e-8 and still has a gradient


class Duals(NamedTuple):
    """The dual variables: temperatures for the E-step's bounds, and multipliers for the M-step's bounds.

    The fields are the unconstrained parameters; `values` returns the positive variables, with a softplus.
    """

    temperature: Array  # []
    penalty_temperature: Array  # [], for the cost of actions out of bounds
    alpha_mean: Array  # [A]
    alpha_stddev: Array  # [A]

    def values(self) -> "Duals":
        """Returns the dual variables, all positive."""
        return jax.tree.map(lambda raw: jax.nn.softplus(raw) + _LEAST, self)

    def projected(self) -> "Duals":
        """Returns the parameters with a lower bound, because below it the softplus has almost no gradient."""
        return jax.tree.map(lambda raw: jnp.maximum(raw, _LEAST_RAW), self)


def start_duals(temperature: float, alpha_mean: float, alpha_stddev: float, action_size: int) -> Duals:
    """Returns the parameters of dual variables with these initial values."""
    # softplus(x) = v  where  x = v + log(1 - exp(-v)).
    raw = [value + np.log(-np.expm1(-value)) for value in (temperature, alpha_mean, alpha_stddev)]
    each = [jnp.full((action_size,), value, jnp.float32) for value in raw[1:]]
    return Duals(jnp.float32(raw[0]), jnp.float32(raw[0]), *each)


def improved_weights(q: Array, temperature: Array) -> Array:
    """Returns the E-step's weights `[N, B]` of sampled actions: the softmax over n of q / temperature.

    The weighted samples represent the improved, nonparametric policy. No gradient flows through them.

    Args:
        q: `[N, B]` values of actions sampled from the target policy.
        temperature: `[]` the temperature eta.
    """
    return lax.stop_gradient(jax.nn.softmax(q / temperature, axis=0))


def temperature_loss(q: Array, temperature: Array, epsilon: float) -> Array:
    """Returns the dual function `[]` of the E-step.

    At the temperature that minimises it, the KL divergence between the improved policy and the target policy is
    `epsilon`, on average over observations.

    eta * epsilon + eta * mean_b log mean_n exp(q[n, b] / eta)

    Args:
        q: `[N, B]` values of sampled actions.
        temperature: `[]` the temperature eta.
        epsilon: bound on the KL divergence, in nats.
    """
    log_mean = jax.nn.logsumexp(lax.stop_gradient(q) / temperature, axis=0) - jnp.log(q.shape[0])
    return temperature * (epsilon + jnp.mean(log_mean))


def weights_kl(weights: Array) -> Array:
    """Returns the KL divergence `[]` of weights `[N, B]` from uniform weights, averaged over B."""
    return jnp.mean(jnp.sum(jax.scipy.special.xlogy(weights, weights * weights.shape[0]), axis=0))


def bounds_cost(actions: Array) -> Array:
    """Returns the negative distance `[N, B]` of actions `[N, B, A]` from [-1, 1], which is to be maximised.

    It is the negative norm of the difference to the clipped action (Hoffman et al. 2020, released code, after
    Abdolmaleki et al. 2020).
    """
    beyond = actions - jnp.clip(actions, -1.0, 1.0)
    return -jnp.linalg.norm(beyond, axis=-1)


def weighted_log_likelihood(policy: Gaussian, actions: Array, weights: Array) -> Array:
    """Returns the objective of the M-step, mean_b sum_n weights[n, b] log policy(actions[n, b]), `[]`.

    Args:
        policy: `[B, A]` action distributions.
        actions: `[N, B, A]` sampled actions.
        weights: `[N, B]` the E-step's weights.
    """
    return jnp.mean(jnp.sum(weights * policy.log_prob(actions), axis=0))


def mean_kl(target: Gaussian, mean: Array) -> Array:
    """Returns KL(target | target with another mean) for each dimension `[A]`, averaged over B."""
    return jnp.mean(0.5 * ((mean - target.mean) / target.stddev) ** 2, axis=0)


def stddev_kl(target: Gaussian, stddev: Array) -> Array:
    """Returns KL(target | target with another standard deviation) for each dimension `[A]`, averaged over B."""
    ratio = target.stddev / stddev
    return jnp.mean(0.5 * (ratio**2 - 1) - jnp.log(ratio), axis=0)


def multiplier_loss(kl: Array, alpha: Array, epsilon: float) -> Array:
    """Returns the loss `[]` of the multipliers for the bounds kl <= epsilon.

    It increases a multiplier if its bound is violated, and decreases it otherwise.

    sum_i alpha_i * (epsilon - kl_i), the negative of the Lagrangian term sum_i alpha_i * (kl_i - epsilon) that the
    policy minimises.

    Args:
        kl: `[A]` KL divergences, without a gradient.
        alpha: `[A]` multipliers.
        epsilon: bound on the KL divergence, in nats.
    """
    return jnp.sum(alpha * (epsilon - lax.stop_gradient(kl)))
