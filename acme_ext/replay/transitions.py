"""Replay of n-step transitions, with matching table, writer and dataset.

Reverb's cost is per item, so a uniform replay stores a block of several transitions in an item. Batches then consist of
complete blocks. All transitions are sampled equally often, but the transitions of a block are sampled together. With
several environments, a block holds one step's transitions of different environments, which are nearly independent. With
few environments, it holds random transitions from the newest ones.
"""

import dataclasses
import functools
from typing import ClassVar

import tree

from acme_ext.config.types import Positive, PositiveInt, Share
from acme_ext.replay import blocks, frames, nstep
from acme_ext.replay.base import Replay
from acme_ext.replay.config import TransitionSampling
from acme_ext.replay.rows import Layout, OnWait
from acme_ext.types import Array, Transition


@dataclasses.dataclass(frozen=True)
class TransitionReplay(TransitionSampling, Replay):
    """A replay of n-step transitions in one Reverb table, each a flat row of bytes.

    It has these attributes in addition to `Replay`'s.

    Attributes:
        n_step: steps that a transition spans; fewer at an episode's end.
        discount: gamma of one step; it is already included in `batch.discount`.
        max_abs_reward: each reward is clipped to this absolute value before the n-step sum; None for no clipping.
        burst: approximate number of transitions that are built and sent together.
        rows_per_item: transitions in a block; it must divide `batch_size`, and only a uniform replay can have more than
            1. None chooses the largest size that is at most the larger of `num_envs` and 8, and leaves at least 8
            blocks in a batch; it chooses 1 if the replay is not uniform. If a block has more rows than there are
            environments, transitions are shuffled first, see `blocks.pool`.
        num_envs: environments of each writer.
        keeps_one_step: whether a transition also includes its first step as a one-step transition, `batch.one_step`.
    """

    item: ClassVar[str] = "transition"

    priority: nstep.PriorityFn | None = None
    table: str = "transitions"
    discount: Share = 0.99
    max_abs_reward: Positive | None = None
    burst: PositiveInt = 32
    num_envs: int = 1
    keeps_one_step: bool = False

    def __post_init__(self):
        super().__post_init__()
        blocks.check(self)

    @functools.cached_property
    def block(self) -> int:
        return blocks.size(self)

    @property
    def waiting(self) -> int:
        return blocks.pool(self)

    def for_envs(self, num_envs: int) -> "TransitionReplay":
        return dataclasses.replace(self, num_envs=num_envs)

    @property
    def _layout(self) -> Layout:
        fields = nstep.transition_spec(self.spec, self.extras, self.keeps_one_step)
        if self.keeps_one_step:
            return Layout(fields)
        return frames.layout(fields, self.spec.observations, ("observation", "next_observation"), self.n_step)

    def writer(
        self, client, num_envs: int, *, max_pending: int | None = None, on_wait: OnWait = lambda: None
    ) -> nstep.NStepWriter:
        """Returns a writer for `num_envs` environments that step in parallel; see `NStepWriter`."""
        return nstep.NStepWriter(
            self._layout,
            self._sink(client),
            num_envs=num_envs,
            n_step=self.n_step,
            discount=self.discount,
            burst=self.burst,
            max_abs_reward=self.max_abs_reward,
            priority=self.priority or (nstep.largest_error if self.prioritized else None),
            keep_extras=bool(tree.flatten(self.extras)),
            keep_one_step=self.keeps_one_step,
            max_pending=max_pending,
            on_wait=on_wait,
        )

    def decode(self, rows: Array) -> Transition:
        """Unpacks rows of bytes `[B, nbytes]` into transitions; a pure function, for use inside a compiled step."""
        return self._layout.unpack(rows)
