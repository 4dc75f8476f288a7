"""R2D2's errors, loss and priorities.

Actors call some of the functions with NumPy arrays, and the learner calls them with JAX arrays.
"""

import jax.numpy as jnp
from jax import lax

from acme_ext.acting.exploration import epsilon_greedy_probabilities
from acme_ext.ops import masking, multistep, value
from acme_ext.types import Array


def n_step_target(
    r_t: Array, discount_t: Array, v_t: Array, mask: Array, n: int, rescaling_epsilon: float | None
) -> Array:
    """Returns the targets `[T, B]` of rescaled values (Kapturowski et al. 2019, section 2.3).

    y_t = h(sum_{k<m} gamma^k r_{t+k+1} + gamma^m h^-1(v_{t+m})),  where m = n, or less if the sequence ends earlier.

    Args:
        r_t: `[T, B]` rewards of the environment.
        discount_t: `[T, B]` discounts, zero after a termination.
        v_t: `[T, B]` values at the ends of the steps, rescaled by h.
        mask: `[T, B]` 1 where there is a step.
        n: number of steps.
        rescaling_epsilon: epsilon of h; None for unscaled values.
    """
    continues = multistep.continues_of(mask)
    if rescaling_epsilon is None:
        return multistep.n_step_returns(r_t, discount_t, v_t, continues, n)
    v_t = multistep.signed_parabolic(v_t, rescaling_epsilon)
    returns = multistep.n_step_returns(r_t, discount_t, v_t, continues, n)
    return multistep.signed_hyperbolic(returns, rescaling_epsilon)


def td_error(
    q: Array,
    a_tm1: Array,
    r_t: Array,
    discount_t: Array,
    q_target: Array,
    mask: Array,
    n: int,
    rescaling_epsilon: float | None,
    legal: Array | None = None,
) -> Array:
    """Returns the n-step double Q-learning errors `[T, B]` of a sequence, zero where there is no step.

    The gradient flows only through the values of the actions taken.

    delta_t = y_t - q_t[a_t], where y_t (see `n_step_target`) bootstraps from q_target[argmax_a q[a]].

    Args:
        q: `[T + 1, B, A]` online action values at all timesteps.
        a_tm1: `[T, B]` actions.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts, zero after a termination.
        q_target: `[T + 1, B, A]` target network's action values.
        mask: `[T, B]` 1 where there is a step.
        n: number of steps of a return.
        rescaling_epsilon: epsilon of h; None for unscaled values.
        legal: `[T + 1, B, A]` the legal actions; None if all are legal.
    """
    best = jnp.argmax(masking.masked(q, legal)[1:], axis=-1)
    v_t = value.take_action(q_target[1:], best)
    target = n_step_target(r_t, discount_t, v_t, mask, n, rescaling_epsilon)
    q_a = value.take_action(q[:-1], a_tm1)
    return mask * (lax.stop_gradient(target) - q_a)


def retrace_error(
    q: Array,
    preferred: Array,
    a_tm1: Array,
    mu_tm1: Array,
    r_t: Array,
    discount_t: Array,
    q_target: Array,
    mask: Array,
    lambda_: float,
    target_epsilon: float,
    rescaling_epsilon: float | None,
    legal: Array | None = None,
) -> Array:
    """Returns the errors `[T, B]` with Retrace's targets (Badia et al. 2020a, appendix E), zero where there is no step.

    The gradient flows only through the values of the actions taken.

    Args:
        q: `[T + 1, B, A]` online action values at all timesteps.
        preferred: `[T + 1, B, A]` the online values in which the target policy is epsilon-greedy; the same as `q`,
            unless an agent learns several kinds of values.
        a_tm1: `[T, B]` actions.
        mu_tm1: `[T, B]` their probabilities under the policy that took them.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts, zero after a termination.
        q_target: `[T + 1, B, A]` target network's action values.
        mask: `[T, B]` 1 where there is a step.
        lambda_: decay of the traces.
        target_epsilon: epsilon of the target policy.
        rescaling_epsilon: epsilon of h; None for unscaled values.
        legal: `[T + 1, B, A]` the legal actions; None if all are legal.
    """

    def following(x: Array) -> Array:
        return jnp.concatenate([x[1:], x[-1:]])

    pi_t = epsilon_greedy_probabilities(preferred[1:], target_epsilon, None if legal is None else legal[1:])
    a_t, mu_t = following(a_tm1), following(mu_tm1)
    target = multistep.retrace_targets(
        q_target[1:],
        value.take_action(q_target[1:], a_t),
        multistep.retrace_factors(value.take_action(pi_t, a_t), mu_t, lambda_),
        pi_t,
        r_t,
        discount_t,
        multistep.continues_of(mask),
        rescaling_epsilon,
    )
    return mask * (lax.stop_gradient(target) - value.take_action(q[:-1], a_tm1))


def sequence_loss(error: Array, weight: Array) -> Array:
    """Returns the loss `[]`: half the squared errors, summed over each sequence, with a weighted mean over sequences.

    mean_b w_b sum_t delta_{t,b}**2 / 2

    With the sum over steps, every step has the same weight, regardless of its sequence's length.

    Args:
        error: `[T, B]` TD errors, zero where there is no step.
        weight: `[B]` importance weights.
    """
    return jnp.mean(weight * jnp.sum(0.5 * error**2, axis=0))


def sequence_error(error: Array, mask: Array, max_share: float) -> Array:
    """Returns the errors `[B]` of whole sequences, which are their priorities (Kapturowski et al. 2019, section 2.3).

    p = eta max_t |delta_t| + (1 - eta) mean_t |delta_t|, over the steps without padding.

    Args:
        error: `[T, B]` TD errors.
        mask: `[T, B]` 1 where there is a step.
        max_share: eta.
    """
    size = abs(error) * mask
    mean = size.sum(axis=0) / mask.sum(axis=0).clip(1)
    return max_share * size.max(axis=0) + (1 - max_share) * mean
