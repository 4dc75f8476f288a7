"""TD3's losses (Fujimoto et al. 2018)."""

import jax.numpy as jnp
from jax import lax

from acme_ext.ops import value
from acme_ext.types import Array


def smoothed_action(a_t: Array, noise: Array, stddev: float, max_noise: float) -> Array:
    """Returns the target policy's actions `[B, A]` with noise, for the critics' targets (eq. 14).

    clip(a_t + clip(stddev * noise, -c, c), -1, 1). Both critics evaluate the same actions.

    Args:
        a_t: `[B, A]` the target policy's actions at the last observation, in [-1, 1].
        noise: `[B, A]` standard normal noise.
        stddev: standard deviation of the noise, sigma tilde.
        max_noise: maximum absolute noise c.
    """
    return jnp.clip(a_t + jnp.clip(stddev * noise, -max_noise, max_noise), -1.0, 1.0)


def td_error(q_tm1: Array, r_t: Array, discount_t: Array, q_t: Array) -> Array:
    """Returns the critics' errors `[N, B]` against the smaller target; their gradient flows only through `q_tm1`.

    delta_i = R_t + gamma_t * min_i q_t[i] - q_tm1[i]   (algorithm 1)

    Args:
        q_tm1: `[N, B]` each critic's value of the action taken.
        r_t: `[B]` n-step rewards.
        discount_t: `[B]` n-step discounts, zero after a termination.
        q_t: `[N, B]` each target critic's value of the smoothed action.
    """
    target = value.clipped_double_q_target(r_t, discount_t, q_t)
    return lax.stop_gradient(target) - q_tm1


def critic_loss(error: Array, weight: Array) -> Array:
    """Returns the critics' loss `[]`, sum_i mean_b w_b * delta_ib**2 (algorithm 1).

    The TD errors are `[N, B]`, and the importance weights `[B]`.
    """
    return jnp.sum(jnp.mean(weight * error**2, axis=1))


def policy_loss(q: Array) -> Array:
    """Returns the deterministic policy gradient loss `[]`, -mean q (algorithm 1).

    The values `q` `[B]` are the first critic's values of the policy's actions.
    """
    return -jnp.mean(q)
