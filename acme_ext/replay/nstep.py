"""Builds n-step transitions from the timesteps of N parallel environments, of NumPy or JAX arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from acme_ext.types import LAST, Array, OneStep, Transition, Tree, stored_extras
from acme_ext.utils.arrays import numpy_of

PriorityFn = Callable[..., Any]
"""`(reward [M], discount [M], extras_tm1 [M, ...], extras_t [M, ...]) -> |TD error| [M]`: computes the errors for the
initial priorities of new transitions, from the policy's extras at both ends."""


class Rings(NamedTuple):
    """The newest R timesteps of N environments, with the actions taken at them: tick t is in row t % R."""

    step_type: Array  # [R, N]
    reward: Array  # [R, N]
    discount: Array  # [R, N] the environment's discount
    observation: Tree  # [R, N, ...]
    action: Array  # [R, N, ...]
    extras: Tree  # [R, N, ...]


class NSteps(NamedTuple):
    """What n steps give, or fewer at an episode's end."""

    reward: Array  # [..., N] sum_{k<m} (prod_{j<k} gamma d_j) r_k
    discount: Array  # [..., N] prod_{j<m} gamma d_j
    length: Array  # [..., N] int32 m; 0 where there is no step, because an episode ended there


def n_steps(rings: Rings, start: Array, n: int, gamma: float, clip: float | None, last: int | None = None) -> NSteps:
    """Returns the sums over n steps that begin at ticks `start` `[...]`.

    Args:
        rings: the timesteps.
        start: the ticks.
        n: the number of steps.
        gamma: the discount of a step.
        clip: rewards are clipped to `[-clip, clip]` before they are summed; None for no clipping.
        last: the newest tick; None if it is at least n after every start.
    """
    xp, size = numpy_of(rings.reward), len(rings.reward)
    rewards = rings.reward if clip is None else xp.clip(rings.reward, -clip, clip)
    running = rings.step_type[start % size] != LAST
    reward = xp.zeros(running.shape, np.float32)
    discount, length = xp.ones_like(reward), xp.zeros(running.shape, np.int32)
    for tick in (start + k for k in range(1, n + 1)):
        if last is not None:
            running, tick = running & (tick <= last)[..., None], xp.minimum(tick, last)
        row = tick % size
        reward += xp.where(running, discount * rewards[row], 0)
        discount = xp.where(running, discount * (gamma * rings.discount[row]), discount)
        length += running
        running = running & (rings.step_type[row] != LAST)
    return NSteps(reward, discount, length)


def transitions(rings: Rings, steps: NSteps, begin: tuple, end: tuple, *, keep_extras: bool) -> Transition:
    """Returns the transitions `[M, ...]` of n steps `[M]`, given the indices of their first and last timesteps."""
    extras = stored_extras(at(rings.extras, begin)) if keep_extras else ()
    observation, action = at(rings.observation, begin), at(rings.action, begin)
    return Transition(observation, action, steps.reward, steps.discount, at(rings.observation, end), extras)


def first_errors(priority: PriorityFn, rings: Rings, steps: NSteps, begin: tuple, end: tuple) -> Any:
    """Returns the errors `[M]` for the first priorities of the same transitions."""
    return priority(steps.reward, steps.discount, at(rings.extras, begin), at(rings.extras, end))


def at(rings: Tree, index: tuple) -> Any:
    """Returns the timesteps of ring buffers at an index."""
    if hasattr(rings, "dtype"):  # `map_structure` would take as long as the rest
        return rings[index]
    return tree.map_structure(lambda ring: ring[index], rings)


class StepBuffer:
    """`Rings` of NumPy arrays, which are filled in place; they are made with the first timestep and action.

    Args:
        size: R.
    """

    def __init__(self, size: int):
        self._size = size
        self.nest: Any = None
        """The `Rings`."""
        self._seen: list[np.ndarray] = []
        self._taken: list[np.ndarray] = []

    def record(self, row: int, timestep: dm_env.TimeStep) -> None:
        """Writes a timestep `[N, ...]` into a row."""
        if not self._seen:
            step_type, reward, discount, observation = timestep
            scalars = np.asarray(step_type, np.uint8), np.asarray(reward, np.float32), np.asarray(discount, np.float32)
            nothing: Any = ()
            self.nest = self._make(Rings(*scalars, observation, nothing, nothing))
            self._seen = tree.flatten(self.nest)
        for ring, value in zip(self._seen, tree.flatten(tuple(timestep)), strict=True):
            ring[row] = value

    def act(self, row: int, action: Tree, extras: Tree) -> None:
        """Writes the actions `[N, ...]` taken at a row's timestep, and the policy's extras."""
        taken = tree.flatten((action, extras))
        if not self._taken:
            action, extras = self._make((action, extras))
            self.nest = self.nest._replace(action=action, extras=extras)
            self._taken = tree.flatten((action, extras))
        for ring, value in zip(self._taken, taken, strict=True):
            ring[row] = value

    def repeat_action(self, row: int) -> None:
        """Writes the action and the extras of the row before into a row."""
        for ring in self._taken:
            ring[row] = ring[row - 1]

    def move_to_front(self, first: int, last: int) -> int:
        """Moves the rows from `first` to `last` to the front; returns the number of the last one there."""
        for ring in (*self._seen, *self._taken):
            ring[: last + 1 - first] = ring[first : last + 1].copy()
        return last - first

    def _make(self, nest: Tree) -> Any:
        return tree.map_structure(lambda x: np.zeros((self._size, *np.shape(x)), np.asarray(x).dtype), nest)


def largest_error(reward: Array, discount: Array, extras_tm1: Tree, extras_t: Tree) -> Array:
    """A `PriorityFn` that returns the largest |TD error| so far, from the extras of a prioritized policy."""
    return extras_tm1.largest_error


def transition_spec(spec, extras: Tree = (), one_step: bool = False) -> Transition:
    """Returns the specs of an environment's transitions, as a Transition."""
    scalar = np.zeros((), np.float32)
    first = OneStep(scalar, scalar, spec.observations) if one_step else ()
    return Transition(spec.observations, spec.actions, scalar, scalar, spec.observations, extras, first)
