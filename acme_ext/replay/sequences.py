"""Replay of sequences: its settings and its writer."""

import dataclasses
from typing import Any, ClassVar

import dm_env
import numpy as np
import tree

from acme_ext.config.types import PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.replay import frames, unrolls
from acme_ext.replay.base import Replay
from acme_ext.replay.nstep import StepBuffer
from acme_ext.replay.rows import Layout, OnWait, RowWriter, Sink
from acme_ext.types import Array, Sequence, Tree, stored_extras


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceReplay(Replay):
    """A replay of sequences of steps in one table; each sequence is stored in one flat row of bytes.

    It has these attributes in addition to `Replay`'s.

    Attributes:
        length: T, steps in a sequence; it holds T + 1 timesteps.
        period: steps between the starts of consecutive sequences; if it is below `length`, they overlap.
        burn_in: steps at a sequence's start that only bring the recurrent state up to date; they are padding in an
            episode's first sequence. Every step is among the other `length - burn_in` steps of some sequence.
        discount: gamma of one step; it is already included in `batch.discount`.
        cross_episodes: whether a sequence continues into the next episode, as unrolls of a fixed length do. If not, the
            last sequence of an episode is padded. See `types.Sequence` for how both are marked.
        state: arrays or specs of the policy's recurrent state for one environment, without a batch axis. The state
            before a sequence's first timestep is stored with the sequence. Empty to store no state.
        last_extras: whether a sequence also has the extras of its last timestep, so that they are `[T + 1, B, ...]`. It
            is then written one step later.
    """

    item: ClassVar[str] = "sequence"

    priority: unrolls.SequencePriorityFn | None = None
    table: str = "sequences"
    length: PositiveInt
    period: PositiveInt
    discount: Share
    cross_episodes: bool
    burn_in: int = 0
    state: Tree = ()
    last_extras: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.burn_in < self.length:
            raise UsageError(f"burn_in is {self.burn_in}: it must lie in [0, {self.length - 1}], below length.")
        if self.period > (most := self.length - self.burn_in):
            raise UsageError(
                f"period is {self.period}: sequences of {most} steps, apart from burn_in, would leave steps out; give "
                f"at most {most}."
            )

    @property
    def _layout(self) -> Layout:
        fields = unrolls.sequence_spec(self.spec, self.length, self.extras, self.state, last_extras=self.last_extras)
        if self.cross_episodes:  # any number of episodes may begin in a sequence
            return Layout(fields)
        # There may be padding before and after the episode's steps.
        return frames.layout(fields, self.spec.observations, ("observation",), self.length, breaks=2)

    @property
    def cut(self) -> unrolls.Cut:
        """How timelines are cut into sequences."""
        return unrolls.Cut(**{field.name: getattr(self, field.name) for field in dataclasses.fields(unrolls.Cut)})

    def store(self, num_envs: int) -> "UnrollStore":
        """Returns the object that assembles this replay's sequences, for `num_envs` environments."""
        return UnrollStore(num_envs, self.cut, keeps_state=bool(tree.flatten(self.state)))

    def writer(
        self, sink: Sink, num_envs: int, *, max_pending: int | None = None, on_wait: OnWait = lambda: None
    ) -> "UnrollWriter":
        """Returns a writer for `num_envs` environments that step in parallel; see `UnrollWriter`."""
        return UnrollWriter(self, sink, num_envs, max_pending=max_pending, on_wait=on_wait)

    def decode(self, rows: Array) -> Sequence:
        """Unpacks rows of bytes `[B, nbytes]` into sequences, time first `[T, B, ...]`; a pure function."""
        return unrolls.swap_axes(self._layout.unpack(rows))


class UnrollStore:
    """Assembles the sequences of N environments that step in parallel, in NumPy ring buffers.

    Args:
        num_envs: N.
        cut: how the sequences are cut.
        keeps_state: whether to store recurrent states.
    """

    def __init__(self, num_envs: int, cut: unrolls.Cut, *, keeps_state: bool = False):
        self._cut, self._envs = cut, np.arange(num_envs)
        self.keeps_state = keeps_state
        """Whether `step` needs the policy's state."""
        self._rings = StepBuffer(cut.length + 1)
        self._now = -1
        self._start: Any = np.zeros(num_envs, np.int64)
        self._origin: Any = self._start
        self._state: Tree = ()  # made with the first one

    @property
    def _held(self) -> unrolls.Unfinished:
        return unrolls.Unfinished(self._rings.nest, self._start, self._origin, self._state)

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
        replay: the settings.
        sink: receives the rows.
        num_envs: B.
        max_pending, on_wait: see `RowWriter`.
    """

    def __init__(
        self,
        replay: "SequenceReplay",
        sink: Sink,
        num_envs: int,
        *,
        max_pending: int | None = None,
        on_wait: OnWait = lambda: None,
    ):
        super().__init__(replay._layout, sink, max_pending, on_wait)
        self._store, self._keep_extras = replay.store(num_envs), bool(tree.flatten(replay.extras))
        self._priority = replay.priority or (unrolls.largest_error if replay.prioritized else None)
        self.keeps_state = self._store.keeps_state
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
        errors: Any = None if self._priority is None else self._priority(unrolls.swap_axes(finished))
        finished = finished._replace(extras=stored_extras(finished.extras) if self._keep_extras else ())
        self._send(tree.flatten(finished), errors)
