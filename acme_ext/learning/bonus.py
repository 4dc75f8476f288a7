"""Exploration bonuses for new observations, which are added to the reward of any agent without memory.

The learner computes the bonus for each batch with the newest networks, and adds it to the rewards after they were
clipped. The rewards in replay, in logs and in evaluations don't include it.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.learning import intrinsic, normalize
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.intrinsic import Distillation, DistillationConfig, DistillationState
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import masked_mean
from acme_ext.ops.intrinsic import lifelong_factor
from acme_ext.types import Array, Sample, Sequence, Transition, Tree
from acme_ext.utils.trees import merge_axes

_MOST = 5.0  # the largest bonus, in standard deviations; 4 with L = 5 of Badia et al. 2020a, table 6
_HORIZON = 100_000.0  # horizon of the errors' running moments, in errors
_QUIET_STEPS = 2  # learner steps at the start in which the bonus is 0, while the observations' moments settle
_PART = 256  # minimum number of observations in one update of the predictor


class BonusState(NamedTuple):
    """The state of a core, and the state of the bonus."""

    core: Any
    distillation: DistillationState
    errors: Moments  # [] moments of the predictor's errors


Bonus = Callable[..., LearnerCore]
"""`(core, observation [1, ...], weight=...) -> core`: returns a core that learns from reward + weight * bonus."""


def distilled(
    core: LearnerCore, observation: Tree, weight: float = 0.02, *, shuffled: bool = False
) -> LearnerCore[BonusState]:
    """Returns a core that learns from the reward plus a bonus by random network distillation (Burda et al. 2018).

    The bonus is the number of standard deviations by which the predictor's error exceeds its mean, clipped to [0, 5].
    This is alpha - 1, with the lifelong novelty alpha of Badia et al. 2020a, section 2. Familiar observations give no
    bonus, so there is no incentive to prolong an episode. Reward and bonus share one value function and one discount.
    For an n-step transition, only the bonus of its last observation is known; it is added once.

    Args:
        core: a core that learns from a `Transition` or a `Sequence`.
        observation: an example `[1, ...]`.
        weight: factor of the bonus.
        shuffled: whether to permute the bonuses within each batch. This is a control experiment: the bonuses keep their
            scale, but no longer say which observations are new.
    """
    part = Distillation(DistillationConfig(), observation)

    def init(key: Array) -> BonusState:
        core_key, part_key = jax.random.split(key)
        return BonusState(core.init(core_key), part.init(part_key), normalize.init(jnp.zeros(())))

    def step(state: BonusState, sample: Sample) -> tuple[BonusState, dict[str, Array], Array | None]:
        following, mask = _reached(sample.data)
        seen = part.seen(state.distillation, following, mask)
        error = part.errors(seen.params, following)
        # Until the observations' moments are known, the errors depend on the observations' scale.
        quiet = seen.steps <= _QUIET_STEPS
        errors = normalize.update(state.errors, error, mask * ~quiet, _HORIZON)
        bonus = mask * (lifelong_factor(error, errors.mean, normalize.stddev(errors), 1 + _MOST) - 1)
        bonus: Array = jnp.where(quiet, 0.0, bonus)
        flat = merge_axes(following)
        trained, loss = part.train(seen, flat, mask.reshape(-1), updates=max(1, mask.size // _PART))
        metrics = {"bonus": masked_mean(bonus, mask), "bonus_max": jnp.max(bonus), "distillation_loss": loss}
        if shuffled:
            bonus = _shuffled(trained.shuffle_key, sample.data, bonus, mask)
        inner, of_core, td_errors = core.step(state.core, sample._replace(data=_added(sample.data, weight * bonus)))
        return BonusState(inner, trained, errors), {**of_core, **metrics}, td_errors

    return LearnerCore(init, step, lambda state: core.variables(state.core))


def clipped_core(core: LearnerCore, clip: Callable[[Array], Array]) -> LearnerCore:
    """Returns a core that learns from clipped rewards, for a `core` that adds a bonus to the rewards."""

    def step(state: Any, sample: Sample) -> tuple[Any, dict[str, Array], Array | None]:
        return core.step(state, sample._replace(data=sample.data._replace(reward=clip(sample.data.reward))))

    return dataclasses.replace(core, step=step)


BONUSES: dict[str, Bonus] = {"rnd": distilled, "rnd_shuffled": functools.partial(distilled, shuffled=True)}
"""Bonuses by name: random network distillation, and the control experiment with shuffled bonuses."""


def _shuffled(key: Array, data: Transition | Sequence, bonus: Array, mask: Array) -> Array:
    """Returns the bonuses `[T, B]`, randomly permuted among all steps of sequences, or among transitions.

    A transition's bonuses are permuted together with its one-step bonuses.
    """
    if isinstance(data, Sequence):
        return intrinsic.shuffle(key, bonus, mask)
    return jax.random.permutation(key, bonus, axis=1)


def _reached(data: Transition | Sequence) -> tuple[Tree, Array]:
    """Returns the next observations `[T, B, ...]` of all steps, and the mask `[T, B]`.

    For transitions, T is 1, or 2 if they also contain their first step as a one-step transition.
    """
    if isinstance(data, Sequence):
        return jax.tree.map(lambda x: x[1:], data.observation), data.mask
    ends = [data.next_observation, *((data.one_step.next_observation,) if data.one_step else ())]
    return jax.tree.map(lambda *x: jnp.stack(x), *ends), jnp.ones((len(ends), *data.reward.shape))


def _added(data: Transition | Sequence, bonus: Array) -> Transition | Sequence:
    """Returns the data with `bonus` `[T, B]`, in the order of `_reached`, added to the rewards."""
    if isinstance(data, Sequence):
        return data._replace(reward=jnp.asarray(data.reward).at[1:].add(bonus))
    one_step = data.one_step and data.one_step._replace(reward=data.one_step.reward + bonus[-1])
    return data._replace(reward=data.reward + bonus[0], one_step=one_step)
