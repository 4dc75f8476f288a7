"""Values that actors store with their actions, so that new items get initial priorities without the learner."""

from typing import NamedTuple

from acme_ext.types import Array


class ActorValues(NamedTuple):
    """The extras of a policy for initial priorities, computed with the actor's parameters at that step."""

    taken: Array  # [B] the value of the action taken
    best: Array  # [B] the value of the greedy action, or of the action of a deterministic policy


class SequenceValues(NamedTuple):
    """The extras of a policy whose learner also makes off-policy corrections, such as Retrace."""

    taken: Array  # [B]
    best: Array  # [B]
    probability: Array  # [B] mu, the probability of the action taken


def first_error(reward: Array, discount: Array, extras_tm1: ActorValues, extras_t: ActorValues) -> Array:
    """Returns the |TD errors| `[M]` of new transitions, from the values that the actor stored.

    |R_t + gamma_t * best_t - taken_tm1|   (Horgan et al. 2018, algorithm 1, lines 9 and 10)

    Args:
        reward: `[M]` n-step rewards.
        discount: `[M]` n-step discounts, zero after a termination.
        extras_tm1: the extras at the transitions' first steps, each `[M]`.
        extras_t: the extras at their next observations, each `[M]`.
    """
    return abs(reward + discount * extras_t.best - extras_tm1.taken)
