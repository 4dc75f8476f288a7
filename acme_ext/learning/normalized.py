"""Observations normalised by their running mean and standard deviation, for any agent.

The moments are part of the learner's state: they are saved with the parameters, and published to the actors with them.
Integers, such as pixels, and images of any type are not normalised.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.acting.policy import Context, Policy
from acme_ext.learning import normalize
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.normalize import Moments
from acme_ext.types import Array, Params, Sample, Sequence, Tree

MAX_ABS = 10.0
"""The default bound that normalised observations are clipped to."""


class NormalizedState(NamedTuple):
    """The state of a core, and the moments of the observations that it has learned from."""

    core: Any
    observations: Moments


class NormalizedParams(NamedTuple):
    """The parameters that the actors of such an agent receive."""

    policy: Params
    observations: Moments


def normalized_core(core: LearnerCore, observation: Tree, max_abs: float) -> LearnerCore[NormalizedState]:
    """Returns a core that learns from normalised observations.

    Each batch is normalised with the moments of the batches before it, which the actors use too.

    Args:
        core: a core for batches with a field `observation`, and optionally `next_observation`.
        observation: an example `[1, ...]`.
        max_abs: normalised observations are clipped to `[-max_abs, max_abs]`.
    """
    first = jax.tree.map(lambda x: x[0], normalize.fields_of(observation, observation))

    def init(key: Array) -> NormalizedState:
        return NormalizedState(core.init(key), normalize.init(first))

    def step(state: NormalizedState, sample: Sample) -> tuple[NormalizedState, dict[str, Array], Array | None]:
        data, moments = sample.data, state.observations
        names = {"observation", "next_observation"} & set(data._fields)
        fields = {
            name: normalize.normalize_fields(moments, getattr(data, name), observation, max_abs) for name in names
        }
        if one_step := getattr(data, "one_step", ()):
            following = normalize.normalize_fields(moments, one_step.next_observation, observation, max_abs)
            fields["one_step"] = one_step._replace(next_observation=following)
        inner, metrics, errors = core.step(state.core, sample._replace(data=data._replace(**fields)))
        seen = normalize.fields_of(data.observation, observation)
        if isinstance(data, Sequence):
            seen, mask = [x[:-1] for x in seen], data.mask
        else:
            mask = jnp.ones_like(sample.weight)
        return NormalizedState(inner, normalize.update(moments, seen, mask)), metrics, errors

    def variables(state: NormalizedState) -> dict[str, Params]:
        variables = core.variables(state.core)
        return {**variables, "policy": NormalizedParams(variables["policy"], state.observations)}

    return LearnerCore(init, step, variables)


def normalized_policy(policy: Policy, example: Tree, max_abs: float) -> Policy:
    """Returns a policy that takes `NormalizedParams` and normalises its observations.

    `example` `[1, ...]` and `max_abs` are the same as for `normalized_core`.
    """

    def apply(params: NormalizedParams, context: Context, observation: Tree, state: Tree):
        observation = normalize.normalize_fields(params.observations, observation, example, max_abs)
        return policy.apply(params.policy, context, observation, state)

    return policy._replace(apply=apply)
