"""MuZero's targets and loss."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from acme_ext.ops import distributional, masking, multistep
from acme_ext.ops.distributional import Support
from acme_ext.types import Array, Tree
from acme_ext.utils.arrays import numpy_of


class Targets(NamedTuple):
    """The targets for the model's predictions at unrolled steps k = 0 ... K from N roots."""

    policy: Array  # [K + 1, N, A]
    value: Array  # [K + 1, N]
    reward: Array  # [K, N] reward of the step from k to k + 1
    acted: Array  # [K + 1, N] 1 where there is a step, and so a search's policy
    known: Array  # [K + 1, N] 1 where the value is known, and the reward of the step from there


def signed_discounts(discount_t: Array, observation: Tree) -> Array:
    """Returns discounts `[T, B]` that are negative if the other player moves at the next timestep.

    Args:
        discount_t: `[T, B]` discounts.
        observation: `[T + 1, B, ...]`, with the field `player` if there are two players.
    """
    player = masking.player_of(observation)
    if player is None:
        return discount_t
    return discount_t * (1 - 2 * (player[1:] != player[:-1]).astype(np.float32))


def value_targets(
    r_t: Array,
    discount_t: Array,
    v_t: Array,
    mask: Array,
    n: int | None,
    own: Array | None = None,
    v_tm1: Array | None = None,
) -> Array:
    """Returns the value targets z `[T, B]`, for the player to move (Schrittwieser et al. 2020, section 3).

    z_t = u_{t+1} + gamma u_{t+2} + ... + gamma**n v_{t+n}

    If a sampled action differs from the search's best one, the rewards after it do not show the value of the search's
    policy. With `own`, a return is therefore cut before such an action and bootstraps from the
    value there, as in Watkins's Q(lambda). At the action itself the target is the value `v_tm1`, so nothing is learned
    there.

    Args:
        r_t: `[T, B]` rewards of the player who moved.
        discount_t: `[T, B]` discounts, see `signed_discounts`; 0 after a termination.
        v_t: `[T, B]` values at the ends of the steps.
        mask: `[T, B]` 1 where there is a step.
        n: number of steps of a return; None for all steps of the sequence.
        own: `[T, B]` 1 where the search's best action was taken; None to use all actions.
        v_tm1: `[T, B]` values at the beginnings of the steps; only needed with `own`.
    """
    if own is None:
        return multistep.n_step_returns(r_t, discount_t, v_t, multistep.continues_of(mask), n)
    z = multistep.n_step_returns(r_t, discount_t, v_t, multistep.continues_of(mask * own), n)
    return numpy_of(z).where(own > 0, z, v_tm1)


def targets_at(
    roots: Array, policy: Array, z: Array, r_t: Array, discount_t: Array, mask: Array, unroll_steps: int
) -> Targets:
    """Returns the targets at roots and the K steps after them, in sequences of T steps.

    After a termination the state is absorbing: its value and rewards are 0, and it has no policy target (Schrittwieser
    et al. 2020, appendix G). After a truncation, and after the sequence's last step, there are no targets.

    Args:
        roots: `[R, B]` the steps of the roots.
        policy: `[T, B, A]` the searches' improved policies.
        z: `[T, B]` value targets.
        r_t: `[T, B]` rewards.
        discount_t: `[T, B]` discounts.
        mask: `[T, B]` 1 where there is a step.
        unroll_steps: K.
    """
    steps = roots + jnp.arange(unroll_steps + 1)[:, None, None]  # [K + 1, R, B]

    def padded(x: Array) -> Array:
        return jnp.pad(x, ((0, unroll_steps + 1), *((0, 0) for _ in x.shape[1:])))

    terminated = jnp.cumsum(padded(mask * (discount_t == 0)), axis=0) > 0  # [T + K + 1, B] by this step or an earlier
    acted = take(padded(mask), steps)
    absorbed = take(jnp.pad(terminated, ((1, 0), (0, 0))), steps)
    return Targets(
        policy=take(padded(policy), steps),
        value=take(padded(mask * z), steps),
        reward=take(padded(mask * r_t), steps)[:-1],
        acted=acted,
        known=jnp.maximum(acted, absorbed),
    )


def take(x: Array, steps: Array) -> Array:
    """Returns `x[steps[..., r, b], b]`, `[..., R * B, ...]`, for x `[T, B, ...]` and steps `[..., R, B]`."""
    found = x[steps, jnp.arange(steps.shape[-1])]
    return found.reshape(*steps.shape[:-2], math.prod(steps.shape[-2:]), *x.shape[2:])


def value_prefixes(reward: Array) -> Array:
    """Returns the sums of the rewards from the root to the end of each step, `[K, N]` (Ye et al. 2021, section 4.2)."""
    return jnp.cumsum(reward, axis=0)


class Costs(NamedTuple):
    """The terms of the loss at every root."""

    policy: Array  # [N]
    value: Array  # [N]
    reward: Array  # [N]


def unrolled_costs(
    logits: Array, value_logits: Array, reward_logits: Array, targets: Targets, support: Support
) -> Costs:
    """Returns the three losses, summed over unrolled steps (Schrittwieser et al. 2020, eq. 1).

    Each step after the first is weighted by 1 / K (appendix G).

    KL(pi_k || p_k),   CE(phi(z_k), v_k),   CE(phi(u_k), r_k)

    The policy loss is the cross-entropy minus the entropy of its target, which has the same gradient.

    Args:
        logits: `[K + 1, N, A]` logits of the policy.
        value_logits: `[K + 1, N, S]` logits of the value, on the support.
        reward_logits: `[K, N, S]` logits of the rewards of the unrolled steps, on the support.
        targets: their targets.
        support: the support phi.
    """
    steps = len(reward_logits)
    weight = jnp.where(jnp.arange(steps + 1) == 0, 1.0, 1.0 / max(1, steps))

    def total(cost: Array, mask: Array) -> Array:
        before = len(weight) - len(cost)  # there is no reward at the root
        return jnp.einsum("k,kn->n", weight, jnp.pad(jnp.where(mask > 0, cost, 0.0), ((before, 0), (0, 0))))

    return Costs(
        policy=total(distributional.categorical_kl(targets.policy, logits), targets.acted),
        value=total(distributional.cross_entropy(support.probs(targets.value), value_logits), targets.known),
        reward=total(distributional.cross_entropy(support.probs(targets.reward), reward_logits), targets.known[:-1]),
    )


def root_weights(mask: Array, discount_t: Array, own: int) -> Array:
    """Returns the weights `[T, B]` for sampling a sequence's steps as roots.

    Sequences of an episode overlap. The first `own` steps of a sequence have weight 1. In an episode's last sequence,
    which ends in padding or a termination, all steps have weight 1. Otherwise the later steps have weight 0.1 instead
    of 0, because the sequence may also be the last one of an episode that was truncated in the sequence's last step.

    Args:
        mask: `[T, B]` 1 where there is a step.
        discount_t: `[T, B]` discounts, 0 after a termination.
        own: number of steps.
    """
    last = (mask[-1] == 0) | (discount_t[-1] == 0)
    early = jnp.arange(len(mask))[:, None] < own
    return mask * jnp.where(early | last, 1.0, 0.1)
