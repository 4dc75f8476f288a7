"""IMPALA's loss."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from acme_ext.learning import normalize
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import normalized_advantages
from acme_ext.ops import policy
from acme_ext.ops.policy import Categorical
from acme_ext.types import Array


class Costs(NamedTuple):
    """The terms of the loss, each summed over all steps, `[]`."""

    policy_gradient: Array
    value: Array
    entropy: Array  # the entropy itself, which is to be maximised


def impala_costs(
    actions: Categorical,
    values: Array,
    a_tm1: Array,
    r_t: Array,
    discount_t: Array,
    behaviour_log_prob_tm1: Array,
    mask: Array,
    moments: Moments | None = None,
    *,
    max_rho: float,
    max_c: float,
    horizon: float = 1e8,
    normalize_advantages: bool = False,
    popart: bool = False,
) -> tuple[Costs, Moments | None]:
    """Returns the terms of IMPALA's loss (Espeholt et al. 2018, section 4.2), and the updated `moments`.

    policy gradient = -sum rho_s * log pi(a_s) * (q_s - V(x_s)),   value = sum (v_s - V(x_s))**2 / 2
    entropy = sum -sum_a pi(a) log pi(a)

    v_s and q_s are V-trace's. The moments are updated with the v_s of these steps.

    With `moments`, the network's values are normalised: they are differences from the mean of the v_s, divided by their
    standard deviation. The errors and advantages above then have the same units (Hessel et al. 2019, section 3.1).

    The terms are sums, not means, as in the paper's equations and its code. The learning rate and the maximum gradient
    norm therefore depend on the number of steps in a batch.

    Args:
        actions: `[T, B, A]` the current policy at the steps' first observations.
        values: `[T + 1, B]` the current values V(x), including the last observation's; normalised if there are
            `moments`.
        a_tm1: `[T, B]` actions taken.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts, zero after a termination.
        behaviour_log_prob_tm1: `[T, B]` log-probabilities of the actions under the policy that took them.
        mask: `[T, B]` 1 where there is a step, 0 for padding.
        moments: `[]` moments of the v_s of earlier steps; None if values are not normalised.
        max_rho: rho-bar.
        max_c: c-bar.
        horizon: number of steps over which the moments average.
        popart: whether the caller corrects the last layer for the new moments. If so, the value loss uses the network's
            values in the new units; otherwise it uses the network's outputs without a change.
        normalize_advantages: whether to normalise the weights of log pi(a_s) to mean 0 and variance 1 over the batch.
    """
    log_prob = actions.log_prob(a_tm1)
    rho = mask * policy.importance_ratios(log_prob, behaviour_log_prob_tm1)
    v_tm1 = values[:-1]
    raw = values if moments is None else normalize.denormalize(moments, values)
    vtrace = policy.vtrace_td_error_and_advantage(
        raw[:-1], raw[1:], r_t, discount_t, rho, clip_rho_threshold=max_rho, clip_c_threshold=max_c
    )
    target, advantage = lax.stop_gradient(vtrace.errors + raw[:-1]), vtrace.pg_advantage
    if moments is not None:
        moments = normalize.update(moments, target, mask, horizon)
        target, advantage = normalize.normalize(moments, target), advantage / normalize.stddev(moments)
        v_tm1 = normalize.normalize(moments, raw[:-1]) if popart else v_tm1
    if normalize_advantages:
        advantage = normalized_advantages(advantage, mask)
    costs = Costs(
        policy_gradient=-jnp.sum(log_prob * advantage),
        value=jnp.sum(0.5 * mask * jnp.square(target - v_tm1)),
        entropy=jnp.sum(mask * actions.entropy()),
    )
    return costs, moments


def clip_rewards(rewards: Array, how: str) -> Array:
    """Returns the clipped rewards, for learning.

    abs_one: clip(r, -1, 1). soft_asymmetric: 5 tanh(r / 5), times 0.3 if it is negative. none: r. The soft_asymmetric
    formula is from the authors' code; appendix D of Espeholt et al. 2018 has 5 tanh(r) and 0.3 tanh(r) instead.
    """
    if how == "abs_one":
        return jnp.clip(rewards, -1.0, 1.0)
    if how == "soft_asymmetric":
        squashed = 5.0 * jnp.tanh(rewards / 5.0)
        return jnp.where(rewards < 0, 0.3 * squashed, squashed)
    return rewards
