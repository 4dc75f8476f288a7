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
    """The parts of the loss, each a sum `[]` over all steps."""

    policy_gradient: Array
    value: Array
    entropy: Array  # as it is, to be made larger


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
    """Returns what IMPALA descends along (Espeholt et al. 2018, section 4.2), with V-trace's v_s and q_s, and `moments`
    with the v_s of these steps in them.

    policy gradient = -sum rho_s * log pi(a_s) * (q_s - V(x_s)),   value = sum (v_s - V(x_s))**2 / 2
    entropy = sum -sum_a pi(a) log pi(a)

    With `moments`, the network's values are in units of the standard deviation of the v_s, from their mean, and so are
    the errors and advantages above (Hessel et al. 2019, section 3.1).

    Sums, as the paper's equations and its code have them, not means: learning rate and bound on the gradient go with
    the number of steps in a batch.

    Args:
        actions: `[T, B, A]` the policy now, where the steps begin.
        values: `[T + 1, B]` V(x) now, of the last observation too; normalised by `moments` if they are given.
        a_tm1: `[T, B]` actions taken.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts, zero after a termination.
        behaviour_log_prob_tm1: `[T, B]` of the actions, by the policy that took them.
        mask: `[T, B]` 0 for what is no step.
        moments: `[]` of the v_s of the steps before.
        max_rho: rho-bar.
        max_c: c-bar.
        horizon: steps over which the moments forget.
        popart: the last layer will be corrected for the moments, so that the network's values are compared in the new
            units; otherwise its outputs are, as they are.
        normalize_advantages: the weights of log pi(a_s) are brought to mean 0 and variance 1 over the batch.
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
    """Returns rewards as they are learned from.

    abs_one: clip(r, -1, 1). soft_asymmetric: 5 tanh(r / 5), times 0.3 where it is negative; so in the authors' code,
    while appendix D of Espeholt et al. 2018 has 5 tanh(r) and 0.3 tanh(r). none: r.
    """
    if how == "abs_one":
        return jnp.clip(rewards, -1.0, 1.0)
    if how == "soft_asymmetric":
        squashed = 5.0 * jnp.tanh(rewards / 5.0)
        return jnp.where(rewards < 0, 0.3 * squashed, squashed)
    return rewards
