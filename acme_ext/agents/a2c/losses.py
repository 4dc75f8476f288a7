"""A2C's loss, elementwise: whoever calls it takes the mean."""

import jax
import jax.numpy as jnp

from acme_ext.types import Array


def policy_gradient_loss(log_prob: Array, behaviour_log_prob: Array, adv_t: Array) -> Array:
    """Returns the policy's loss `[...]`, -rho log pi(a) * A (Mnih et al. 2016, section 4).

    rho is min(1, pi(a) / mu(a)), the truncated importance weight of Espeholt et al. 2018, section 4.2. It is 1 where
    the policy itself acted, as in the paper's algorithm.

    Args:
        log_prob: `[...]` of the actions taken.
        behaviour_log_prob: `[...]` the same, of the policy that acted, mu.
        adv_t: `[...]` A, advantages. No gradient flows through them, nor through rho.
    """
    rho = jax.lax.stop_gradient(jnp.minimum(1.0, jnp.exp(log_prob - behaviour_log_prob)))
    return -rho * log_prob * adv_t
