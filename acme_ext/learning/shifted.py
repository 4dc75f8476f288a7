"""Random shifts of images in batches, for any agent with a replay of transitions (Kostrikov et al. 2020, DrQ; Yarats et
al. 2021, DrQ-v2).

Images are not shifted when acting. An observation and its next observation are shifted independently.
"""

from typing import Any, NamedTuple

import jax

from acme_ext.errors import UsageError
from acme_ext.learning.core import LearnerCore
from acme_ext.ops.pictures import is_picture, random_shift
from acme_ext.types import Array, Sample, Transition, Tree


class ShiftedState(NamedTuple):
    """The state of a core, and the random key for all future shifts."""

    core: Any
    key: Array


def shifted_core(core: LearnerCore, observation: Tree, most: int) -> LearnerCore[ShiftedState]:
    """Returns a core that learns from randomly shifted images; see `ops.pictures.random_shift`.

    Args:
        core: a core for transitions.
        observation: an example `[1, ...]`; its fields `[1, H, W, C]` are images, and other fields stay unchanged.
        most: maximum shift in pixels.

    Raises:
        UsageError: there is no image, or one is too small for such shifts.
    """
    sides = [min(leaf.shape[1:3]) for leaf in jax.tree.leaves(observation) if is_picture(leaf)]
    if not sides:
        shapes = [list(leaf.shape[1:]) for leaf in jax.tree.leaves(observation)]
        raise UsageError(
            f"random_shift is {most}: it is for observations with images, of height, width and channels, and these "
            f"have shapes {', '.join(map(str, shapes))}; leave it at none."
        )
    if most >= min(sides):
        raise UsageError(f"random_shift is {most}: the images have sides of {min(sides)}, so that less is needed.")

    def shifted(key: Array, seen: Tree) -> Tree:
        leaves, structure = jax.tree.flatten(seen)
        keys = jax.random.split(key, len(leaves))
        return jax.tree.unflatten(
            structure,
            [random_shift(k, x, most) if is_picture(x) else x for k, x in zip(keys, leaves, strict=True)],
        )

    def init(key: Array) -> ShiftedState:
        key, shift_key = jax.random.split(key)
        return ShiftedState(core.init(key), shift_key)

    def step(state: ShiftedState, sample: Sample) -> tuple[ShiftedState, dict[str, Array], Array | None]:
        batch: Transition = sample.data
        key, first, following, of_one_step = jax.random.split(state.key, 4)
        one_step = batch.one_step
        if one_step:
            one_step = one_step._replace(next_observation=shifted(of_one_step, one_step.next_observation))
        data = batch._replace(
            observation=shifted(first, batch.observation),
            next_observation=shifted(following, batch.next_observation),
            one_step=one_step,
        )
        inner, metrics, errors = core.step(state.core, sample._replace(data=data))
        return ShiftedState(inner, key), metrics, errors

    return LearnerCore(init, step, lambda state: core.variables(state.core))
