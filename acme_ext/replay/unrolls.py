"""Builds sequences from the timesteps of many environments."""

from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import tree

from acme_ext.replay.rows import Layout, OnWait, RowWriter, Sink
from acme_ext.types import FIRST, LAST, Array, Sequence, Tree, stored_extras

SequencePriorityFn = Callable[[Sequence], Any]
"""`Sequence [T, M, ...] with extras -> |TD error| [M]`: computes the errors for the initial priorities of new
sequences. The arrays are NumPy's for a writer, and JAX's for a replay on the device."""


class UnrollStore:
    """Assembles the sequences of S slots, one environment each, in NumPy ring buffers.

    Each slot has its own clock, so slots can be stepped independently. A sequence of `length` steps starts every
    `period` steps. These count from the episode's start or, with `cross_episodes`, from the start of the slot's
    timeline, regardless of episodes. A sequence that is cut off by an episode's end or by `flush` is padded with zeros;
    it is dropped if the previous sequence has all its steps. The first `burn_in` steps of a sequence are context for
    the others; before the first step of an episode or timeline, they are padding.

    The recurrent state from before the policy saw a sequence's first timestep is stored with the sequence. If the
    sequence begins with padding, it is the state at the first timestep after the padding.

    Args:
        slots: S.
        length: T, steps in a sequence.
        period: steps between the starts of consecutive sequences, at most `length - burn_in`.
        discount: gamma.
        cross_episodes: see above; if false, no sequence holds steps of two episodes.
        burn_in: see above.
        keeps_state: whether to store recurrent states.
        last_extras: whether a sequence has the extras of all its T + 1 timesteps. It is then finished one step later,
            when the policy has seen its last timestep; in `flush` the extras of the newest timestep are zeros.
    """

    def __init__(
        self,
        slots: int,
        *,
        length: int,
        period: int,
        discount: float,
        cross_episodes: bool,
        burn_in: int = 0,
        keeps_state: bool = False,
        last_extras: bool = False,
    ):
        self._length, self._period, self._gamma, self._cross = length, period, discount, cross_episodes
        self._burn_in, self._last_extras = burn_in, last_extras
        self.keeps_state = keeps_state
        """Whether `step` needs the policy's state."""
        self._ring = length + 1  # timesteps from the first of the oldest unfinished sequence to the newest
        self._open = -(-length // period)  # maximum number of unfinished sequences
        # Clocks: the tick of the newest timestep (-1: none), the tick at which the oldest unfinished sequence starts,
        # and the tick of the first timestep that it may contain: the first of the timeline, or of the episode.
        self._now = np.full(slots, -1, np.int64)
        self._start = np.zeros(slots, np.int64)
        self._origin = np.zeros(slots, np.int64)
        shape = (slots, self._ring)
        self._reward = np.zeros(shape, np.float32)
        self._discount = np.zeros(shape, np.float32)
        self._step_type = np.zeros(shape, np.uint8)
        # Created with the first timestep, action and state.
        self._observation: list[np.ndarray] = []
        self._taken: dict[str, list[np.ndarray]] = {}  # actions and extras
        self._state: list[np.ndarray] = []  # [S, unfinished sequences, ...]
        self._structures: dict[str, Tree] = {}

    def begin(self, slots: np.ndarray, timestep: dm_env.TimeStep) -> None:
        """Starts timelines with timesteps `[K]` in distinct slots `[K]`; their unfinished sequences are dropped."""
        self._now[slots] = self._origin[slots] = 0
        self._start[slots] = -self._burn_in
        self._record(slots, timestep)

    def step(
        self, slots: np.ndarray, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = (), state: Tree = ()
    ) -> Sequence | None:
        """Adds the actions `[K, ...]` taken at the newest timesteps of distinct slots `[K]`, and the next timesteps.

        Args:
            slots: `[K]` the slots.
            action: `[K, ...]` the actions; ignored where the newest timestep is LAST and `next_timestep` is FIRST.
            next_timestep: `[K, ...]`.
            extras: `[K, ...]` the policy's extras.
            state: `[K, ...]` the policy's recurrent state before it saw the newest timestep; used only where a sequence
                starts there.

        Returns:
            The sequences that are now finished, `[M, T, ...]` with the extras, or None.
        """
        now = self._now[slots]
        place = now % self._ring
        for name, nest in (("action", action), ("extras", extras)):
            leaves = tree.flatten(nest)
            if name not in self._structures:
                self._structures[name] = tree.map_structure(lambda _: None, nest)
                self._taken[name] = [self._make(self._ring, x) for x in leaves]
            for ring, value in zip(self._taken[name], leaves, strict=True):
                ring[slots, place] = value
        finished = self._finish_due(slots, acted=True) if self._last_extras else None
        if self.keeps_state:
            self._keep_state(slots, now - self._origin[slots], state)
        self._now[slots] = now + 1
        self._record(slots, next_timestep)
        return finished if self._last_extras else self._finish_due(slots)

    def _finish_due(self, slots: np.ndarray, *, acted: bool = False) -> Sequence | None:
        """Returns the sequences of slots `[K]` that end at the newest timesteps, or None; see `_finish`."""
        now = self._now[slots]
        full = now - self._start[slots] == self._length
        ended = self._step_type[slots, now % self._ring] == LAST
        due = full if self._cross else full | ended
        if not due.any():
            return None
        finished = self._finish(slots[due], acted=acted)
        self._start[slots[full]] += self._period
        if not self._cross:
            self._origin[slots[ended]] = now[ended] + 1
            self._start[slots[ended]] = now[ended] + 1 - self._burn_in
        return finished

    def flush(self, slots: np.ndarray) -> Sequence | None:
        """Ends the timelines of slots `[K]`; returns their oldest unfinished sequences, padded, or None."""
        due = slots[self._now[slots] > self._origin[slots]]
        finished = self._finish(due) if len(due) else None
        self._now[slots] = -1
        return finished

    def _make(self, places: int, example: Any) -> np.ndarray:
        example = np.asarray(example)
        return np.zeros((len(self._now), places, *example.shape[1:]), example.dtype)

    def _record(self, slots: np.ndarray, timestep: dm_env.TimeStep) -> None:
        observation = tree.flatten(timestep.observation)
        if not self._observation:
            self._observation = [self._make(self._ring, x) for x in observation]
            self._structures["observation"] = tree.map_structure(lambda _: None, timestep.observation)
        place = self._now[slots] % self._ring
        for ring, value in zip(self._observation, observation, strict=True):
            ring[slots, place] = value
        self._step_type[slots, place] = timestep.step_type
        self._reward[slots, place] = timestep.reward
        self._discount[slots, place] = timestep.discount

    def _keep_state(self, slots: np.ndarray, age: np.ndarray, state: Tree) -> None:
        """Stores the states of slots whose newest timestep is `age` steps after the first, if sequences start there."""
        sequence, phase = np.divmod(age + self._burn_in, self._period)
        fresh, begins = age == 0, phase == 0
        if not (fresh | begins).any():
            return
        leaves = tree.flatten(state)
        if not self._state:
            self._state = [self._make(self._open, x) for x in leaves]
            self._structures["state"] = tree.map_structure(lambda _: None, state)
        for ring, leaf in zip(self._state, leaves, strict=True):
            value = np.asarray(leaf)
            ring[slots[begins], sequence[begins] % self._open] = value[begins]
            ring[slots[fresh]] = value[fresh][:, None]  # also for those that begin with padding

    def _finish(self, slots: np.ndarray, *, acted: bool = False) -> Sequence | None:
        """Returns the oldest unfinished sequences of slots `[M]` in their current state.

        Sequences whose steps are all in the previous sequence are left out. `acted` says whether the extras of the
        newest timestep are known.
        """
        start, origin = self._start[slots], self._origin[slots]
        sequence, time = (start - origin + self._burn_in) // self._period, np.arange(self._ring)
        tick = start[:, None] + time  # [M, T + 1]
        place = tick % self._ring
        there = (tick >= origin[:, None]) & (tick <= self._now[slots, None])
        kinds = np.where(there, self._step_type[slots[:, None], place], LAST)
        mask = there[:, 1:] & (kinds[:, :-1] != LAST)
        known = np.where(sequence > 0, self._length - self._period, 0)  # steps that the previous sequence has
        kept = (mask & (time[:-1] >= known[:, None])).any(axis=1)
        if not kept.any():
            return None
        slots, sequence, tick, place = slots[kept], sequence[kept] % self._open, tick[kept], place[kept]
        there, kinds, mask = there[kept], kinds[kept], mask[kept]
        rows = slots[:, None]

        def of(name: str, rings: list[np.ndarray], known: np.ndarray) -> Tree:
            leaves = [ring[rows, place[:, : known.shape[1]]] for ring in rings]
            for leaf in leaves if not known.all() else ():
                leaf[~known] = 0
            return tree.unflatten_as(self._structures[name], leaves)

        taken = there[:, :-1] & there[:, 1:]
        with_extras = taken
        if self._last_extras:
            with_extras = there & (acted | (tick < self._now[slots, None]))
        return Sequence(
            observation=of("observation", self._observation, there),
            reward=np.where(there, self._reward[rows, place], np.float32(0)),
            first=kinds == FIRST,
            action=of("action", self._taken["action"], taken),
            discount=np.where(mask, np.float32(self._gamma) * self._discount[rows, place[:, 1:]], np.float32(0)),
            mask=mask.astype(np.float32),
            extras=of("extras", self._taken["extras"], with_extras),
            state=tree.unflatten_as(self._structures["state"], [ring[slots, sequence] for ring in self._state])
            if self._state
            else (),
        )


class UnrollWriter(RowWriter):
    """Writes the sequences of B environments that step in parallel.

    Args:
        layout: layout of a row, for one sequence.
        sink: receives the rows.
        store: assembles the sequences of B slots.
        num_envs: B.
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
        num_envs: int,
        priority: SequencePriorityFn | None = None,
        keep_extras: bool = False,
        max_pending: int | None = None,
        on_wait: OnWait = lambda: None,
    ):
        super().__init__(layout, sink, max_pending, on_wait)
        self._store = store
        self._slots = np.arange(num_envs)
        self._priority, self._keep_extras = priority, keep_extras
        self.keeps_state = store.keeps_state
        """Whether `add` needs the policy's state."""

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts a timeline with a batched timestep `[B, ...]`, after writing the rest of an earlier timeline."""
        self.flush()
        self._store.begin(self._slots, timestep)

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = (), state: Tree = ()) -> None:
        """Adds the actions `[B, ...]` taken at the newest timestep, the next timestep, the policy's extras, and its
        recurrent state before it saw the newest timestep.

        Where the newest timestep was LAST, the action is ignored, and `next_timestep` is the FIRST of the next episode.
        """
        self._write(self._store.step(self._slots, action, next_timestep, extras, state))

    def flush(self) -> None:
        """Sends the oldest unfinished sequences, padded, and ends the timeline."""
        self._write(self._store.flush(self._slots))

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
