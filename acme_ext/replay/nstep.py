"""Builds packed n-step transitions from the timesteps of B parallel environments."""

from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import tree

from acme_ext.replay.rows import Layout, OnWait, RowWriter, Sink
from acme_ext.types import LAST, Array, OneStep, Transition, Tree, stored_extras

PriorityFn = Callable[..., Any]
"""`(reward [M], discount [M], extras_tm1 [M, ...], extras_t [M, ...]) -> |TD error| [M]`: computes the errors for the
initial priorities of new transitions, from the policy's extras at both ends."""


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
        shape = (self._ticks + 1, num_envs)
        self._reward = np.zeros(shape, np.float32)
        self._discount = np.zeros(shape, np.float32)
        self._step_type = np.zeros(shape, np.uint8)
        self._observation: list[np.ndarray] = []  # made with the first timestep
        self._taken: list[np.ndarray] = []  # actions and extras, made with the first action
        self._taken_structure: Tree = None
        self._now = -1

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts a timeline with a batched timestep `[B, ...]`, after writing the rest of an earlier timeline."""
        self.flush()
        self._now = 0
        self._record(timestep)

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = ()) -> None:
        """Adds the actions `[B, ...]` taken at the newest timestep, the policy's extras, and the next timestep.

        Where the newest timestep was LAST, the action is ignored, and `next_timestep` is the FIRST of the next episode.
        """
        taken = tree.flatten((action, extras))
        if not self._taken:
            self._taken = [np.zeros((self._ticks, *np.shape(x)), np.asarray(x).dtype) for x in taken]
            self._taken_structure = tree.map_structure(lambda _: None, (action, extras))
        for ring, value in zip(self._taken, taken, strict=True):
            ring[self._now] = value
        self._now += 1
        self._record(next_timestep)
        if self._now == self._ticks:
            self._write(self._starts, self._ticks - 1)
            self._keep_from(self._starts)

    def flush(self) -> None:
        """Sends all steps so far, and ends the timeline; the last steps give transitions of fewer than n steps."""
        if self._now > 0:
            for ring in self._taken:
                # Initial priorities need the extras at both ends. The newest timestep has none, so use the ones before.
                ring[self._now] = ring[self._now - 1]
            self._write(self._now, self._now)
        self._now = -1

    def _record(self, timestep: dm_env.TimeStep) -> None:
        now, observation = self._now, tree.flatten(timestep.observation)
        if not self._observation:
            self._observation = [np.zeros((self._ticks + 1, *x.shape), x.dtype) for x in observation]
        for ring, value in zip(self._observation, observation, strict=True):
            ring[now] = value
        self._step_type[now] = timestep.step_type
        self._reward[now] = timestep.reward
        self._discount[now] = timestep.discount

    def _keep_from(self, first: int) -> None:
        kept = self._now + 1 - first
        for ring in (self._reward, self._discount, self._step_type, *self._observation):
            ring[:kept] = ring[first : first + kept].copy()
        for ring in self._taken:
            ring[: kept - 1] = ring[first : first + kept - 1].copy()
        self._now = kept - 1

    def _write(self, starts: int, limit: int) -> None:
        """Writes the transitions that start at ticks [0, starts) and end at tick `limit` at the latest."""
        begin = np.arange(starts)
        reward, step_type = self._reward, self._step_type
        if self._clip is not None:
            reward = np.clip(reward, -self._clip, self._clip)
        # Each [S, B]: the return and discount so far, the tick reached, and whether the episode continues there.
        returns = np.zeros((starts, reward.shape[1]), np.float32)
        discounts = np.ones_like(returns)
        end = np.repeat(begin[:, None], reward.shape[1], axis=1)
        running = started = step_type[:starts] != LAST
        for k in range(1, self._n + 1):
            tick = np.minimum(begin + k, limit)
            running = running & (begin + k <= limit)[:, None]
            returns += np.where(running, discounts * reward[tick], 0)
            discounts = np.where(running, discounts * (self._gamma * self._discount[tick]), discounts)
            end += running
            running = running & (step_type[tick] != LAST)
        time, env = np.nonzero(started & (end > begin[:, None]))
        if not len(time):
            return
        stop = end[time, env]
        observations = self._observation
        actions, extras = tree.unflatten_as(self._taken_structure, self._taken)  # type: ignore[misc]
        leaves = [ring[time, env] for ring in observations]
        leaves += [ring[time, env] for ring in tree.flatten(actions)]
        leaves += [returns[time, env], discounts[time, env]]
        leaves += [ring[stop, env] for ring in observations]
        if self._keep_extras:
            leaves += [ring[time, env] for ring in tree.flatten(stored_extras(extras))]
        if self._keep_one_step:
            leaves += [reward[time + 1, env], np.float32(self._gamma) * self._discount[time + 1, env]]
            leaves += [ring[time + 1, env] for ring in observations]
        errors = None
        if self._priority is not None:
            at_start = tree.map_structure(lambda ring: ring[time, env], extras)
            at_end = tree.map_structure(lambda ring: ring[stop, env], extras)
            errors = self._priority(returns[time, env], discounts[time, env], at_start, at_end)
        self._send(leaves, errors)


def largest_error(reward: Array, discount: Array, extras_tm1: Tree, extras_t: Tree) -> Array:
    """A `PriorityFn` that returns the largest |TD error| so far, from the extras of a prioritized policy."""
    return extras_tm1.largest_error


def transition_spec(spec, extras: Tree = (), one_step: bool = False) -> Transition:
    """Returns the specs of an environment's transitions, as a Transition."""
    scalar = np.zeros((), np.float32)
    first = OneStep(scalar, scalar, spec.observations) if one_step else ()
    return Transition(spec.observations, spec.actions, scalar, scalar, spec.observations, extras, first)
