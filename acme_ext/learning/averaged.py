"""Averaged parameters for evaluation, for any agent.

Evaluations use a moving average of the policy's parameters over the learner's steps (Polyak and Juditsky 1992), which
varies less from step to step than the parameters. Acting in training still uses the newest parameters.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.acting.policy import Context, Policy
from acme_ext.learning.core import LearnerCore
from acme_ext.types import Array, Params, Sample, Tree

_ETA = 3  # of polynomial-decay averaging; 0 would give the plain mean over all steps so far


class AveragedState(NamedTuple):
    """The state of a core, and the average of its policy's parameters."""

    core: Any
    average: Params
    steps: Array  # [] int32, learner steps taken


class AveragedParams(NamedTuple):
    """The parameters that the actors of such an agent receive."""

    policy: Params
    average: Params


def averaged_core(core: LearnerCore, rate: float) -> LearnerCore[AveragedState]:
    """Returns a core that also computes the average, and publishes it with the policy's parameters.

    average <- average + max(rate, 4 / (steps + 3)) * (params - average)

    For the first 4 / rate - 3 steps, this is the polynomial-decay averaging of Shamir and Zhang 2013 with eta = 3: 59%
    of the weight is on the last fifth of the steps so far. The initial parameters have none. Integers are not averaged.

    Args:
        core: the agent's core.
        rate: weight of the newest parameters, in (0, 1].
    """

    def init(key: Array) -> AveragedState:
        inner = core.init(key)
        return AveragedState(inner, core.variables(inner)["policy"], jnp.zeros((), jnp.int32))

    def step(state: AveragedState, sample: Sample) -> tuple[AveragedState, dict[str, Array], Array | None]:
        inner, metrics, errors = core.step(state.core, sample)
        steps = state.steps + 1
        share = jnp.maximum(rate, (_ETA + 1) / (steps + _ETA))

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
    """Returns a policy that takes `AveragedParams`, and uses the average in evaluation."""

    def apply(params: AveragedParams, context: Context, observation: Tree, state: Tree):
        return policy.apply(params.average if evaluation else params.policy, context, observation, state)

    return policy._replace(apply=apply)
