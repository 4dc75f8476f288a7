"""MPO's losses; the critic's are in `acme_ext/ops/critics.py`.

N actions are sampled for each of B observations; an action has A values. The E-step is section 4.1 of Abdolmaleki et
al. 2018a, the M-step with its two bounds the section on fitting an improved Gaussian policy of 2018b.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from acme_ext.ops.gaussian import Gaussian
from acme_ext.types import Array

_LEAST = 1e-8  # of a dual variable; keeps the tempered values finite
_LEAST_RAW = -18.0  # its value before the softplus, of about 1.5e-8, where its gradient has not yet vanished


class Duals(NamedTuple):
    """The dual variables: a temperature for each of the E-step's bounds, multipliers for the M-step's.

    Kept as what a softplus makes positive; `values` gives the variables themselves.
    """

    temperature: Array  # []
    penalty_temperature: Array  # [], of the cost of actions out of bounds
    alpha_mean: Array  # [A]
    alpha_stddev: Array  # [A]

    def values(self) -> "Duals":
        """Returns the variables themselves, all positive."""
        return jax.tree.map(lambda raw: jax.nn.softplus(raw) + _LEAST, self)

    def projected(self) -> "Duals":
        """Returns the nearest from which a step can still lead back up: softplus is flat further down."""
        return jax.tree.map(lambda raw: jnp.maximum(raw, _LEAST_RAW), self)


def start_duals(temperature: float, alpha_mean: float, alpha_stddev: float, action_size: int) -> Duals:
    """Returns dual variables with these values."""
    # softplus(x) = v  where  x = v + log(1 - exp(-v)).
    raw = [value + np.log(-np.expm1(-value)) for value in (temperature, alpha_mean, alpha_stddev)]
    each = [jnp.full((action_size,), value, jnp.float32) for value in raw[1:]]
    return Duals(jnp.float32(raw[0]), jnp.float32(raw[0]), *each)


def improved_weights(q: Array, temperature: Array) -> Array:
    """Returns the E-step's weights `[N, B]` of sampled actions, softmax over n of q / temperature.

    Together with the samples they are the improved, nonparametric policy. No gradient flows through them.

    Args:
        q: `[N, B]` values of actions sampled from the target policy.
        temperature: `[]` eta.
    """
    return lax.stop_gradient(jax.nn.softmax(q / temperature, axis=0))


def temperature_loss(q: Array, temperature: Array, epsilon: float) -> Array:
    """Returns the dual function `[]` of the E-step, whose minimum is the temperature at which the improved policy is at
    a KL divergence of `epsilon` from the target policy, on average over observations.

    eta * epsilon + eta * mean_b log mean_n exp(q[n, b] / eta)

    Args:
        q: `[N, B]` values of sampled actions.
        temperature: `[]` eta.
        epsilon: nats.
    """
    log_mean = jax.nn.logsumexp(lax.stop_gradient(q) / temperature, axis=0) - jnp.log(q.shape[0])
    return temperature * (epsilon + jnp.mean(log_mean))


def weights_kl(weights: Array) -> Array:
    """Returns the KL divergence `[]` of weights `[N, B]` from even ones, mean over B."""
    return jnp.mean(jnp.sum(jax.scipy.special.xlogy(weights, weights * weights.shape[0]), axis=0))


def bounds_cost(actions: Array) -> Array:
    """Returns how far actions `[N, B, A]` lie outside [-1, 1], as a value `[N, B]` to be maximised: the negative length
    of what clipping takes away (Hoffman et al. 2020, released code, after Abdolmaleki et al. 2020).
    """
    beyond = actions - jnp.clip(actions, -1.0, 1.0)
    return -jnp.linalg.norm(beyond, axis=-1)


def weighted_log_likelihood(policy: Gaussian, actions: Array, weights: Array) -> Array:
    """Returns mean_b sum_n weights[n, b] log policy(actions[n, b]), `[]`: what the M-step maximises.

    Args:
        policy: `[B, A]`.
        actions: `[N, B, A]`.
        weights: `[N, B]`.
    """
    return jnp.mean(jnp.sum(weights * policy.log_prob(actions), axis=0))


def mean_kl(target: Gaussian, mean: Array) -> Array:
    """Returns KL(target | target with another mean) of each dimension `[A]`, mean over B."""
    return jnp.mean(0.5 * ((mean - target.mean) / target.stddev) ** 2, axis=0)


def stddev_kl(target: Gaussian, stddev: Array) -> Array:
    """Returns KL(target | target with another standard deviation) of each dimension `[A]`, mean over B."""
    ratio = target.stddev / stddev
    return jnp.mean(0.5 * (ratio**2 - 1) - jnp.log(ratio), axis=0)


def multiplier_loss(kl: Array, alpha: Array, epsilon: float) -> Array:
    """Returns the loss `[]` that moves the multipliers of the bounds kl <= epsilon: up where a bound is broken, down
    where it is slack.

    sum_i alpha_i * (epsilon - kl_i), of the Lagrangian sum_i alpha_i * (kl_i - epsilon) that the policy minimises.

    Args:
        kl: `[A]`, held fixed.
        alpha: `[A]` multipliers.
        epsilon: nats.
    """
    return jnp.sum(alpha * (epsilon - lax.stop_gradient(kl)))
