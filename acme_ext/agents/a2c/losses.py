"""A2C's loss, elementwise; the caller takes the mean."""

import jax
import jax.numpy as jnp

from acme_ext.types import Array


def policy_gradient_loss(log_prob: Array, behaviour_log_prob: Array, adv_t: Array) -> Array:
    """Returns the policy's loss `[...]`, -rho log pi(a) * A (Mnih et al. 2016, section 4).

    rho is min(1, pi(a) / mu(a)), the truncated importance weight of Espeholt et al. 2018, section 4.2. It is 1 if the
    current policy took the action, as in the algorithm of Mnih et al. 2016.

    Args:
        log_prob: `[...]` log-probabilities of the actions taken, log pi(a).
        behaviour_log_prob: `[...]` their log-probabilities under the policy that took them, log mu(a).
        adv_t: `[...]` advantages A. The gradient flows only through `log_prob`, not through rho.
    """
    rho = jax.lax.stop_gradient(jnp.minimum(1.0, jnp.exp(log_prob - behaviour_log_prob)))
    return -rho * log_prob * adv_t
