"""Replay of sequences, with matching table, writer and dataset."""

import dataclasses
from typing import ClassVar

import tree

from acme_ext.config.types import PositiveInt, Share
from acme_ext.errors import UsageError
from acme_ext.replay import frames, unrolls
from acme_ext.replay.base import Replay
from acme_ext.replay.rows import Layout, OnWait
from acme_ext.types import Array, Sequence, Tree


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceReplay(Replay):
    """A replay of sequences of steps in one Reverb table; each sequence is stored in one flat row of bytes.

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

    def store(self, slots: int) -> unrolls.UnrollStore:
        """Returns the object that assembles this replay's sequences, for `slots` environments."""
        return unrolls.UnrollStore(
            slots,
            length=self.length,
            period=self.period,
            discount=self.discount,
            cross_episodes=self.cross_episodes,
            burn_in=self.burn_in,
            keeps_state=bool(tree.flatten(self.state)),
            last_extras=self.last_extras,
        )

    def writer(
        self, client, num_envs: int, *, max_pending: int | None = None, on_wait: OnWait = lambda: None
    ) -> unrolls.UnrollWriter:
        """Returns a writer for `num_envs` environments that step in parallel; see `UnrollWriter`."""
        return unrolls.UnrollWriter(
            self._layout,
            self._sink(client),
            self.store(num_envs),
            num_envs=num_envs,
            priority=self.priority or (unrolls.largest_error if self.prioritized else None),
            keep_extras=bool(tree.flatten(self.extras)),
            max_pending=max_pending,
            on_wait=on_wait,
        )

    def decode(self, rows: Array) -> Sequence:
        """Unpacks rows of bytes `[B, nbytes]` into sequences, time first `[T, B, ...]`; a pure function."""
        return unrolls.swap_axes(self._layout.unpack(rows))
