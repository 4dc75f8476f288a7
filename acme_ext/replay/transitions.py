"""Replay of n-step transitions: table, writer and dataset that agree.

Reverb's cost is per item, so that a uniform replay keeps a block of several transitions in an item. A batch is then
drawn as whole blocks: each transition is drawn as often as any other, but the transitions of a block come together.
With several environments a block holds transitions of different ones from the same step, which are nearly independent.
With few it holds transitions that are drawn at random from the newest ones.
"""

import dataclasses
import functools
from typing import ClassVar

from acme_ext.replay import blocks, frames, nstep
from acme_ext.replay.base import Replay
from acme_ext.replay.rows import Layout, OnWait
from acme_ext.types import Array, Transition
from acme_ext.utils.checks import PositiveInt, Share


@dataclasses.dataclass(frozen=True)
class TransitionReplay(Replay):
    """n-step transitions in one Reverb table, each a flat row of bytes. Beside what every replay has (`Replay`):

    Attributes:
        n_step: steps a transition spans; fewer at an episode's end.
        discount: gamma of one step; `batch.discount` arrives complete.
        max_abs_reward: clips each reward before the n-step sum; None leaves it.
        burst: transitions that are built and sent together, about.
        rows_per_item: transitions in a block, which divides `batch_size`; above 1 for a uniform replay alone. None
            takes the largest that is at most `num_envs` or 8 and leaves a batch at least 8 blocks, and 1 where the
            replay is not uniform. Where it is above `num_envs`, transitions wait to be shuffled, see `blocks.pool`.
        num_envs: environments of one writer.
        keeps_one_step: whether a transition also holds its first step alone, `batch.one_step`.
    """

    item: ClassVar[str] = "transition"

    priority: nstep.PriorityFn | None = None
    table: str = "transitions"
    n_step: PositiveInt = 1
    discount: Share = 0.99
    max_abs_reward: float | None = None
    burst: PositiveInt = 32
    rows_per_item: PositiveInt | None = None
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
        """Returns a writer for `num_envs` environments that step together; see NStepWriter for the rest."""
        return nstep.NStepWriter(
            self._layout,
            self._sink(client),
            num_envs=num_envs,
            n_step=self.n_step,
            discount=self.discount,
            burst=self.burst,
            max_abs_reward=self.max_abs_reward,
            priority=self.priority or (nstep.largest_error if self.prioritized else None),
            keep_extras=bool(self.extras),
            keep_one_step=self.keeps_one_step,
            max_pending=max_pending,
            on_wait=on_wait,
        )

    def decode(self, rows: Array) -> Transition:
        """Takes rows of bytes `[B, nbytes]` apart; pure, for use inside a compiled step."""
        return self._layout.unpack(rows)
