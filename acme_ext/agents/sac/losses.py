"""SAC's three losses (Haarnoja et al. 2018b); equation numbers are those of arXiv 1812.05905v2."""

import jax.numpy as jnp
from jax import lax

from acme_ext.ops import value
from acme_ext.types import Array


def td_error(q_tm1: Array, r_t: Array, discount_t: Array, q_t: Array, log_prob_t: Array, temperature: Array) -> Array:
    """Returns the critics' soft Bellman errors `[N, B]`; their gradient flows only through `q_tm1` (eq. 5 and 6).

    delta_i = R_t + gamma_t * (min_i q_t[i] - alpha * log pi(a_t | o_t)) - q_tm1[i]

    Args:
        q_tm1: `[N, B]` each critic's value of the action taken.
        r_t: `[B]` n-step rewards.
        discount_t: `[B]` n-step discounts, zero after a termination.
        q_t: `[N, B]` each target critic's value of an action a_t sampled from the policy at the last observation.
        log_prob_t: `[B]` the log-density of a_t, for actions in [-1, 1].
        temperature: `[]` the temperature alpha.
    """
    target = value.clipped_double_q_target(r_t, discount_t, q_t - temperature * log_prob_t)
    return lax.stop_gradient(target) - q_tm1


def critic_loss(error: Array, weight: Array) -> Array:
    """Returns the critics' loss `[]`, sum_i mean_b w_b * delta_ib**2 / 2 (eq. 5).

    The TD errors are `[N, B]`, and the importance weights `[B]`.
    """
    return jnp.sum(jnp.mean(weight * 0.5 * error**2, axis=1))


def policy_loss(q: Array, log_prob: Array, temperature: Array) -> Array:
    """Returns the policy's loss `[]`, whose gradient flows through the sampled actions (eq. 9).

    mean alpha * log pi(a | o) - min_i q[i]

    Args:
        q: `[N, B]` each critic's value of a sampled action.
        log_prob: `[B]` the action's log-density.
        temperature: `[]` the temperature alpha.
    """
    return jnp.mean(temperature * log_prob - jnp.min(q, axis=0))


def temperature_loss(log_temperature: Array, log_prob: Array, target_entropy: Array | float) -> Array:
    """Returns the temperature's loss `[]` (eq. 18).

    It increases the temperature if the policy's entropy is below the target, and otherwise decreases it.

    mean -alpha * (log pi(a | o) + target entropy)

    Args:
        log_temperature: `[]` the parameter log alpha, which keeps alpha positive.
        log_prob: `[B]` log-densities of sampled actions.
        target_entropy: `[]` or `[B]`, in nats.
    """
    return -jnp.exp(log_temperature) * jnp.mean(lax.stop_gradient(log_prob) + target_entropy)
