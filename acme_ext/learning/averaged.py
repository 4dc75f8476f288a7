"""Averaged parameters for evaluation, for any agent.

An evaluation acts by a moving average of the policy's parameters over the learner's steps (Polyak and Juditsky 1992),
which varies less from one step to the next than the parameters do. Acting in training stays as it is.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.acting.policy import Context, Policy
from acme_ext.learning.core import LearnerCore
from acme_ext.types import Array, Params, Sample, Tree


class AveragedState(NamedTuple):
    """The state of a core, and the average of what its policy was applied with."""

    core: Any
    average: Params
    steps: Array  # [] int32, learner steps taken


class AveragedParams(NamedTuple):
    """What the actors of such an agent are given."""

    policy: Params
    average: Params


def averaged_core(core: LearnerCore, rate: float) -> LearnerCore[AveragedState]:
    """Returns the core that also keeps the average, and passes it on with the policy's parameters.

    average <- average + max(rate, 1 / steps) * (params - average): the mean of all steps until there are 1 / rate of
    them, so that it doesn't remember how the parameters started. Integers are not averaged.

    Args:
        rate: share of the newest parameters, in (0, 1].
    """

    def init(key: Array) -> AveragedState:
        inner = core.init(key)
        return AveragedState(inner, core.variables(inner)["policy"], jnp.zeros((), jnp.int32))

    def step(state: AveragedState, sample: Sample) -> tuple[AveragedState, dict[str, Array], Array | None]:
        inner, metrics, errors = core.step(state.core, sample)
        steps = state.steps + 1
        share = jnp.maximum(rate, 1 / steps)

        def moved(average: Array, newest: Array) -> Array:
            floating = jnp.issubdtype(newest.dtype, jnp.floating)
            return average + share.astype(newest.dtype) * (newest - average) if floating else newest

        average = jax.tree.map(moved, state.average, core.variables(inner)["policy"])
        return AveragedState(inner, average, steps), metrics, errors

    def variables(state: AveragedState) -> dict[str, Params]:
        variables = core.variables(state.core)
        return {**variables, "policy": AveragedParams(variables["policy"], state.average)}

    return LearnerCore(init, step, variables)


def averaged_policy(policy: Policy, *, evaluation: bool) -> Policy:
    """Returns the policy that is given `AveragedParams`, and applies the average in evaluation."""

    def apply(params: AveragedParams, context: Context, observation: Tree, state: Tree):
        return policy.apply(params.average if evaluation else params.policy, context, observation, state)

    return policy._replace(apply=apply)
