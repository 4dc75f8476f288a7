"""Value-learning targets and errors that several agents use, batched. Arguments are named as in rlax."""

import jax.numpy as jnp

from acme_ext.types import Array


def double_q_target(r_t: Array, discount_t: Array, q_t_value: Array, q_t_selector: Array) -> Array:
    """Returns the double Q-learning target `[B]` (van Hasselt et al. 2016, eq. 4).

    R_t + gamma_t * q_t_value[argmax_a q_t_selector[a]].

    Args:
        r_t: `[B]` rewards.
        discount_t: `[B]` discounts.
        q_t_value: `[B, A]` action values to bootstrap from.
        q_t_selector: `[B, A]` action values that select the action; the same array gives standard Q-learning.
    """
    a_t = jnp.argmax(q_t_selector, axis=-1)
    return r_t + discount_t * take_action(q_t_value, a_t)


def take_action(q: Array, a: Array) -> Array:
    """Returns q[..., a[...]], `[...]`, for action values `[..., A]` and actions `[...]`."""
    return jnp.take_along_axis(q, a[..., None].astype(jnp.int32), axis=-1)[..., 0]


def huber(error: Array, delta: float) -> Array:
    """Returns error**2 / 2 where |error| <= delta, and delta * (|error| - delta / 2) beyond (Huber 1964)."""
    quadratic = jnp.minimum(jnp.abs(error), delta)
    return 0.5 * quadratic**2 + delta * (jnp.abs(error) - quadratic)


def clipped_double_q_target(r_t: Array, discount_t: Array, q_t: Array) -> Array:
    """Returns the clipped double Q-learning target `[B]` (Fujimoto et al. 2018, eq. 10).

    R_t + gamma_t * min_i q_t[i].

    Args:
        r_t: `[B]` rewards.
        discount_t: `[B]` discounts.
        q_t: `[N, B]` each target critic's value of the same next action.
    """
    return r_t + discount_t * jnp.min(q_t, axis=0)
