"""A2C's loss, elementwise: whoever calls it takes the mean."""

from acme_ext.types import Array


def policy_gradient_loss(log_prob: Array, adv_t: Array) -> Array:
    """Returns the policy's loss `[...]`, -log pi(a) * A (Mnih et al. 2016, section 4).

    Args:
        log_prob: `[...]` of the actions taken.
        adv_t: `[...]` A, advantages, through which no gradient flows.
    """
    return -log_prob * adv_t
