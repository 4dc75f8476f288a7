"""From timesteps to sequences, for many environments at once."""

from collections.abc import Callable
from typing import Any

import dm_env
import numpy as np
import tree

from acme_ext.replay.rows import Layout, OnWait, RowWriter, Sink
from acme_ext.types import Array, Sequence, Tree, stored_extras

SequencePriorityFn = Callable[[Sequence], Any]
"""`Sequence [T, M, ...], extras included -> |TD error| [M]`, by which new sequences are first given their priorities;
of NumPy arrays for a writer, of JAX's for a replay on the device."""

_FIRST, _LAST = int(dm_env.StepType.FIRST), int(dm_env.StepType.LAST)


class UnrollStore:
    """The unfinished sequences of S slots, an environment each, in NumPy rings; it knows nothing of where they go.

    Slots have clocks of their own, so that any of them may be told of a step without the others. A sequence of `length`
    steps begins every `period` steps: of the episode, or, with `cross_episodes`, of the slot's timeline, whatever
    episodes it goes through. What is cut short (an episode's end, or `flush`) is padded with zeros, and is left out if
    all its steps are in the sequence before it. The first `burn_in` steps of a sequence are context of the others: a
    step that has no steps before it, an episode's or timeline's first, has padding in their place.

    The recurrent state is kept at the first timestep of every sequence, as it was before the policy was given it; for
    one that begins with padding, at the first timestep after.

    Args:
        slots: S.
        length: T, steps in a sequence.
        period: steps between the beginnings of two, at most `length - burn_in`.
        discount: gamma.
        cross_episodes: see above; otherwise no sequence holds steps of two episodes.
        burn_in: see above.
        keeps_state: whether the recurrent state is kept.
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
    ):
        self._length, self._period, self._gamma, self._cross = length, period, discount, cross_episodes
        self._burn_in = burn_in
        self.keeps_state = keeps_state
        """Whether `step` has to be given the policy's state."""
        self._ring = length + 1  # timesteps from the first of the oldest unfinished sequence to the newest
        self._open = -(-length // period)  # sequences unfinished at a time
        # Clocks: the newest timestep's tick (-1: none), that of the oldest unfinished sequence's first timestep, and
        # that of the first timestep there is for it: of the timeline, or of the episode.
        self._now = np.full(slots, -1, np.int64)
        self._start = np.zeros(slots, np.int64)
        self._origin = np.zeros(slots, np.int64)
        shape = (slots, self._ring)
        self._reward = np.zeros(shape, np.float32)
        self._discount = np.zeros(shape, np.float32)
        self._step_type = np.zeros(shape, np.uint8)
        # Made with the first of them.
        self._observation: list[np.ndarray] = []
        self._taken: list[np.ndarray] = []  # actions and extras
        self._state: list[np.ndarray] = []  # [S, sequences open, ...]
        self._structures: dict[str, Tree] = {}

    def begin(self, slots: np.ndarray, timestep: dm_env.TimeStep) -> None:
        """Starts timelines with timesteps `[K]`, of distinct slots `[K]`; what they had unfinished is forgotten."""
        self._now[slots] = self._origin[slots] = 0
        self._start[slots] = -self._burn_in
        self._record(slots, timestep)

    def step(
        self, slots: np.ndarray, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = (), state: Tree = ()
    ) -> Sequence | None:
        """Adds the actions `[K, ...]` taken at the newest timesteps of distinct slots `[K]`, and what came of them.

        Args:
            slots: which.
            action: theirs; where the newest timestep is LAST none was taken, and `next_timestep` is FIRST.
            next_timestep: `[K, ...]`.
            extras: `[K, ...]` what the policy gave with the action.
            state: `[K, ...]` the policy's recurrent state before it was given the newest timestep; looked at only where
                a sequence begins there.

        Returns:
            The sequences that are now finished, `[M, T, ...]` with the extras, or None.
        """
        now = self._now[slots]
        if self.keeps_state:
            self._keep_state(slots, now - self._origin[slots], state)
        taken = tree.flatten((action, extras))
        if not self._taken:
            self._taken = [self._make(self._ring, x) for x in taken]
            self._structures["taken"] = tree.map_structure(lambda _: None, (action, extras))
        place = now % self._ring
        for ring, value in zip(self._taken, taken, strict=True):
            ring[slots, place] = value
        self._now[slots] = now = now + 1
        self._record(slots, next_timestep)

        full = now - self._start[slots] == self._length
        ended = next_timestep.step_type == _LAST
        due = full if self._cross else full | ended
        if not due.any():
            return None
        finished = self._finish(slots[due])
        self._start[slots[full]] += self._period
        if not self._cross:
            self._origin[slots[ended]] = now[ended] + 1
            self._start[slots[ended]] = now[ended] + 1 - self._burn_in
        return finished

    def flush(self, slots: np.ndarray) -> Sequence | None:
        """Ends the timelines of slots `[K]` where they are; returns their unfinished sequences, as `step` does."""
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
        """Keeps the state of slots whose newest timestep is `age` steps from the first, if sequences begin there."""
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
            ring[slots[fresh]] = value[fresh][:, None]  # those that begin with padding too

    def _finish(self, slots: np.ndarray) -> Sequence | None:
        """Returns the oldest unfinished sequences of slots `[M]`, as far as they have come, but for those whose steps
        have all been in the one before.
        """
        start, origin = self._start[slots], self._origin[slots]
        sequence, time = (start - origin + self._burn_in) // self._period, np.arange(self._ring)
        tick = start[:, None] + time  # [M, T + 1]
        place = tick % self._ring
        there = (tick >= origin[:, None]) & (tick <= self._now[slots, None])
        kinds = np.where(there, self._step_type[slots[:, None], place], _LAST)
        mask = there[:, 1:] & (kinds[:, :-1] != _LAST)
        known = np.where(sequence > 0, self._length - self._period, 0)  # steps that the one before had
        kept = (mask & (time[:-1] >= known[:, None])).any(axis=1)
        if not kept.any():
            return None
        slots, sequence, place = slots[kept], sequence[kept] % self._open, place[kept]
        there, kinds, mask = there[kept], kinds[kept], mask[kept]
        rows = slots[:, None]
        short = not there.all()

        def of(name: str, rings: list[np.ndarray], steps: int) -> Tree:
            leaves = [ring[rows, place[:, :steps]] for ring in rings]
            missing = ~there if steps == self._ring else ~(there[:, :-1] & there[:, 1:])
            for leaf in leaves if short else ():
                leaf[missing] = 0
            return tree.unflatten_as(self._structures[name], leaves)

        action, extras = of("taken", self._taken, self._length)
        return Sequence(
            observation=of("observation", self._observation, self._ring),
            reward=np.where(there, self._reward[rows, place], np.float32(0)),
            first=kinds == _FIRST,
            action=action,
            discount=np.where(mask, np.float32(self._gamma) * self._discount[rows, place[:, 1:]], np.float32(0)),
            mask=mask.astype(np.float32),
            extras=extras,
            state=tree.unflatten_as(self._structures["state"], [ring[slots, sequence] for ring in self._state])
            if self._state
            else (),
        )


class UnrollWriter(RowWriter):
    """Writes the sequences of B environments that step together.

    Args:
        layout: of a row, for an item of a Sequence.
        sink: where rows go.
        store: of B slots.
        num_envs: B.
        priority: computes the errors that first priorities are made of; the sink must take them.
        keep_extras: whether the rows hold the extras (`layout` says which).
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
        """Whether `add` has to be given the policy's state."""

    def add_first(self, timestep: dm_env.TimeStep) -> None:
        """Starts a timeline with a batched timestep `[B, ...]`; what an earlier one left unfinished is written."""
        self.flush()
        self._store.begin(self._slots, timestep)

    def add(self, action: Tree, next_timestep: dm_env.TimeStep, extras: Tree = (), state: Tree = ()) -> None:
        """Adds the actions `[B, ...]` taken at the newest timestep, what the policy gave with them, what came of them,
        and the policy's recurrent state before it was given that timestep.

        Rows whose newest timestep was LAST took no action: `next_timestep` is the FIRST of their next episode.
        """
        self._write(self._store.step(self._slots, action, next_timestep, extras, state))

    def flush(self) -> None:
        """Sends what is unfinished, padded. Then starts anew."""
        self._write(self._store.flush(self._slots))

    def _write(self, finished: Sequence | None) -> None:
        if finished is None:
            return
        errors = None if self._priority is None else self._priority(swap_axes(finished))
        finished = finished._replace(extras=stored_extras(finished.extras) if self._keep_extras else ())
        self._send(tree.flatten(finished), errors)


def largest_error(batch: Sequence) -> Array:
    """Returns the largest |TD error| so far, which a prioritized policy passes on; a `SequencePriorityFn`."""
    return batch.extras.largest_error.max(axis=0)


def sequence_spec(spec: Any, length: int, extras: Tree = (), state: Tree = ()) -> Sequence:
    """Returns the Sequence of arrays that stand for an item of it, from an environment's specs and, unbatched, those of
    the policy's extras and state.
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
        extras=along(extras, length),
        state=state,
    )


def swap_axes(sequence: Sequence) -> Sequence:
    """Exchanges the first two axes, time and batch, of a batch of sequences; the state has no time."""
    timed: Any = tree.map_structure(lambda leaf: leaf.swapaxes(0, 1), sequence._replace(state=()))
    return timed._replace(state=sequence.state)
