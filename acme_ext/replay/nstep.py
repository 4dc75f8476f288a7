"""Builds n-step transitions from the timesteps of N parallel environments, of NumPy or JAX arrays, and writes them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from acme_ext.replay.rows import Layout, OnWait, RowWriter, Sink
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


class NStepWriter(RowWriter):
    """Writes the n-step transitions of B environments that step in parallel.

    An n-step return starts at every step and ends after n steps, or at the episode's end:
    `R = sum_{k<m} (prod_{j<k} gamma d_j) r_k`, `discount = prod_{j<m} gamma d_j`, `m <= n`. So an episode of T steps
    gives T transitions. A termination has d = 0, and a truncation has d > 0; no other mark is needed.

    Steps are stored in NumPy ring buffers. Rows are built for many steps at once, and sent together.

    Args:
        layout: layout of a row, for a Transition.
        sink: receives the rows.
        num_envs: B.
        n_step: n.
        discount: gamma.
        burst: approximate number of rows to collect before they are sent.
        max_abs_reward: rewards are clipped to `[-max_abs_reward, max_abs_reward]` before they are summed; None for no
            clipping.
        priority: computes the errors for initial priorities, for a sink that needs them.
        keep_extras: whether rows include the extras (`layout` says which).
        keep_one_step: whether rows also include the first step as a one-step transition.
        max_pending, on_wait: see `RowWriter`.
    """

    def __init__(
        self,
        layout: Layout,
        sink: Sink,
        *,
        num_envs: int,
        n_step: int,
        discount: float,
        burst: int,
        max_abs_reward: float | None = None,
        priority: PriorityFn | None = None,
        keep_extras: bool = False,
        keep_one_step: bool = False,
        max_pending: int | None = None,
        on_wait: OnWait = lambda: None,
    ):
        super().__init__(layout, sink, max_pending, on_wait)
        self._n, self._gamma = n_step, discount
        self._clip, self._priority, self._keep_extras = max_abs_reward, priority, keep_extras
        self._keep_one_step = keep_one_step
        self._starts = max(1, burst // num_envs)  # steps whose transitions are sent together
        # Ticks 0..ticks of a timeline: each has a timestep, and all but the newest have the action taken at it.
        self._ticks = self._starts + n_step
        self._rings = StepBuffer(self._ticks + 1)
        self._now = -1

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts a timeline with a batched timestep `[B, ...]`, after writing the rest of an earlier timeline."""
        self.flush()
        self._now = 0
        self._rings.record(0, timestep)

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = ()) -> None:
        """Adds the actions `[B, ...]` taken at the newest timestep, the policy's extras, and the next timestep.

        Where the newest timestep was LAST, the action is ignored, and `next_timestep` is the FIRST of the next episode.
        """
        self._rings.act(self._now, action, extras)
        self._now += 1
        self._rings.record(self._now, next_timestep)
        if self._now == self._ticks:
            self._write(self._starts, self._ticks - 1)
            self._now = self._rings.move_to_front(self._starts, self._now)

    def flush(self) -> None:
        """Sends all steps so far, and ends the timeline; the last steps give transitions of fewer than n steps."""
        if self._now > 0:
            # Initial priorities need the extras at both ends. The newest timestep has none, so use the ones before.
            self._rings.repeat_action(self._now)
            self._write(self._now, self._now)
        self._now = -1

    def _write(self, starts: int, limit: int) -> None:
        """Writes the transitions that start at ticks [0, starts) and end at tick `limit` at the latest."""
        rings = self._rings.nest
        steps = n_steps(rings, np.arange(starts), self._n, self._gamma, self._clip, limit)
        time, env = np.nonzero(steps.length)
        if not len(time):
            return
        steps = NSteps(steps.reward[time, env], steps.discount[time, env], steps.length[time, env])
        begin, end = (time, env), (time + steps.length, env)
        made = transitions(rings, steps, begin, end, keep_extras=self._keep_extras)
        if self._keep_one_step:
            second = time + 1, env
            reward = rings.reward[second]
            reward = reward if self._clip is None else np.clip(reward, -self._clip, self._clip)
            discount = np.float32(self._gamma) * rings.discount[second]
            made = made._replace(one_step=OneStep(reward, discount, at(rings.observation, second)))
        errors = None if self._priority is None else first_errors(self._priority, rings, steps, begin, end)
        self._send(tree.flatten(made), errors)


def largest_error(reward: Array, discount: Array, extras_tm1: Tree, extras_t: Tree) -> Array:
    """A `PriorityFn` that returns the largest |TD error| so far, from the extras of a prioritized policy."""
    return extras_tm1.largest_error


def transition_spec(spec, extras: Tree = (), one_step: bool = False) -> Transition:
    """Returns the specs of an environment's transitions, as a Transition."""
    scalar = np.zeros((), np.float32)
    first = OneStep(scalar, scalar, spec.observations) if one_step else ()
    return Transition(spec.observations, spec.actions, scalar, scalar, spec.observations, extras, first)
