"""DQN's loss."""

import jax.numpy as jnp
from jax import lax

from acme_ext.ops import value
from acme_ext.types import Array


def td_error(q_tm1: Array, a_tm1: Array, r_t: Array, discount_t: Array, q_t_value: Array, q_t_selector: Array) -> Array:
    """Returns the (double) Q-learning error `[B]`; its gradient flows only through `q_tm1`.

    delta = R_t + gamma_t * q_t_value[argmax_a q_t_selector[a]] - q_tm1[a_tm1]   (van Hasselt et al. 2016, eq. 4)

    Args:
        q_tm1: `[B, A]` online action values at the first observation.
        a_tm1: `[B]` actions taken there.
        r_t: `[B]` n-step rewards.
        discount_t: `[B]` n-step discounts, zero after a termination.
        q_t_value: `[B, A]` the target network's action values at the last observation.
        q_t_selector: `[B, A]` action values at the last observation that select the action: from the online network for
            double Q-learning, otherwise from the target network.
    """
    target = value.double_q_target(r_t, discount_t, q_t_value, q_t_selector)
    return lax.stop_gradient(target) - value.take_action(q_tm1, a_tm1)


def q_loss(error: Array, weight: Array, huber_delta: float | None) -> Array:
    """Returns the weighted mean loss `[]` of TD errors.

    mean_i w_i * loss(delta_i), with the Huber loss, or delta**2 / 2 if `huber_delta` is None. The weight scales the
    loss, not the error inside it (Schaul et al. 2016, algorithm 1, line 13).

    Args:
        error: `[B, ...]` TD errors.
        weight: `[B, ...]` importance weights, of the same shape.
        huber_delta: where the loss becomes linear.
    """
    loss = 0.5 * error**2 if huber_delta is None else value.huber(error, huber_delta)
    return jnp.mean(weight * loss)
