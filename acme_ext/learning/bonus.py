"""A bonus for what is new, added to the reward that any agent without memory learns from.

The bonus is computed from each batch when it is learned from, so that it is of the newest networks. The reward in
replay, in logs and in evaluations stays the environment's.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from acme_ext.learning import normalize
from acme_ext.learning.core import LearnerCore
from acme_ext.learning.intrinsic import Distillation, DistillationConfig, DistillationState
from acme_ext.learning.normalize import Moments
from acme_ext.learning.on_policy import masked_mean
from acme_ext.ops.intrinsic import lifelong_factor
from acme_ext.types import Array, Params, Sample, Sequence, Transition, Tree

_MOST = 5.0  # the largest bonus; L of Badia et al. 2020a, table 7
_HORIZON = 100_000.0  # errors over which their moments forget
_QUIET_STEPS = 2  # learner steps at the start in which the bonus is 0, while the observations' moments settle
_PART = 256  # observations that the predictor learns from at a time, at least


class BonusState(NamedTuple):
    """The state of a core, and that of the bonus."""

    core: Any
    distillation: DistillationState
    errors: Moments  # [] of the predictor's errors


Bonus = Callable[..., LearnerCore]
"""`(core, observation [1, ...], weight=...) -> core`: the core that learns from reward + weight * bonus."""


def distilled(
    core: LearnerCore, observation: Tree, weight: float = 0.02, *, shuffled: bool = False
) -> LearnerCore[BonusState]:
    """Returns the core that learns from the reward and a bonus by random network distillation (Burda et al. 2018).

    The bonus is by how many standard deviations the predictor's error is above its mean, from 0 to 5, which is the
    lifelong novelty of Badia et al. 2020a, section 2. So what is known gives none, and an episode is not worth
    prolonging for it. Reward and bonus share one value and one discount. Of an n-step transition only the bonus of the
    observation that it ends with is known, and added once.

    Args:
        core: learns from a `Transition` or a `Sequence`.
        observation: an example `[1, ...]`.
        weight: of the bonus.
        shuffled: gives each item of a batch the bonus of another one: a control that has the scale of the bonus, and
            nothing of what it says.
    """
    part = Distillation(DistillationConfig(), observation)

    def init(key: Array) -> BonusState:
        core_key, part_key = jax.random.split(key)
        return BonusState(core.init(core_key), part.init(part_key), normalize.init(jnp.zeros(())))

    def step(state: BonusState, sample: Sample) -> tuple[BonusState, dict[str, Array], Array | None]:
        following, mask = _reached(sample.data)
        seen = part.seen(state.distillation, following, mask)
        error = part.errors(seen.params, following)
        # Until the observations' moments are known, errors say how unusual their scale is.
        quiet = seen.steps <= _QUIET_STEPS
        errors = normalize.update(state.errors, error, mask * ~quiet, _HORIZON)
        bonus = mask * (lifelong_factor(error, errors.mean, normalize.stddev(errors), 1 + _MOST) - 1)
        bonus: Array = jnp.where(quiet, 0.0, bonus)
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), following)
        trained, loss = part.train(seen, flat, mask.reshape(-1), updates=max(1, mask.size // _PART))
        metrics = {"bonus": masked_mean(bonus, mask), "bonus_max": jnp.max(bonus), "distillation_loss": loss}
        if shuffled:
            bonus = jax.random.permutation(trained.key, bonus, axis=1)
        inner, of_core, td_errors = core.step(state.core, sample._replace(data=_added(sample.data, weight * bonus)))
        return BonusState(inner, trained, errors), {**of_core, **metrics}, td_errors

    def variables(state: BonusState) -> dict[str, Params]:
        return core.variables(state.core)

    return LearnerCore(init, step, variables)


BONUSES: dict[str, Bonus] = {"rnd": distilled, "rnd_shuffled": functools.partial(distilled, shuffled=True)}
"""By name: random network distillation, and the control that has its bonuses shuffled."""


def _reached(data: Transition | Sequence) -> tuple[Tree, Array]:
    """Returns the observations `[T, B, ...]` that steps lead to, and the mask `[T, B]`. Of transitions T is 1, or 2
    where the replay keeps the first step alone too.
    """
    if isinstance(data, Sequence):
        return jax.tree.map(lambda x: x[1:], data.observation), data.mask
    ends = [data.next_observation, *((data.one_step.next_observation,) if data.one_step else ())]
    return jax.tree.map(lambda *x: jnp.stack(x), *ends), jnp.ones((len(ends), *data.reward.shape))


def _added(data: Transition | Sequence, bonus: Array) -> Transition | Sequence:
    """Returns the data with `bonus` `[T, B]` added to the rewards, in the order of `_reached`."""
    if isinstance(data, Sequence):
        return data._replace(reward=jnp.asarray(data.reward).at[1:].add(bonus))
    one_step = data.one_step and data.one_step._replace(reward=data.one_step.reward + bonus[-1])
    return data._replace(reward=data.reward + bonus[0], one_step=one_step)
