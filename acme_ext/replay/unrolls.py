"""Cuts the timesteps of N parallel environments into sequences, of NumPy or JAX arrays."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tree

from acme_ext.replay.nstep import Rings
from acme_ext.types import FIRST, LAST, Array, Sequence, Tree
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
