"""Prioritized experience replay (Schaul et al. 2016) for any agent whose core returns TD errors.

The replay samples by priority, and the `Learner` applies importance weights and sends priorities back. This module does
the rest: new items first get the largest error so far (algorithm 1, line 6). That error is part of the learner's state,
and is published to the actors with the policy's parameters.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from acme_ext.acting.policy import Context, Policy
from acme_ext.learning.core import LearnerCore
from acme_ext.types import Array, Params, PrioritizedExtras, Sample, Tree


class PrioritizedState(NamedTuple):
    """The state of a core, and the largest error that it has returned."""

    core: Any
    largest_error: Array  # [] float32


class PrioritizedParams(NamedTuple):
    """The parameters that the actors of a prioritized agent receive."""

    policy: Params
    largest_error: Array  # []


def importance_weights(probability: Array, exponent: Array | float) -> Array:
    """Returns importance weights `[B]`, scaled by the largest of the batch (Schaul et al. 2016, section 3.4).

    w_i = (1 / (N P_i))**beta / max_j w_j; the table's size N cancels.

    Args:
        probability: `[B]` P_i, the probability with which each item was sampled.
        exponent: beta in [0, 1].
    """
    log_weight = -exponent * jnp.log(jnp.maximum(probability, 1e-20))
    return jnp.exp(log_weight - jnp.max(log_weight))


def prioritized_core(core: LearnerCore) -> LearnerCore[PrioritizedState]:
    """Returns a core that also records the largest error, and publishes it with the policy's parameters."""

    def init(key: Array) -> PrioritizedState:
        return PrioritizedState(core.init(key), jnp.ones((), jnp.float32))

    def step(state: PrioritizedState, sample: Sample) -> tuple[PrioritizedState, dict[str, Array], Array | None]:
        inner, metrics, errors = core.step(state.core, sample)
        largest = state.largest_error if errors is None else jnp.maximum(state.largest_error, jnp.max(errors))
        return PrioritizedState(inner, largest), metrics, errors

    def variables(state: PrioritizedState) -> dict[str, Params]:
        variables = core.variables(state.core)
        return {**variables, "policy": PrioritizedParams(variables["policy"], state.largest_error)}

    return LearnerCore(init, step, variables)


def prioritized_policy(policy: Policy) -> Policy:
    """Returns a policy that takes `PrioritizedParams` and adds the largest error to the extras of every action."""

    def apply(params: PrioritizedParams, context: Context, observation: Tree, state: Tree):
        action, state, extras = policy.apply(params.policy, context, observation, state)
        largest = jnp.broadcast_to(params.largest_error, action.shape[:1])
        return action, state, PrioritizedExtras(extras, largest)

    return policy._replace(apply=apply)
