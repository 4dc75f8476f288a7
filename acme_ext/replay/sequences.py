"""Replay of sequences: table, writer and dataset that agree."""

import dataclasses
from typing import ClassVar

import tree

from acme_ext.errors import UsageError
from acme_ext.replay import frames, unrolls
from acme_ext.replay.base import Replay
from acme_ext.replay.rows import Layout, OnWait
from acme_ext.types import Array, Sequence, Tree
from acme_ext.utils.checks import PositiveInt, Share


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceReplay(Replay):
    """Sequences of steps in one Reverb table, each a flat row of bytes that holds the whole of it. Beside what every
    replay has (`Replay`):

    Attributes:
        length: T, steps in a sequence; it holds T + 1 timesteps.
        period: steps between the beginnings of two sequences; below `length` they overlap.
        burn_in: steps at a sequence's head that are no more than context, to bring recurrent state up to date; the
            first sequence has padding there. The other `length - burn_in` leave no step out.
        discount: gamma of one step; `batch.discount` arrives complete.
        cross_episodes: whether a sequence goes on into the next episode, as unrolls of a fixed length do. Otherwise the
            last sequence of an episode is padded. See `types.Sequence` for how either is marked.
        state: arrays or specs of the policy's recurrent state for one environment (unbatched), to be stored with every
            sequence as it was before its first timestep; nothing for a policy without one, or to store none.
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
        fields = unrolls.sequence_spec(self.spec, self.length, self.extras, self.state)
        if self.cross_episodes:  # any number of episodes may begin in one
            return Layout(fields)
        # Padding may come before the episode's steps and after them.
        return frames.layout(fields, self.spec.observations, ("observation",), self.length, breaks=2)

    def store(self, slots: int) -> unrolls.UnrollStore:
        """Returns what assembles this replay's sequences, for as many environments."""
        return unrolls.UnrollStore(
            slots,
            length=self.length,
            period=self.period,
            discount=self.discount,
            cross_episodes=self.cross_episodes,
            burn_in=self.burn_in,
            keeps_state=bool(tree.flatten(self.state)),
        )

    def writer(
        self, client, num_envs: int, *, max_pending: int | None = None, on_wait: OnWait = lambda: None
    ) -> unrolls.UnrollWriter:
        """Returns a writer for `num_envs` environments that step together; see UnrollWriter for the rest."""
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
        """Takes rows of bytes `[B, nbytes]` apart, time first `[T, B, ...]`; pure, for use inside a compiled step."""
        return unrolls.swap_axes(self._layout.unpack(rows))
