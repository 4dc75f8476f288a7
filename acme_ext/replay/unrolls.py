"""Cuts the timesteps of N parallel environments into sequences, of NumPy or JAX arrays, and writes them."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import dm_env
import numpy as np
import tree

from acme_ext.replay.nstep import Rings, StepBuffer
from acme_ext.replay.rows import Layout, OnWait, RowWriter, Sink
from acme_ext.types import FIRST, LAST, Array, Sequence, Tree, stored_extras
from acme_ext.utils.arrays import numpy_of

SequencePriorityFn = Callable[[Sequence], Any]
"""`Sequence [T, M, ...] with extras -> |TD error| [M]`: computes the errors for the initial priorities of new
sequences. The arrays are NumPy's for a writer, and JAX's for a replay on the device."""


class Unfinished(NamedTuple):
    """The unfinished sequences of N environments. Ticks count the timesteps since the timeline's start."""

    pending: Rings  # [T + 1, N, ...] timesteps from the first of the oldest unfinished sequence to the newest
    start: Array  # [N] int32 tick at which the oldest unfinished sequence starts
    origin: Array  # [N] int32 tick of the first timestep that it may contain: the timeline's first, or the episode's
    state: Tree  # [open sequences, N, ...] recurrent states at the sequences' starts; empty to store none


@dataclasses.dataclass(frozen=True)
class Cut:
    """How timelines are cut into sequences; its methods take NumPy or JAX arrays.

    A sequence of `length` steps starts every `period` steps. These count from the episode's start or, with
    `cross_episodes`, from the start of the timeline, regardless of episodes. A sequence that is cut off by an episode's
    end or by the timeline's is padded with zeros; it is dropped if the previous sequence has all its steps. The first
    `burn_in` steps of a sequence are context for the others; before the first step of an episode or timeline, they are
    padding.

    The recurrent state from before the policy saw a sequence's first timestep is stored with the sequence. If the
    sequence begins with padding, it is the state at the first timestep after the padding.

    Attributes:
        length: T, steps in a sequence.
        period: steps between the starts of consecutive sequences, at most `length - burn_in`.
        discount: gamma.
        cross_episodes: see above; if false, no sequence holds steps of two episodes.
        burn_in: see above.
        last_extras: whether a sequence has the extras of all its T + 1 timesteps. It is then finished one step later,
            when the policy has seen its last timestep; at the timeline's end the extras of the newest are zeros.
    """

    length: int
    period: int
    discount: float
    cross_episodes: bool
    burn_in: int = 0
    last_extras: bool = False

    @property
    def open(self) -> int:
        """The maximum number of unfinished sequences."""
        return -(-self.length // self.period)

    def due(self, held: Unfinished, now: Array | int) -> tuple[Array, Array]:
        """Returns whether the oldest unfinished sequences `[N]` have their length at tick `now`, and whether they are
        ended there by their episode's end.
        """
        last = held.pending.step_type[now % (self.length + 1)] == LAST
        return now - held.start == self.length, last & (not self.cross_episodes)

    def next_clocks(self, held: Unfinished, now: Array | int, full: Array, ended: Array) -> tuple[Array, Array]:
        """Returns `start` and `origin` after the sequences that are due have been taken; see `due`."""
        xp = numpy_of(held.start)
        start = xp.where(full, held.start + self.period, held.start)
        return xp.where(ended, now + 1 - self.burn_in, start), xp.where(ended, now + 1, held.origin)

    def keeps_state(self, origin: Array, now: Array | int) -> Array:
        """Returns where the states from before tick `now` are kept, `[open sequences, N]`."""
        age = now - origin
        number, phase = numpy_of(origin).divmod(age + self.burn_in, self.period)
        place = np.arange(self.open)[:, None]
        # The state at the first timestep also belongs to the sequences that begin with padding.
        return (age == 0) | ((phase == 0) & (place == number % self.open))

    def oldest(self, held: Unfinished, now: Array | int, envs: Array, *, acted: bool = True) -> tuple[Sequence, Array]:
        """Returns the oldest unfinished sequences `[M, T, ...]` of environments `[M]` in their present state, with all
        extras, and whether each has a step that the previous sequence didn't have.

        `acted` says whether the action and the extras of the newest timestep are known.
        """
        rings, start, origin = held.pending, held.start[envs], held.origin[envs]
        xp, time = numpy_of(start), np.arange(self.length + 1)
        number = (start - origin + self.burn_in) // self.period
        tick = start[:, None] + time  # [M, T + 1]
        index = tick % (self.length + 1), envs[:, None]
        there = (tick >= origin[:, None]) & (tick <= now)
        kinds = xp.where(there, rings.step_type[index], LAST)
        mask = there[:, 1:] & (kinds[:, :-1] != LAST)
        known = xp.where(number > 0, self.length - self.period, 0)  # steps that the previous sequence has
        kept = xp.any(mask & (time[:-1] >= known[:, None]), axis=1)
        taken = there[:, :-1] & there[:, 1:]
        with_extras = there & (tick < now + acted) if self.last_extras else taken

        def of(nest: Tree, there: Array) -> Any:
            where = index[0][:, : there.shape[1]], index[1]
            return tree.map_structure(lambda ring: _zero_elsewhere(there, ring[where]), nest)

        discount = np.float32(self.discount) * rings.discount[index][:, 1:]
        return Sequence(
            observation=of(rings.observation, there),
            reward=of(rings.reward, there),
            first=kinds == FIRST,
            action=of(rings.action, taken),
            discount=xp.where(mask, discount, np.float32(0)),
            mask=mask.astype(np.float32),
            extras=of(rings.extras, with_extras),
            state=tree.map_structure(lambda ring: ring[number % self.open, envs], held.state),
        ), kept


def _zero_elsewhere(there: Array, found: Array) -> Array:
    if isinstance(found, np.ndarray):  # in place, and only if there is padding
        if not there.all():
            found[~there] = 0
        return found
    xp = numpy_of(found)
    return xp.where(there.reshape(there.shape + (1,) * (found.ndim - 2)), found, xp.zeros((), found.dtype))


class UnrollStore:
    """Assembles the sequences of N environments that step in parallel, in NumPy ring buffers.

    Args:
        num_envs: N.
        cut: how the sequences are cut.
        keeps_state: whether to store recurrent states.
    """

    def __init__(self, num_envs: int, cut: Cut, *, keeps_state: bool = False):
        self._cut, self._envs = cut, np.arange(num_envs)
        self.keeps_state = keeps_state
        """Whether `step` needs the policy's state."""
        self._rings = StepBuffer(cut.length + 1)
        self._now = -1
        self._start: Any = np.zeros(num_envs, np.int64)
        self._origin: Any = self._start
        self._state: Tree = ()  # made with the first one

    @property
    def _held(self) -> Unfinished:
        return Unfinished(self._rings.nest, self._start, self._origin, self._state)

    def begin(self, timestep: dm_env.TimeStep) -> None:
        """Starts a timeline with a timestep `[N, ...]`; unfinished sequences are dropped."""
        self._now, self._origin = 0, np.zeros_like(self._origin)
        self._start = self._origin - self._cut.burn_in
        self._rings.record(0, timestep)

    def step(
        self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = (), state: Tree = ()
    ) -> Sequence | None:
        """Adds the actions `[N, ...]` taken at the newest timestep, and the next timestep.

        Args:
            action: `[N, ...]` the actions; ignored where the newest timestep is LAST and `next_timestep` is FIRST.
            next_timestep: `[N, ...]`.
            extras: `[N, ...]` the policy's extras.
            state: `[N, ...]` the policy's recurrent state before it saw the newest timestep; used only where a sequence
                starts there.

        Returns:
            The sequences that are now finished, `[M, T, ...]` with the extras, or None.
        """
        rows = self._cut.length + 1
        self._rings.act(self._now % rows, action, extras)
        finished = self._finish_due(acted=True) if self._cut.last_extras else None
        if self.keeps_state:
            self._keep_state(state)
        self._now += 1
        self._rings.record(self._now % rows, next_timestep)
        return finished if self._cut.last_extras else self._finish_due(acted=False)

    def flush(self) -> Sequence | None:
        """Ends the timeline; returns the oldest unfinished sequences, padded, or None."""
        envs = self._envs[self._now > self._origin]
        finished = self._finish(envs, acted=False) if len(envs) else None
        self._now = -1
        return finished

    def _finish_due(self, *, acted: bool) -> Sequence | None:
        """Returns the sequences that end at the newest timestep, or None."""
        full, ended = self._cut.due(self._held, self._now)
        due = full | ended
        if not due.any():
            return None
        finished = self._finish(self._envs[due], acted=acted)
        self._start, self._origin = self._cut.next_clocks(self._held, self._now, full, ended)
        return finished

    def _finish(self, envs: np.ndarray, *, acted: bool) -> Any:
        sequences, kept = self._cut.oldest(self._held, self._now, envs, acted=acted)
        if kept.all():
            return sequences
        return tree.map_structure(lambda x: x[kept], sequences) if kept.any() else None

    def _keep_state(self, state: Tree) -> None:
        kept = self._cut.keeps_state(self._origin, self._now)
        if not kept.any():
            return
        place, env = kept.nonzero()
        if not tree.flatten(self._state):
            self._state = tree.map_structure(
                lambda x: np.zeros((self._cut.open, *np.shape(x)), np.asarray(x).dtype), state
            )
        for ring, leaf in zip(tree.flatten(self._state), tree.flatten(state), strict=True):
            ring[place, env] = np.asarray(leaf)[env]


class UnrollWriter(RowWriter):
    """Writes the sequences of B environments that step in parallel.

    Args:
        layout: layout of a row, for one sequence.
        sink: receives the rows.
        store: assembles the sequences of B environments.
        priority: computes the errors for initial priorities, for a sink that needs them.
        keep_extras: whether rows include the extras (`layout` says which).
        max_pending, on_wait: see `RowWriter`.
    """

    def __init__(
        self,
        layout: Layout,
        sink: Sink,
        store: UnrollStore,
        *,
        priority: SequencePriorityFn | None = None,
        keep_extras: bool = False,
        max_pending: int | None = None,
        on_wait: OnWait = lambda: None,
    ):
        super().__init__(layout, sink, max_pending, on_wait)
        self._store = store
        self._priority, self._keep_extras = priority, keep_extras
        self.keeps_state = store.keeps_state
        """Whether `add` needs the policy's state."""

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts a timeline with a batched timestep `[B, ...]`, after writing the rest of an earlier timeline."""
        self.flush()
        self._store.begin(timestep)

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = (), state: Tree = ()) -> None:
        """Adds the actions `[B, ...]` taken at the newest timestep, the next timestep, the policy's extras, and its
        recurrent state before it saw the newest timestep.

        Where the newest timestep was LAST, the action is ignored, and `next_timestep` is the FIRST of the next episode.
        """
        self._write(self._store.step(action, next_timestep, extras, state))

    def flush(self) -> None:
        """Sends the oldest unfinished sequences, padded, and ends the timeline."""
        self._write(self._store.flush())

    def _write(self, finished: Sequence | None) -> None:
        if finished is None:
            return
        errors = None if self._priority is None else self._priority(swap_axes(finished))
        finished = finished._replace(extras=stored_extras(finished.extras) if self._keep_extras else ())
        self._send(tree.flatten(finished), errors)


def largest_error(batch: Sequence) -> Array:
    """A `SequencePriorityFn` that returns the largest |TD error| so far, from the extras of a prioritized policy."""
    return batch.extras.largest_error.max(axis=0)


def sequence_spec(
    spec: Any, length: int, extras: Tree = (), state: Tree = (), *, last_extras: bool = False
) -> Sequence:
    """Returns example arrays of one sequence, as a Sequence without a batch axis.

    Args:
        spec: the environment's specs.
        length: T.
        extras: arrays or specs of the policy's extras for one step of one environment.
        state: arrays or specs of the policy's recurrent state for one environment.
        last_extras: whether there are extras of all T + 1 timesteps.
    """

    def along(nest: Tree, steps: int) -> Tree:
        return tree.map_structure(lambda leaf: np.zeros((steps, *leaf.shape), leaf.dtype), nest)

    return Sequence(
        observation=along(spec.observations, length + 1),
        reward=np.zeros(length + 1, np.float32),
        first=np.zeros(length + 1, np.bool_),
        action=along(spec.actions, length),
        discount=np.zeros(length, np.float32),
        mask=np.zeros(length, np.float32),
        extras=along(extras, length + last_extras),
        state=state,
    )


def swap_axes(sequence: Sequence) -> Sequence:
    """Swaps the first two axes, time and batch, of a batch of sequences; the state has no time axis."""
    timed: Any = tree.map_structure(lambda leaf: leaf.swapaxes(0, 1), sequence._replace(state=()))
    return timed._replace(state=sequence.state)
