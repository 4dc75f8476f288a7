"""What actors say of the values that they act by, so that new items get their first priorities without the learner."""

from typing import NamedTuple

from acme_ext.types import Array


class ActorValues(NamedTuple):
    """The extras of a policy that gives first priorities, by the parameters that the actor had at that step."""

    taken: Array  # [B] the value of the action that is taken
    best: Array  # [B] the value of the action that the policy prefers: the largest, or that of a deterministic policy


class SequenceValues(NamedTuple):
    """The extras of a policy whose learner also corrects for how likely the action was."""

    taken: Array  # [B]
    best: Array  # [B]
    probability: Array  # [B] mu, of the action that is taken


def first_error(reward: Array, discount: Array, extras_tm1: ActorValues, extras_t: ActorValues) -> Array:
    """Returns the |TD errors| `[M]` of new transitions, by the values that their actor computed anyway.

    |R_t + gamma_t * best_t - taken_tm1|   (Horgan et al. 2018, algorithm 1, lines 9 and 10)

    Args:
        reward: `[M]` n-step rewards.
        discount: `[M]` n-step discounts, zero after a termination.
        extras_tm1: `[M]` each, where the transitions begin.
        extras_t: `[M]` each, where they end.
    """
    return abs(reward + discount * extras_t.best - extras_tm1.taken)
